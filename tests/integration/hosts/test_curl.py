"""Our own `curl`, for hosts on a machine that has none: called as the installers call it, with curl's exit codes."""

from __future__ import annotations

import http.server
import shlex
import socket
import ssl
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from remuda.apiserver.keys.pki import Pki
from remuda.hosts import curl, environment
from remuda.hosts.host_directory import HostDirectory
from remuda.kube.clock import SYSTEM_CLOCK, Entropy


class Answers(http.server.BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        status = {"/": 200, "/elsewhere": 302}.get(self.path, 404)
        self.send_response(status)
        if status == 302:
            self.send_header("Location", "/")
        self.end_headers()
        self.wfile.write(f"{status} {self.headers.get('X-Token', '')}".encode())

    def log_message(self, *_: object) -> None:
        return


@contextmanager
def serving(context: ssl.SSLContext | None = None) -> Iterator[str]:
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Answers)
    if context is not None:
        server.socket = context.wrap_socket(server.socket, server_side=True)
    threading.Thread(target=server.serve_forever, args=(0.02,), daemon=True).start()
    try:
        yield f"{'https' if context else 'http'}://127.0.0.1:{server.server_port}"
    finally:
        server.shutdown()
        server.server_close()


@pytest.fixture
def plain() -> Iterator[str]:
    with serving() as url:
        yield url


def ran(*arguments: str, said: str = "") -> tuple[int, str, str]:
    command = [sys.executable, "-I", "-S", curl.__file__, *arguments]
    done = subprocess.run(command, input=said, capture_output=True, text=True, timeout=60, check=False, env={})
    return done.returncode, done.stdout, done.stderr


def test_it_fetches_as_the_installer_registers_a_host(plain: str, tmp_path: Path) -> None:
    options = shlex.split(f"-sS --connect-timeout 60 --max-time 300 -K - -o {tmp_path / 'got'} -w '%{{http_code}}'")
    assert ran(*options, f"{plain}/", said='header = "X-Token: a\\"b"\n') == (0, "200", "")
    assert (tmp_path / "got").read_text() == '200 a"b'
    # What the server says of a refusal is wanted, too.
    assert ran(*options, f"{plain}/missing", said="") == (0, "404", "")
    assert (tmp_path / "got").read_text().startswith("404")


def test_failures_have_curls_numbers(plain: str, tmp_path: Path) -> None:
    code, out, told = ran("-fsSL", "-o", str(tmp_path / "x"), f"{plain}/missing")
    assert (code, out) == (curl.REFUSED, "") and "404" in told
    assert ran("-fs", f"{plain}/missing") == (curl.REFUSED, "", "")
    with socket.socket() as closed:
        closed.bind(("127.0.0.1", 0))
        assert ran("-s", f"http://127.0.0.1:{closed.getsockname()[1]}/")[0] == curl.NO_CONNECTION
    assert ran("-s", "-o", str(tmp_path / "no" / "where"), f"{plain}/")[0] == curl.NO_FILE
    assert ran("-s")[0] == curl.USAGE
    assert ran("-s", "--cacert", str(tmp_path / "none"), "https://127.0.0.1:1/")[0] == curl.NO_CA


def test_it_goes_where_it_is_sent_only_if_told_to(plain: str) -> None:
    assert ran("-fsSL", f"{plain}/elsewhere") == (0, "200 ", "")
    assert ran("-s", "-w", " %{http_code}", f"{plain}/elsewhere") == (0, "302  302", "")


def test_a_server_is_trusted_by_its_ca_or_on_request(tmp_path: Path) -> None:
    pki = Pki.ensure(tmp_path / "pki", ["127.0.0.1"], SYSTEM_CLOCK, Entropy())
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(pki.serving_certificate, pki.serving_key)
    with serving(context) as url:
        # By this number the installer knows that it has to fetch the CA first.
        assert ran("-fsS", "-o", "/dev/null", f"{url}/")[0] == curl.NOT_TRUSTED
        assert ran("-fsS", "--insecure", f"{url}/") == (0, "200 ", "")
        assert ran("-fsSL", "--cacert", str(pki.ca_certificate), f"{url}/") == (0, "200 ", "")


def test_hosts_get_it_only_where_there_is_no_other(tmp_path: Path, plain: str) -> None:
    place = HostDirectory(tmp_path / "host")
    place.furnish()
    (tmp_path / "bin").mkdir()
    environment.write_programs(place, str(tmp_path / "bin"))
    own = place.programs / "curl"
    done = subprocess.run([own, "-fsS", f"{plain}/"], capture_output=True, text=True, timeout=60, check=True)
    assert done.stdout == "200 "
    (tmp_path / "bin" / "curl").write_text("#!/bin/sh\n")
    (tmp_path / "bin" / "curl").chmod(0o755)
    environment.write_programs(place, str(tmp_path / "bin"))
    assert not own.exists()
