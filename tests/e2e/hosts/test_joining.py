"""`remuda host join`, when the server goes away before it has given the install script."""

from __future__ import annotations

import shutil
import subprocess
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest

from remuda.cli.commands import host as cli
from remuda.cli.exit_codes import Failure

from .conftest import HostKit

SCRIPT = b'[ "$1 $2" = "--token x" ] || exit 9\ntouch "$CATTLE_HOST_ROOT/joined"\n'
COMMAND = 'A="a | b"  curl -fsL http://127.0.0.1:{port}/{path} | sudo A="a | b" sh -s - --token x --worker'
SHELLS = [words for words in (["dash"], ["bash"], ["busybox", "sh"]) if shutil.which(words[0])]


class Server(ThreadingHTTPServer):
    """Has no script at first, then the half of one, and then the script. Listens when it is told to."""

    answers: list[int]

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Answering, bind_and_activate=False)
        self.server_bind()
        self.answers = [503, 206, 200]
        self.port = self.server_address[1]

    def start(self) -> None:
        self.server_activate()
        threading.Thread(target=self.serve_forever, daemon=True).start()


class _Answering(BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        assert isinstance(self.server, Server)
        code = self.server.answers.pop(0) if self.server.answers else 404
        half = code == 206
        self.send_response(200 if half else code)
        self.send_header("Content-Length", str(len(SCRIPT)))
        self.end_headers()
        self.wfile.write(SCRIPT[:20] if half else SCRIPT)
        self.close_connection = True

    def log_message(self, format: str, *args: object) -> None:
        return


@pytest.mark.story
def test_a_server_that_is_away_is_waited_for(
    kit: HostKit, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(cli, "_PAUSE_SECONDS", 0.3)
    host, server = kit.create("one"), Server()
    joining = threading.Thread(
        target=cli._register, args=(host, COMMAND.format(port=server.port, path="script"), None), daemon=True
    )
    joining.start()
    time.sleep(1)
    assert joining.is_alive() and not (host.place.root / "joined").exists()
    server.start()
    joining.join(60)
    server.shutdown()
    server.server_close()
    assert not joining.is_alive() and (host.place.root / "joined").exists()
    said = capsys.readouterr().err
    for curl in (7, 22, 18):
        assert f"the server does not give the install script (curl says {curl}); again in 0.3 s" in said


@pytest.mark.parametrize(
    ("command", "why"),
    [
        ("curl -fsL --no-such-option | sudo sh -s -", "host one can't get the install script from the server (curl says 2)"),
        ("printf 'exit 3' | sudo sh -s -", r"the registration command has failed in host one \(3\)"),
    ],
)
def test_what_does_not_pass_is_a_failure(kit: HostKit, command: str, why: str) -> None:
    with pytest.raises(Failure, match=why.replace("(curl says 2)", r"\(curl says 2\)")):
        cli._register(kit.create("one"), command, None)


@pytest.mark.parametrize("sh", SHELLS, ids=lambda words: words[0])
def test_every_shell_says_that_curl_failed(sh: list[str]) -> None:
    server = Server()
    command = cli._TELLING_CURL + COMMAND.format(port=server.port, path="x").replace("sudo A=", "env A=")
    done = subprocess.run([*sh, "-c", command], check=False)
    server.server_close()
    assert done.returncode == 107
