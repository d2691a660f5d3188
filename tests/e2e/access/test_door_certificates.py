"""The listener's certificate: a given one, changed under way; and our own, which learns the name that everybody is told."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import ssl
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from remuda.client import kubeconfig, oneshot
from remuda.kube import certificates
from remuda.kube.clock import SYSTEM_CLOCK, Entropy
from tests.real.ports import free_ports

pytestmark = pytest.mark.timeout(300)


@contextlib.contextmanager
def serving(directory: Path, *options: str) -> Iterator[int]:
    (port,) = free_ports(1)
    log = directory / "serve.log"
    with log.open("wb") as told:
        process = subprocess.Popen(
            [
                *(sys.executable, "-m", "remuda", "serve", "--data-dir", str(directory / "data")),
                *("--listen", f"127.0.0.1:{port}", "--controllers=-capi", *options),
            ],
            stdout=told,
            stderr=subprocess.STDOUT,
            env={**os.environ, "PYTHONUNBUFFERED": "1"},
        )
    try:
        eventually(lambda: b"Ctrl-C" in log.read_bytes() or process.poll() is not None, 120)
        assert process.poll() is None, log.read_text()
        yield port
    finally:
        process.send_signal(signal.SIGTERM)
        assert process.wait(90) == 0, log.read_text()
    assert "Traceback" not in log.read_text()


def eventually(check: Callable[[], Any], seconds: float = 90) -> Any:
    end = time.monotonic() + seconds
    while True:
        if found := check():
            return found
        assert time.monotonic() < end, "it did not become true in time"
        time.sleep(0.2)


def shown(port: int) -> tuple[str, ...]:
    """The names in the certificate that new connections get."""
    pem = ssl.get_server_certificate(("127.0.0.1", port))
    found = certificates.parse_certificate(pem.encode())
    assert found is not None
    return certificates.names_in(found)


def write_pair(directory: Path, authority: certificates.Authority, name: str) -> None:
    key = certificates.new_key(Entropy())
    leaf = certificates.sign_leaf(authority, key, certificates.subject(name), 3600, (name,), SYSTEM_CLOCK, Entropy())
    for file, content in (("tls.key", certificates.key_pem(key)), ("tls.crt", leaf)):
        (directory / f"{file}.new").write_bytes(content)
        (directory / f"{file}.new").replace(directory / file)


def test_a_given_certificate_is_served_and_changed_under_way(tmp_path: Path) -> None:
    key = certificates.new_key(Entropy())
    ca = certificates.sign_authority(key, SYSTEM_CLOCK, Entropy())
    (tmp_path / "ca.crt").write_bytes(certificates.certificate_pem(ca))
    authority = certificates.Authority(ca, key)
    write_pair(tmp_path, authority, "first.example")
    options = [f"--tls-{name}-file={tmp_path / file}" for name, file in (("cert", "tls.crt"), ("ca", "ca.crt"))]
    with serving(tmp_path, *options, f"--tls-private-key-file={tmp_path / 'tls.key'}") as port:
        assert shown(port) == ("first.example",)
        # The administrator's kubeconfig says whom to trust, and by which name.
        target = kubeconfig.select(kubeconfig.load([tmp_path / "data" / "kubeconfig"]))
        assert target.tls_server_name == "first.example"
        assert oneshot.get(target, "/api/v1/namespaces", 30)["items"]
        # Half of a change is no change.
        (tmp_path / "tls.crt").write_text("not yet")
        time.sleep(1)
        assert shown(port) == ("first.example",)
        write_pair(tmp_path, authority, "second.example")
        eventually(lambda: shown(port) == ("second.example",))


def test_our_own_certificate_has_the_name_that_agents_are_told(tmp_path: Path) -> None:
    with serving(tmp_path) as port:
        assert "remuda.example" not in shown(port)
        target = kubeconfig.select(kubeconfig.load([tmp_path / "data" / "kubeconfig"]))
        path = "/apis/management.cattle.io/v3/settings/server-url"
        eventually(lambda: _found(target, path))
        _patch(tmp_path / "data" / "kubeconfig", path, {"value": "https://remuda.example"})
        eventually(lambda: "remuda.example" in shown(port))
        assert "127.0.0.1" in shown(port)


def _found(target: kubeconfig.KubeTarget, path: str) -> Any:
    try:
        return oneshot.get(target, path, 30)
    except Exception:
        return None


def _patch(config: Path, path: str, body: dict[str, Any]) -> None:
    import urllib.request

    from remuda.client.tls import client_context

    target = kubeconfig.select(kubeconfig.load([config]))
    headers = {"Content-Type": "application/merge-patch+json"}
    request = urllib.request.Request(target.server + path, json.dumps(body).encode(), headers, method="PATCH")
    with urllib.request.urlopen(request, timeout=30, context=client_context(target)) as answer:
        assert answer.status == 200
