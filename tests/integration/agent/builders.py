"""Plans, hosts and peers for the agent's tests."""

from __future__ import annotations

import base64
import contextlib
import json
import threading
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

from remuda.agent.clock import Clock
from remuda.agent.config import Config
from remuda.agent.plans.apply import Engine


class FixedClock(Clock):
    """A clock that moves only when told to, or when a caller waits on it."""

    def __init__(self, at: float = 1_800_000_000.0) -> None:
        self.at = at
        self.ticks = 0.0

    def now(self) -> float:
        return self.at

    def monotonic(self) -> float:
        return self.ticks

    def advance(self, seconds: float) -> None:
        self.at += seconds
        self.ticks += seconds

    def wait(self, event: threading.Event, seconds: float) -> bool:
        if event.is_set():
            return True
        self.advance(max(0.0, seconds))
        return False


def config(root: Path, **changes: Any) -> Config:
    known = {
        "work_directory": str(root / "var/work"),
        "local_enabled": True,
        "local_plan_directory": str(root / "var/plans"),
        "applied_plan_directory": str(root / "var/applied"),
        "interlock_directory": str(root / "var/interlock"),
        "images_directory": str(root / "var/images"),
        "agent_registries_file": str(root / "etc/registries.yaml"),
        "root": str(root),
    }
    return Config(**{**known, **changes})


def engine(root: Path, clock: FixedClock | None = None, **changes: Any) -> Engine:
    return Engine(config(root, **changes), clock or FixedClock())


def plan_bytes(**members: Any) -> bytes:
    return json.dumps(members).encode()


def shell(script: str, name: str = "step", **more: Any) -> dict[str, Any]:
    return {"name": name, "command": "sh", "args": ["-c", script], "saveOutput": True, **more}


def file(path: Path, content: bytes = b"x", **more: Any) -> dict[str, Any]:
    return {"path": str(path), "content": base64.b64encode(content).decode(), "uid": -1, "gid": -1, **more}


Handler = Callable[[BaseHTTPRequestHandler, bytes], "tuple[int, dict[str, str], bytes] | None"]


@contextlib.contextmanager
def server(handle: Handler, context: Any = None) -> Iterator[str]:
    """A peer on loopback: ``handle`` gets the request and its body, and answers, or has answered itself."""

    class Answering(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_GET(self) -> None:
            body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
            answer = handle(self, body)
            if answer is None:
                return
            status, headers, content = answer
            self.send_response(status)
            for name, value in {"Content-Length": str(len(content)), **headers}.items():
                self.send_header(name, value)
            self.end_headers()
            with contextlib.suppress(OSError):
                self.wfile.write(content)

        do_PUT = do_POST = do_GET

        def log_message(self, *_: Any) -> None:
            pass

    class Quiet(ThreadingHTTPServer):
        daemon_threads = True

        def handle_error(self, *_: Any) -> None:
            pass

    peer = Quiet(("127.0.0.1", 0), Answering)
    if context is not None:
        peer.socket = context.wrap_socket(peer.socket, server_side=True)
    thread = threading.Thread(target=peer.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True)
    thread.start()
    try:
        yield f"{'https' if context else 'http'}://127.0.0.1:{peer.server_address[1]}"
    finally:
        peer.shutdown()
        peer.server_close()
        thread.join()
