"""New certificates and keys of a cluster of three servers that works meanwhile, with real processes, etcd and agents."""

from __future__ import annotations

import json
import ssl
import subprocess
import sys
import threading
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from cryptography import x509

from remuda.kube.objects import dig

from .conftest import DEMO, PATIENCE, Ranch, eventually
from .test_whole_way import FROM

pytestmark = [pytest.mark.real, pytest.mark.hosts, pytest.mark.timeout(2400)]

Obj = dict[str, Any]

SERVERS, WORKER = ("h0", "h1", "h2"), "w0"
DATA = "var/lib/rancher/remuda"
SECRET = "/api/v1/namespaces/default/secrets"


def root(ranch: Ranch, host: str) -> Path:
    return ranch.on(host).place.root


def serials(ranch: Ranch, host: str) -> dict[str, int]:
    """The serial number of each certificate of a host, by its file."""
    data = root(ranch, host) / DATA
    files = [*(data / "server/tls").rglob("*.crt"), *(data / "agent").glob("*.crt")]
    return {
        str(path.relative_to(data)): x509.load_pem_x509_certificates(path.read_bytes())[0].serial_number for path in sorted(files)
    }


def is_authority(file: str) -> bool:
    return file.endswith("-ca.crt")


def on_host(ranch: Ranch, host: str, *words: str) -> str:
    command = [str(root(ranch, host) / DATA / "bin/remuda"), *words]
    done = subprocess.run(command, env=ranch.on(host).environment(), capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, (host, words, done.stdout, done.stderr)
    return done.stdout


def remuda(ranch: Ranch, *words: str) -> str:
    command = [sys.executable, "-m", "remuda", "cluster", *words, "--kubeconfig", str(ranch.kubeconfig())]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, (words, done.stdout, done.stderr)
    return done.stdout


@contextmanager
def watched(ranch: Ranch) -> Iterator[list[frozenset[str]]]:
    """The servers whose API answers, as often as one looks."""
    addresses = {host: ranch.on(host).record.address for host in SERVERS}
    trusting = ssl._create_unverified_context()
    seen: list[frozenset[str]] = []
    stop = threading.Event()

    def answers(address: str) -> bool:
        try:
            with urllib.request.urlopen(f"https://{address}:6443/readyz", timeout=5, context=trusting) as answer:
                return bool(answer.status == 200)
        except OSError:
            return False

    def look() -> None:
        while not stop.wait(0.5):
            seen.append(frozenset(host for host, address in addresses.items() if answers(address)))

    looking = threading.Thread(target=look)
    looking.start()
    try:
        yield seen
    finally:
        stop.set()
        looking.join()


def asked(ranch: Ranch, host: str, path: str, body: Any = None) -> Obj:
    """The answer of one server's own API, as its administrator gets it; empty if it does not answer."""
    tls = root(ranch, host) / DATA / "server/tls"
    context = ssl.create_default_context(cafile=tls / "server-ca.crt")
    context.load_cert_chain(tls / "client-admin.crt", tls / "client-admin.key")
    sent = None if body is None else json.dumps(body).encode()
    url = f"https://{ranch.on(host).record.address}:6443{path}"
    request = urllib.request.Request(url, sent, {"Content-Type": "application/json"})
    try:
        with urllib.request.urlopen(request, timeout=30, context=context) as answer:
            found: Obj = json.load(answer)
            return found
    except OSError:
        return {}


def nodes(ranch: Ranch) -> set[str]:
    return {each["metadata"]["name"] for each in asked(ranch, "h0", "/api/v1/nodes").get("items", [])}


def kept(ranch: Ranch) -> list[Any]:
    """The Secret's data, as each server decrypts it."""
    return [asked(ranch, host, f"{SECRET}/kept").get("data") for host in SERVERS]


def condition(ranch: Ranch, kind: str) -> Obj:
    said = dig(ranch.plane(), "status", "conditions") or []
    return next((each for each in said if each["type"] == kind), {})


def until_rotated(ranch: Ranch, field: str, generation: int) -> None:
    def done() -> bool:
        status = ranch.plane().get("status") or {}
        if field == "rotateCertificates":
            return bool(status.get("certificateRotationGeneration") == generation)
        assert status.get("rotateEncryptionKeysPhase") != "Failed", condition(ranch, "EncryptionKeysRotated")
        return status.get("rotateEncryptionKeysPhase") == "Done" and dig(status, field, "generation") == generation

    eventually(done, 4 * PATIENCE, f"{field} does not end: {ranch.says()}")
    ranch.until_ready()


def test_certificates_and_keys_of_three_servers_are_rotated(either_ranch: Ranch) -> None:
    ranch = either_ranch
    ranch.want(FROM)
    for host in SERVERS:
        ranch.host(host, "etcd", "controlplane")
    ranch.host(WORKER, "worker")
    ranch.until_ready()
    eventually(lambda: nodes(ranch) == {*SERVERS, WORKER}, PATIENCE)
    assert asked(ranch, "h0", SECRET, {"metadata": {"name": "kept"}, "stringData": {"a": "b"}})

    _certificates_are_rotated(ranch)
    _keys_are_rotated_twice(ranch)
    assert kept(ranch) == [{"a": "Yg=="}] * 3
    ranch.delete()


def _certificates_are_rotated(ranch: Ranch) -> None:
    hosts = (*SERVERS, WORKER)
    before = {host: serials(ranch, host) for host in hosts}
    reported: list[Obj] = []

    def is_complete() -> bool:
        reported[:] = json.loads(remuda(ranch, "certificates", DEMO, "-o", "json"))
        listed = {(each["node"], each["certificate"]) for each in reported}
        return {(host, file) for host in hosts for file in before[host]} <= listed

    eventually(is_complete, PATIENCE, "not all certificates are reported")
    assert all(each["daysLeft"] > 300 for each in reported), reported
    assert condition(ranch, "CertificatesExpiring")["status"] == "False"
    shown = [each for each in reported if each["node"] == "h0" and not each["certificate"].endswith("-ca.crt")]
    assert {each["certificate"] for each in shown} == {file for file in before["h0"] if not is_authority(file)}
    admin = next(each for each in shown if each["certificate"] == "server/tls/client-admin.crt")
    assert (admin["subject"], admin["use"]) == ("system:admin", "client")

    assert "rotation 1 of the certificates" in remuda(ranch, "rotate-certificates", DEMO)
    with watched(ranch) as seen:
        until_rotated(ranch, "rotateCertificates", 1)
    assert seen and all(len(up) >= 2 for up in seen), "one server at a time"
    assert any(len(up) == 2 for up in seen), "they were restarted"
    after = {host: serials(ranch, host) for host in hosts}
    for host in hosts:
        for file, serial in after[host].items():
            assert (serial == before[host].get(file)) is is_authority(file), (host, file)
    assert condition(ranch, "CertificatesRotated")["message"] == "generation 1: 4 machines"
    begun = {host: ranch.begun(host) for host in hosts}
    assert ranch.is_ready() and {host: ranch.begun(host) for host in hosts} == begun
    assert {host: serials(ranch, host) for host in hosts} == after, "the normal plans restart nothing"


def _keys_are_rotated_twice(ranch: Ranch) -> None:
    running = {host: ranch.pid(host, "remuda-server") for host in SERVERS}
    keys = []
    for generation in (1, 2):
        assert f"rotation {generation} of the encryption keys" in remuda(ranch, "rotate-keys", DEMO)
        until_rotated(ranch, "rotateEncryptionKeys", generation)
        status = {host: on_host(ranch, host, "secrets-encrypt", "status") for host in SERVERS}
        assert len(set(status.values())) == 1, status
        assert "Current Rotation Stage: reencrypt_finished" in status["h0"] and "All hashes match" in status["h0"]
        keys.append(status["h0"])
        assert kept(ranch) == [{"a": "Yg=="}] * 3
    assert keys[0] != keys[1], "each rotation makes another key"
    assert {host: ranch.pid(host, "remuda-server") for host in SERVERS} == running, "these servers adopt keys without a restart"
