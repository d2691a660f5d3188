"""A server's whole life with no umask at all: what is on its disk afterwards is for its owner, and tells no Secret."""

from __future__ import annotations

import base64
import contextlib
import json
import os
import socket
import ssl
import stat
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.e2e.access.harness import PASSWORD, Gateway
from tests.e2e.serving import eventually

from .test_tls import ALERT, OLD, PROTOCOL_VERSION, TLS_1_0, TLS_1_1, hello

MARK = "hush-this-must-be-nowhere-on-the-disk"
# What is the world's on a host is that of nobody else: the directory above it is its owner's.
HOSTS = "hosts"


@pytest.fixture(scope="module")
def lived(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Gateway]:
    """A server that people, clusters and Secrets came to."""
    with Gateway(tmp_path_factory.mktemp("disk") / "data") as gateway:
        yield gateway


@pytest.fixture(scope="module", autouse=True)
def _no_umask() -> Iterator[None]:
    before = os.umask(0)
    yield
    os.umask(before)


def test_what_a_server_writes_is_its_owners_whatever_the_umask(lived: Gateway, tmp_path: Path) -> None:
    person = lived.user("somebody", password=PASSWORD)
    cluster = lived.cluster("demo")
    assert cluster.token()
    secret = {"kind": "Secret", "metadata": {"name": "marked"}, "data": {"word": base64.b64encode(MARK.encode()).decode()}}
    lived.made("/api/v1/namespaces/default/secrets", secret)
    assert person.request("GET", "/v3/users?me=true").status == 200
    eventually(lambda: bool(lived.audit()))
    _remuda(tmp_path, "login", lived.url, "--username", "somebody", "--ca-file", str(lived.ca), "--password-stdin", said=PASSWORD)
    found = _remuda(tmp_path, "token", "create", "-o", "json")
    assert json.loads(found)
    assert _others_may(lived.directory) == []
    assert _others_may(tmp_path / "home") == []


def test_secrets_are_not_in_the_database_as_they_are(lived: Gateway) -> None:
    eventually(lambda: lived.endpoint.request("GET", "/api/v1/namespaces/default/secrets/marked").status == 200)
    for path in sorted(lived.directory.rglob("*")):
        held = b""
        # The server goes on: what was there a moment ago may have got its name.
        with contextlib.suppress(FileNotFoundError):
            held = path.read_bytes() if path.is_file() else b""
        for form in (MARK.encode(), base64.b64encode(MARK.encode())):
            assert form not in held, path


@pytest.mark.parametrize("version", [TLS_1_0, TLS_1_1])
def test_old_tls_is_refused_on_the_port_itself(lived: Gateway, version: int) -> None:
    with socket.create_connection((lived.host, lived.port), timeout=60) as connection:
        connection.sendall(hello(version, OLD))
        told = b""
        with contextlib.suppress(ConnectionError):
            told = connection.recv(64)
    # Closed, with or without a word on why.
    assert not told or (told[0], told[6]) == (ALERT, PROTOCOL_VERSION)
    modern = ssl.create_default_context(cafile=str(lived.ca))
    with (
        socket.create_connection((lived.host, lived.port), timeout=60) as connection,
        modern.wrap_socket(connection, server_hostname=lived.host) as secured,
    ):
        assert secured.version() in ("TLSv1.2", "TLSv1.3")


def _others_may(directory: Path) -> list[str]:
    """Whatever anybody else could read, write or enter."""
    found = []
    for path in [directory, *directory.rglob("*")]:
        inside = path.relative_to(directory).parts
        if len(inside) > 2 and inside[0] == HOSTS:
            continue
        try:
            mode = path.lstat().st_mode
        except FileNotFoundError:
            continue
        if not stat.S_ISLNK(mode) and mode & 0o077:
            found.append(f"{stat.filemode(mode)} {path.relative_to(directory)}")
    return found


def _remuda(tmp_path: Path, *arguments: str, said: str = "") -> str:
    home = tmp_path / "home"
    environ = {**os.environ, "HOME": str(home), "XDG_CONFIG_HOME": str(home)}
    home.mkdir(mode=0o700, exist_ok=True)
    done = subprocess.run(
        [sys.executable, "-m", "remuda", *arguments], input=said, capture_output=True, text=True, timeout=120, env=environ
    )
    assert done.returncode == 0, done.stderr
    return done.stdout
