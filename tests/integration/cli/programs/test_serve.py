"""`remuda serve` as a process: what it prints, what it leaves, how it stops, what it refuses."""

from __future__ import annotations

import json
import signal
import socket
import ssl
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from urllib.parse import urlsplit

import pytest

from remuda.client import kubeconfig, oneshot
from remuda.client.tls import client_context
from remuda.kube.objects import dig
from tests.integration.cli.running import Shell
from tests.waiting import wait_until


class Served:
    """A running server, and what it printed when it was ready."""

    def __init__(self, process: subprocess.Popen[str], data_dir: Path) -> None:
        self.process = process
        self.data_dir = data_dir
        assert process.stdout is not None
        self.printed = ""
        for line in process.stdout:
            self.printed += line
            if line.startswith("Ctrl-C"):
                break

    @property
    def target(self) -> kubeconfig.KubeTarget:
        return kubeconfig.select(kubeconfig.load([self.data_dir / "kubeconfig"]))

    def connection(self) -> ssl.SSLSocket:
        address = urlsplit(self.target.server)
        assert address.hostname
        raw = socket.create_connection((address.hostname, address.port or 0), timeout=30)
        return client_context(self.target).wrap_socket(raw, server_hostname=address.hostname)

    def ends(self, seconds: float = 90) -> tuple[int, str]:
        """The exit code, and what was on stderr; but for the word that it takes long, on a machine that has much else to do."""
        _, told = self.process.communicate(timeout=seconds)
        lines = [line for line in told.splitlines(keepends=True) if "the controllers take long to start" not in line]
        return self.process.returncode, "".join(lines)


@contextmanager
def serving(shell: Shell, *arguments: str) -> Iterator[Served]:
    process = shell.start("serve", "--listen", "127.0.0.1:0", *arguments)
    try:
        served = Served(process, shell.home / "data")
        assert "Ctrl-C" in served.printed, process.communicate(timeout=30)[1]
        yield served
    finally:
        if process.poll() is None:
            process.kill()
        process.communicate()


def test_the_first_start_says_where_everything_is_and_the_line_to_try(shell: Shell) -> None:
    with serving(shell) as served:
        data = shell.home / "data"
        assert f"serves the Kubernetes API at {served.target.server}\n" in served.printed
        assert f"  CA          {data}/pki/ca.crt\n" in served.printed
        assert f"Try:  kubectl --kubeconfig {data}/kubeconfig get namespaces\n" in served.printed
        for name in (
            "kubeconfig",
            "pki/ca.key",
            "pki/serving.key",
            "pki/admin.key",
            "pki/service-account.key",
            "encryption.yaml",
        ):
            assert (data / name).stat().st_mode & 0o777 == 0o600, name
        found = oneshot.get(served.target, "/api/v1/namespaces", 30)
        assert "default" in [dig(item, "metadata", "name") for item in found["items"]]
        assert "Server: Kubernetes v1." in shell.run("version").stdout
        port = urlsplit(served.target.server).port
        checks = json.loads(shell.run("doctor", "-o", "json", "--listen", f"127.0.0.1:{port}").stdout)["checks"]
        assert "is served by the Remuda of this data directory" in checks[0]["found"]


def test_sigterm_ends_open_watches_and_exits_clean(shell: Shell) -> None:
    with serving(shell) as served, served.connection() as connection:
        connection.sendall(b"GET /api/v1/namespaces?watch=1 HTTP/1.1\r\nHost: x\r\n\r\n")
        received = connection.recv(65536)
        assert received.startswith(b"HTTP/1.1 200")
        served.process.send_signal(signal.SIGTERM)
        while chunk := connection.recv(65536):
            received += chunk
        assert received.endswith(b"0\r\n\r\n"), "the watch must end as a whole answer does"
        assert served.ends() == (0, "")


def test_an_interrupt_stops_clean_and_a_second_one_at_once(shell: Shell) -> None:
    with serving(shell) as served:
        served.process.send_signal(signal.SIGINT)
        assert served.ends() == (0, "")
    # A graceful stop waits for some seconds only: who took that long to interrupt it again has shown nothing.
    for _ in range(5):
        code, took = _interrupted_twice(shell)
        if code == 130 or took < 2:
            break
    assert code == 130


def _interrupted_twice(shell: Shell) -> tuple[int, float]:
    """The exit code, and how long it took us to come back."""
    with serving(shell) as served, served.connection() as connection:
        # A request whose body never comes: a graceful stop would wait for it. It has come when the one before it is answered.
        first = b"GET /readyz HTTP/1.1\r\nHost: x\r\n\r\n"
        connection.sendall(first + b"POST /api/v1/namespaces HTTP/1.1\r\nHost: x\r\nContent-Length: 1000\r\n\r\n{")
        address = urlsplit(served.target.server)
        assert connection.recv(65536).startswith(b"HTTP/1.1 200")
        began = time.monotonic()
        served.process.send_signal(signal.SIGINT)

        def refused() -> bool:
            with socket.socket() as probe:
                return probe.connect_ex((address.hostname, address.port)) != 0

        wait_until(refused)
        served.process.send_signal(signal.SIGINT)
        took = time.monotonic() - began
        return served.ends()[0], took


def test_a_second_server_on_the_data_directory_is_refused(shell: Shell) -> None:
    with serving(shell) as served:
        done = shell.run("serve", "--listen", "127.0.0.1:0")
        assert done.returncode == 1
        assert f"is in use by another process (pid {served.process.pid})" in done.stderr
        assert done.stderr.count("\n") == 1


def test_a_port_in_use_is_one_sentence(shell: Shell) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        address = f"127.0.0.1:{taken.getsockname()[1]}"
        done = shell.run("serve", "--listen", address)
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr == f"remuda: {address} is in use: stop what listens there, or choose another address with --listen\n"
    assert not (shell.home / "data").exists()


@pytest.mark.parametrize(
    ("listen", "sentence"),
    [
        ("192.0.2.1:0", "192.0.2.1 is not an address of this machine"),
        ("no-such-host.invalid:0", "the address no-such-host.invalid is not known"),
    ],
)
def test_an_address_that_is_not_ours_is_one_sentence_before_anything_is_made(shell: Shell, listen: str, sentence: str) -> None:
    done = shell.run("serve", "--listen", listen)
    assert done.returncode == 1
    assert sentence in done.stderr
    assert not (shell.home / "data").exists()


def test_a_certificate_that_is_not_there_is_one_sentence_before_anything_is_made(shell: Shell) -> None:
    done = shell.run("serve", "--tls-cert-file", "no.crt", "--tls-private-key-file", "no.key", "--listen", ":0")
    assert (done.returncode, done.stderr.count("\n")) == (1, 1)
    assert "no.crt can't be read: No such file or directory" in done.stderr
    assert not (shell.home / "data").exists()


def test_a_data_directory_that_cant_be_made_is_one_sentence(shell: Shell) -> None:
    (shell.home / "file").touch()
    done = shell.run("serve", "--data-dir", str(shell.home / "file" / "data"), "--listen", ":0")
    assert done.returncode == 1
    assert "can't be used" in done.stderr
    assert "--data-dir" in done.stderr


def test_missing_key_material_is_not_replaced_silently(shell: Shell) -> None:
    with serving(shell) as served:
        served.process.terminate()
        served.ends()
    (shell.home / "data" / "pki" / "ca.key").unlink()
    done = shell.run("serve", "--listen", ":0")
    assert done.returncode == 1
    assert "put the key back from a backup" in done.stderr


def test_systemd_is_told_when_it_is_ready_and_when_it_stops(shell: Shell) -> None:
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as manager:
        manager.bind(str(shell.home / "notify"))
        manager.settimeout(90)
        shell.environ["NOTIFY_SOCKET"] = str(shell.home / "notify")
        with serving(shell, "--only", "api") as served:
            assert manager.recv(1000).startswith(b"READY=1\n")
            served.process.terminate()
            assert manager.recv(1000) == b"STOPPING=1"
            assert served.ends() == (0, "")


def test_log_lines_can_be_json(shell: Shell) -> None:
    with serving(shell, "--log-format", "json", "-vv") as served:
        served.process.terminate()
        code, told = served.ends()
    assert code == 0
    for line in told.splitlines():
        assert {"time", "level", "logger", "message"} <= json.loads(line).keys()
