"""A machine's key pair, as rancher-machine makes it: RSA 2048, `id_rsa` and `id_rsa.pub` in the machine's directory.

Other keys of ours are elliptic; this one is read by old tools and by the other program.
"""

from __future__ import annotations

import os
from pathlib import Path

from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import rsa

PRIVATE, PUBLIC = "id_rsa", "id_rsa.pub"


def ensure_key(directory: Path) -> str:
    """The public key as a line for authorized_keys; made if there is none. Not kept before the next `keep`."""
    private = directory / PRIVATE
    if not private.exists():
        key = rsa.generate_private_key(public_exponent=65537, key_size=2048)
        pem = key.private_bytes(
            serialization.Encoding.PEM, serialization.PrivateFormat.TraditionalOpenSSL, serialization.NoEncryption()
        )
        _write(private, pem)
    loaded = serialization.load_pem_private_key(private.read_bytes(), password=None)
    line = loaded.public_key().public_bytes(serialization.Encoding.OpenSSH, serialization.PublicFormat.OpenSSH) + b"\n"
    _write(directory / PUBLIC, line)
    return line.decode().strip()


def _write(path: Path, content: bytes) -> None:
    half = path.with_name(f".{path.name}.half")
    half.unlink(missing_ok=True)
    with os.fdopen(os.open(half, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as stream:
        stream.write(content)
    half.replace(path)
