"""Which authorities the program trusts in a pod: the system's, and those that the server has put beside it.

A pod's Job has the server's certificates, and those of the setting for private ones, as plain files in a directory that
$SSL_CERT_DIR names. Go reads such a directory as it is; OpenSSL looks for names made of hashes, and botocore for one file. So
one file is made of all of them.
"""

from __future__ import annotations

import contextlib
import ssl
import tempfile
from collections.abc import Iterator, Mapping
from pathlib import Path

DIRECTORY = "SSL_CERT_DIR"
# Who reads the one file: OpenSSL, and botocore.
FILES = ("SSL_CERT_FILE", "AWS_CA_BUNDLE")


@contextlib.contextmanager
def trusted(environ: Mapping[str, str]) -> Iterator[dict[str, str]]:
    """The variables that make the program trust them; none where nothing was given. The file is there for as long."""
    given = _given(Path(environ[DIRECTORY])) if environ.get(DIRECTORY) else b""
    if not given:
        yield {}
        return
    with tempfile.NamedTemporaryFile(prefix="remuda-authorities-", suffix=".pem") as bundle:
        bundle.write(_system(environ) + given)
        bundle.flush()
        yield dict.fromkeys(FILES, bundle.name)


def _given(directory: Path) -> bytes:
    try:
        files = [path for path in sorted(directory.iterdir()) if path.is_file()]
        found = [path.read_bytes().strip() + b"\n" for path in files]
    except OSError:
        return b""
    return b"".join(each for each in found if b"-----BEGIN CERTIFICATE-----" in each)


def _system(environ: Mapping[str, str]) -> bytes:
    named = environ.get(FILES[0]) or ssl.get_default_verify_paths().cafile
    with contextlib.suppress(OSError):
        return Path(named).read_bytes().strip() + b"\n" if named else b""
    return b""
