"""The state archive: what rancher-machine reads and writes, and nothing that somebody else could smuggle in."""

from __future__ import annotations

import gzip
import io
import json
import tarfile

import pytest

from remuda.machines import machine_state
from remuda.machines import machine_state as state_archive
from remuda.machines.machine_state import MachineState, Phase

FILES = {"config.json": b"{}", "id_rsa": b"private", "deep/er/file": b"x"}


def tarred(*members: tuple[str, bytes, bytes]) -> bytes:
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w") as tar:
        for name, kind, content in members:
            member = tarfile.TarInfo(name)
            member.type, member.size, member.linkname = kind, len(content), "/etc/passwd"
            tar.addfile(member, io.BytesIO(content))
    return gzip.compress(packed.getvalue())


def test_members_are_named_and_moded_as_rancher_machine_does() -> None:
    data = state_archive.write("m-3", FILES, "/store")
    with tarfile.open(fileobj=io.BytesIO(gzip.decompress(data))) as tar:
        found = {member.name: (member.isdir(), member.mode) for member in tar}
    assert found == {
        "/store/machines/m-3": (True, 0o700),
        "/store/machines/m-3/deep": (True, 0o700),
        "/store/machines/m-3/deep/er": (True, 0o700),
        "/store/machines/m-3/config.json": (False, 0o600),
        "/store/machines/m-3/deep/er/file": (False, 0o600),
        "/store/machines/m-3/id_rsa": (False, 0o600),
    }


def test_what_was_written_is_read_and_the_same_files_are_the_same_bytes() -> None:
    data = state_archive.write("m-3", FILES)
    assert state_archive.read(data, "m-3") == (state_archive.HOME, FILES)
    assert state_archive.write("m-3", dict(reversed(FILES.items()))) == data
    assert state_archive.machines(data) == ["m-3"]
    assert state_archive.read(data, "m-4") == ("", {})


def test_images_of_disks_are_left_out() -> None:
    data = state_archive.write("m", {"config.json": b"{}", "boot.iso": b"x" * 1000, "disk.vmdk": b"x"})
    assert state_archive.read(data, "m")[1] == {"config.json": b"{}"}


@pytest.mark.parametrize("data", [state_archive.write("m", {}), gzip.compress(b"")], ids=["ours", "nothing"])
def test_after_a_removal_there_is_an_empty_archive(data: bytes) -> None:
    assert state_archive.read(data, "m") == ("", {})
    assert state_archive.machines(data) == []


def test_only_plain_files_of_the_machine_itself_are_taken() -> None:
    data = tarred(
        ("/s/machines/m/config.json", tarfile.REGTYPE, b"{}"),
        ("/s/machines/m/../../../etc/evil", tarfile.REGTYPE, b"x"),
        ("/s/machines/m/link", tarfile.SYMTYPE, b""),
        ("/s/machines/m/device", tarfile.CHRTYPE, b""),
        ("/s/machines/other/config.json", tarfile.REGTYPE, b"x"),
        ("/etc/passwd", tarfile.REGTYPE, b"x"),
    )
    assert state_archive.read(data, "m") == ("/s", {"config.json": b"{}"})


@pytest.mark.parametrize(
    "data",
    [b"no archive", gzip.compress(b"no archive" * 100)[:-20], gzip.compress(b"x" * 2000)],
    ids=["plain", "cut off", "of something else"],
)
def test_what_is_no_archive_is_refused(data: bytes) -> None:
    with pytest.raises(state_archive.ArchiveError, match="is no archive"):
        state_archive.read(data, "m")


def test_a_bomb_does_not_go_off() -> None:
    packed = io.BytesIO()
    with gzip.GzipFile(fileobj=packed, mode="wb", compresslevel=1) as stream:
        for _ in range(70):
            stream.write(b"\0" * (1 << 20))
    assert state_archive.read(packed.getvalue(), "m") == ("", {})


def test_a_config_is_rancher_machines_and_ours_beside_it() -> None:
    known = MachineState(
        "m-3", "amazonec2", {"InstanceId": "i-1", "SSHPort": 22}, "/run/script", "short", Phase.CREATED, "t", "o", {"a-b": 1}
    )
    files = machine_state.dumps(known, "/store")
    said = json.loads(files["config.json"])
    assert said == {
        "ConfigVersion": 3,
        "Driver": {
            "IPAddress": "",
            "IPv6Address": "",
            "MachineName": "m-3",
            "SSHUser": "",
            "SSHPort": 22,
            "SSHKeyPath": "",
            "StorePath": "/store",
            "SwarmMaster": False,
            "SwarmHost": "",
            "SwarmDiscovery": "",
            "InstanceId": "i-1",
        },
        "DriverName": "amazonec2",
        "HostOptions": {
            "Driver": "",
            "Memory": 0,
            "Disk": 0,
            "CustomInstallScript": "/run/script",
            "HostnameOverride": "short",
            "MachineOS": "",
            "EngineOptions": None,
            "SwarmOptions": None,
            "AuthOptions": None,
        },
        "Name": "m-3",
    }
    assert b'\n    "ConfigVersion": 3' in files["config.json"]
    again = machine_state.loads(files, "m-3")
    assert again is not None
    assert (again.phase, again.token, again.owner, again.options, again.foreign) == (Phase.CREATED, "t", "o", {"a-b": 1}, False)
    assert again.state["InstanceId"] == "i-1"


def test_what_rancher_machine_made_is_known_as_its_own() -> None:
    found = machine_state.loads({"config.json": json.dumps({"DriverName": "azure", "Driver": {"VM": "x"}}).encode()}, "m")
    assert found is not None and found.foreign and (found.driver, found.state, found.phase) == ("azure", {"VM": "x"}, Phase.READY)
    assert machine_state.loads({}, "m") is None


def test_paths_in_a_state_follow_it_to_another_store() -> None:
    known = MachineState("m", "d", {"SSHKeyPath": "/a/machines/m/id_rsa", "StorePath": "/a", "Other": "/ab", "N": 1})
    moved = machine_state.moved(known, "/a", "/home/x")
    assert moved.state == {"SSHKeyPath": "/home/x/machines/m/id_rsa", "StorePath": "/home/x", "Other": "/ab", "N": 1}


@pytest.mark.parametrize("content", [b"[]", b"{", b"{}"])
def test_a_config_that_is_none_is_refused(content: bytes) -> None:
    with pytest.raises(machine_state.ConfigError):
        machine_state.loads({"config.json": content}, "m")
