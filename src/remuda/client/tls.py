"""The client's side of TLS: the trusted CAs and the client certificate."""

from __future__ import annotations

import os
import ssl
import weakref
from collections.abc import Iterator
from contextlib import contextmanager

from .kubeconfig import ConfigError, KubeTarget


def client_context(target: KubeTarget, certificate: bytes = b"", key: bytes = b"") -> ssl.SSLContext:
    """A context for the target; `certificate` and `key` (PEM) take the place of the kubeconfig's own."""
    try:
        context = ssl.create_default_context(cadata=target.ca.decode("ascii") if target.ca else None)
    except (ssl.SSLError, UnicodeDecodeError):
        raise ConfigError(f"the certificate authority for {target.server} is not PEM") from None
    # Authorities made by older installers lack an extension that Python demands since 3.13, and Go does not.
    context.verify_flags &= ~ssl.VERIFY_X509_STRICT
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    context.set_alpn_protocols(["http/1.1"])
    if target.insecure:
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
    shown, secret = (certificate, key) if certificate else (target.client_certificate, target.client_key)
    if shown:
        _load_pair(context, shown, secret, target.server)
    return context


class ContextOnDemand:
    """The context of one target, made for the first connection and dropped with the last connection that uses it.

    One takes about 20 KB, which is much for each of a thousand idle clusters.
    """

    def __init__(self, target: KubeTarget, certificate: bytes = b"", key: bytes = b"") -> None:
        self._made_of = (target, certificate, key)
        self._used: weakref.ref[ssl.SSLContext] | None = None

    def __call__(self) -> ssl.SSLContext:
        """Raises ConfigError when there can't be one."""
        found = self._used() if self._used is not None else None
        if found is None:
            found = client_context(*self._made_of)
            self._used = weakref.ref(found)
        return found


def _load_pair(context: ssl.SSLContext, certificate: bytes, key: bytes, server: str) -> None:
    try:
        # OpenSSL needs file names; a file that exists only in memory never leaves the key on a disk.
        with _in_memory(certificate + b"\n" + key) as path:
            context.load_cert_chain(path)
    except ssl.SSLError as error:
        raise ConfigError(f"the client certificate and key for {server} can't be used: {error.reason or error}") from None


@contextmanager
def _in_memory(content: bytes) -> Iterator[str]:
    handle = os.memfd_create("client-certificate", os.MFD_CLOEXEC)
    try:
        with os.fdopen(handle, "wb", closefd=False) as file:
            file.write(content)
        yield f"/proc/self/fd/{handle}"
    finally:
        os.close(handle)
