"""TLS as all servers here speak it, whatever the Python below was built with.

Debian's own offers ciphers without forward secrecy, and takes a connection that somebody has cut for one that has ended.
"""

from __future__ import annotations

import ssl

_CIPHERS = "ECDHE+AESGCM:ECDHE+CHACHA20:ECDHE+AES:DHE+AES:!aNULL:!aDSS:!SHA1:!AESCCM"


def server_context() -> ssl.SSLContext:
    """TLS 1.2 and newer with forward secrecy; the certificate is to be loaded yet."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    context.set_ciphers(_CIPHERS)
    return context


def tell_cuts(context: ssl.SSLContext) -> None:
    """From now on, who reads is told when a connection ends without TLS's own end."""
    context.options &= ~ssl.OP_IGNORE_UNEXPECTED_EOF


def is_cut(error: ssl.SSLError) -> bool:
    """Whether that is what one is told; Pythons differ in how they say it."""
    return isinstance(error, ssl.SSLEOFError) or error.reason == "UNEXPECTED_EOF_WHILE_READING"
