"""Real services that speak like S3: `versitygw` over TLS with a CA of its own, on a directory, and moto without TLS."""

from __future__ import annotations

import contextlib
import shlex
import socket
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path

from remuda.kube import certificates
from remuda.kube.certificates import Authority
from remuda.kube.clock import SYSTEM_CLOCK, Entropy
from remuda.provisioning.etcd.s3.place import Place
from remuda.provisioning.etcd.s3.signature import Keys
from tests.real import need
from tests.waiting import wait_until

KEYS = Keys("the-access-key", "the-secret-key-of-these-tests")
BUCKET = "snapshots"


@dataclass(frozen=True)
class Service:
    """`directory` has a folder for each bucket, and in it a file for each object."""

    place: Place
    keys: Keys
    directory: Path

    @property
    def bucket(self) -> Path:
        return self.directory / self.place.bucket

    def at(self, **changes: object) -> Place:
        return replace(self.place, **changes)  # type: ignore[arg-type]


@contextlib.contextmanager
def versity(directory: Path, *options: str, size: str = "", host: str = "127.0.0.1") -> Iterator[Service]:
    """Started with a bucket. With a `size` it keeps everything on a file system of that size, which others don't see. `host` is
    an address of this machine."""
    program = need.programs("versitygw")["versitygw"]
    data, beside = directory / "data", directory / "metadata"
    for each in (data / BUCKET, beside):
        each.mkdir(parents=True)
    authority = _certified(directory, host)
    port = _free_port(host)
    command = [
        *(str(program), "--port", f"{host}:{port}", "--access", KEYS.access_key, "--secret", KEYS.secret_key),
        *("--cert", str(directory / "tls.crt"), "--key", str(directory / "tls.key"), "--quiet", *options),
        *("posix", "--sidecar", str(beside), str(data)),
    ]
    if size:
        mounted = f"mount -t tmpfs -o size={size} none {shlex.quote(str(data))} && mkdir {shlex.quote(str(data / BUCKET))}"
        command = ["unshare", "--user", "--map-root-user", "--mount", "sh", "-ec", f"{mounted} && exec {shlex.join(command)}"]
    log = directory / "log"
    with log.open("wb") as output, subprocess.Popen(command, stdout=output, stderr=output) as process:
        try:
            wait_until(lambda: _listens(host, port) or process.poll() is not None, seen=lambda: log.read_text())
            assert process.poll() is None, log.read_text()
            yield Service(Place(BUCKET, endpoint=f"{host}:{port}", authorities=authority), KEYS, data)
        finally:
            process.kill()


def _certified(directory: Path, host: str = "127.0.0.1") -> bytes:
    """A certificate and its key beside it; the CA."""
    entropy = Entropy()
    key = certificates.new_key(entropy)
    authority = certificates.sign_authority(key, SYSTEM_CLOCK, entropy, "the CA of a bucket")
    own = certificates.new_key(entropy)
    name = certificates.subject("bucket")
    leaf = certificates.sign_leaf(Authority(authority, key), own, name, certificates.DAY, (host,), SYSTEM_CLOCK, entropy)
    (directory / "tls.crt").write_bytes(leaf)
    (directory / "tls.key").write_bytes(certificates.key_pem(own))
    return certificates.certificate_pem(authority)


def _free_port(host: str = "127.0.0.1") -> int:
    with socket.socket() as probe:
        probe.bind((host, 0))
        return int(probe.getsockname()[1])


def _listens(host: str, port: int) -> bool:
    with socket.socket() as probe:
        return probe.connect_ex((host, port)) == 0
