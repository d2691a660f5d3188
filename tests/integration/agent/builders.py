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

from remuda.agent.apply import Engine
from remuda.agent.clock import FixedClock
from remuda.agent.config import Config


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


def certificate(tmp_path: Path, name: str) -> tuple[Path, Path]:
    """A certificate for 127.0.0.1 that signed itself, and its key."""
    import datetime
    import ipaddress

    from cryptography import x509
    from cryptography.hazmat.primitives import hashes, serialization
    from cryptography.hazmat.primitives.asymmetric import ec

    key = ec.generate_private_key(ec.SECP256R1())
    subject = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, name)])
    now = datetime.datetime.now(datetime.UTC)
    certificate = (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(subject)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - datetime.timedelta(hours=1))
        .not_valid_after(now + datetime.timedelta(hours=1))
        .add_extension(x509.SubjectAlternativeName([x509.IPAddress(ipaddress.ip_address("127.0.0.1"))]), critical=False)
        .add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
        .sign(key, hashes.SHA256())
    )
    paths = tmp_path / f"{name}.crt", tmp_path / f"{name}.key"
    paths[0].write_bytes(certificate.public_bytes(serialization.Encoding.PEM))
    paths[1].write_bytes(
        key.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())
    )
    return paths
