"""TLS as all servers here use it, independent of the Python build.

Debian's Python offers ciphers without forward secrecy, and takes a connection that was cut for one that has ended.
"""

from __future__ import annotations

import ssl

_CIPHERS = "ECDHE+AESGCM:ECDHE+CHACHA20:ECDHE+AES:DHE+AES:!aNULL:!aDSS:!SHA1:!AESCCM"


def server_context() -> ssl.SSLContext:
    """TLS 1.2 and newer with forward secrecy; the caller loads the certificate."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    context.set_ciphers(_CIPHERS)
    return context


def tell_cuts(context: ssl.SSLContext) -> None:
    """Report an error to readers when a connection ends without TLS's own end."""
    context.options &= ~ssl.OP_IGNORE_UNEXPECTED_EOF


def is_cut(error: ssl.SSLError) -> bool:
    """True if the error means that the connection was cut; Python versions report it differently."""
    return isinstance(error, ssl.SSLEOFError) or error.reason == "UNEXPECTED_EOF_WHILE_READING"
