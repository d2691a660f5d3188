"""What a machine's state says of who is let in, and the zip in which a person gets it."""

from __future__ import annotations

import base64
import gzip
import io
import json
import tarfile
import zipfile
from typing import Any

import pytest

from remuda.machines import machine_state
from remuda.machines.machine_access import NoAccess, access_of, unzipped, zipped

DRIVER = {"IPAddress": "10.0.0.7", "IPv6Address": "", "SSHUser": "ubuntu", "SSHPort": 2222, "MachineName": "demo-cp-x"}


def state(files: dict[str, bytes] | None = None, name: str = "demo-cp-x", **data: bytes) -> dict[str, Any]:
    if files is None:
        config = json.dumps({"ConfigVersion": 3, "Driver": DRIVER, "DriverName": "amazonec2"}).encode()
        files = {"config.json": config, "id_rsa": b"private", "id_rsa.pub": b"public"}
    packed = {"extractedConfig": machine_state.write(name, files), **data}
    return {"data": {key: base64.b64encode(value).decode() for key, value in packed.items()}}


def test_the_state_says_where_and_as_whom() -> None:
    found = access_of(state())
    assert (found.name, found.driver, found.user, found.port) == ("demo-cp-x", "amazonec2", "ubuntu", 2222)
    assert (found.addresses, found.private, found.public, found.known_hosts) == (("10.0.0.7",), b"private", b"public", "")
    assert "private" not in repr(found)


def test_host_keys_of_the_archive_come_before_those_that_were_pinned_later() -> None:
    assert access_of(state(knownHosts=b"h t k\n")).host_key == "t k"
    files = {"config.json": json.dumps({"Driver": DRIVER, "DriverName": "x"}).encode(), "known_hosts": b"h a b comment\n"}
    found = access_of(state(files, knownHosts=b"h t k\n"))
    assert (found.host_key, found.known_hosts) == ("a b", "[10.0.0.7]:2222 a b\n")


def test_what_rancher_machine_wrote_is_understood() -> None:
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w") as tar:
        for path, content in (
            ("config.json", json.dumps({"Driver": DRIVER, "DriverName": "generic"}).encode()),
            ("id_rsa", b"k"),
        ):
            member = tarfile.TarInfo(f"/store/machines/m-3/{path}")
            member.size = len(content)
            tar.addfile(member, io.BytesIO(content))
    encoded = base64.b64encode(gzip.compress(packed.getvalue())).decode()
    found = access_of({"data": {"extractedConfig": encoded}})
    assert (found.driver, found.private) == ("generic", b"k")


@pytest.mark.parametrize(
    ("secret", "why"),
    [
        ({}, "still being made"),
        ({"data": {"extractedConfig": "!"}}, "still being made"),
        ({"data": {"extractedConfig": base64.b64encode(b"no archive").decode()}}, "can't be read"),
        (state({}), "has been removed"),
        (state({"config.json": b"{"}), "can't be read"),
        (state({"id_rsa": b"k"}), "still being made"),
    ],
)
def test_what_is_missing_is_said(secret: dict[str, Any], why: str) -> None:
    with pytest.raises(NoAccess, match=why):
        access_of(secret)


def test_the_zip_is_ranchers() -> None:
    found = access_of(state(knownHosts=b"10.0.0.7 ssh-ed25519 AAAA\n"))
    made = zipped(found)
    assert made == zipped(found), "the same keys give the same bytes"
    with zipfile.ZipFile(io.BytesIO(made)) as opened:
        names = [entry.filename for entry in opened.infolist()]
        assert names == [f"demo-cp-x/{each}" for each in ("id_rsa", "id_rsa.pub", "config.json", "known_hosts")]
        assert {entry.external_attr >> 16 & 0o777 for entry in opened.infolist()} == {0o400}
        assert json.loads(opened.read("demo-cp-x/config.json")) == DRIVER
    back = unzipped(made)
    assert (back.private, back.user, back.port, back.address, back.host_key) == (
        found.private,
        found.user,
        found.port,
        found.address,
        found.host_key,
    )


def test_without_a_key_there_is_nothing_to_download() -> None:
    files = {"config.json": json.dumps({"Driver": DRIVER, "DriverName": "local"}).encode()}
    with pytest.raises(NoAccess, match="machines of the driver local have no SSH key"):
        zipped(access_of(state(files)))
    with pytest.raises(NoAccess, match="sent no keys"):
        unzipped(b"<html>")
