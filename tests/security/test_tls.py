"""Old TLS and old ciphers are refused by every context that listens, by a client that would gladly take them."""

from __future__ import annotations

import ssl
import struct
from collections.abc import Callable
from pathlib import Path

import pytest

from remuda.apiserver.http.listener import server_context
from remuda.apiserver.keys.pki import Pki
from remuda.gateway.server import serving_certificate
from remuda.kube.clock import SYSTEM_CLOCK, Entropy, Rng
from remuda.runtime.webhook_server import WebhookServer

ALERT, PROTOCOL_VERSION, HANDSHAKE_FAILURE = 21, 70, 40
TLS_1_0, TLS_1_1, TLS_1_2 = 0x0301, 0x0302, 0x0303
# With forward secrecy and without, of the time of TLS 1.0; then 3DES, RC4, NULL and anonymous ones.
OLD = (0xC013, 0xC014, 0xC009, 0xC00A, 0x0033, 0x0039, 0x002F, 0x0035)
WEAK = (0x002F, 0x0035, 0x009C, 0x009D, 0x000A, 0xC012, 0x0005, 0xC011, 0x0002, 0x003B, 0x0034, 0xC018, 0x00A6)


def hello(version: int, ciphers: tuple[int, ...]) -> bytes:
    """The first words of a client that knows this version and these ciphers, and no others."""
    groups = struct.pack("!HHHHH", 10, 6, 4, 0x0017, 0x0018)
    signatures = struct.pack("!HHHHHHH", 13, 10, 8, 0x0403, 0x0401, 0x0203, 0x0201)
    extensions = groups + signatures
    body = struct.pack("!H", version) + bytes(32) + b"\0"
    body += struct.pack(f"!H{len(ciphers)}H", 2 * len(ciphers), *ciphers) + b"\1\0"
    body += struct.pack("!H", len(extensions)) + extensions
    handshake = b"\1" + len(body).to_bytes(3, "big") + body
    return struct.pack("!BHH", 22, min(version, TLS_1_0), len(handshake)) + handshake


def answer_to(context: ssl.SSLContext, said: bytes) -> tuple[int, int]:
    """The kind of the server's first record, and the last byte of an alert."""
    incoming, outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
    served = context.wrap_bio(incoming, outgoing, server_side=True)
    incoming.write(said)
    with pytest.raises(ssl.SSLError):
        served.do_handshake()
    told = outgoing.read()
    return told[0], told[6] if told[0] == ALERT else -1


def _listener(pki: Pki) -> ssl.SSLContext:
    return server_context(pki.serving_certificate, pki.serving_key, None)


def _given(pki: Pki) -> ssl.SSLContext:
    files = serving_certificate.Files(pki.serving_certificate, pki.serving_key)
    return serving_certificate.ServingCertificate(files, SYSTEM_CLOCK).context


def _webhooks(pki: Pki) -> ssl.SSLContext:
    context = WebhookServer((), None, None, SYSTEM_CLOCK, Rng(1))._context  # type: ignore[arg-type]
    context.load_cert_chain(pki.serving_certificate, pki.serving_key)
    return context


@pytest.fixture(scope="module")
def pki(tmp_path_factory: pytest.TempPathFactory) -> Pki:
    return Pki.ensure(tmp_path_factory.mktemp("served") / "pki", ("localhost",), SYSTEM_CLOCK, Entropy(1))


@pytest.mark.parametrize("made", [_listener, _given, _webhooks])
def test_a_listener_speaks_tls_1_2_and_newer_with_forward_secrecy(made: Callable[[Pki], ssl.SSLContext], pki: Pki) -> None:
    context = made(pki)
    for version in (TLS_1_0, TLS_1_1):
        assert answer_to(context, hello(version, OLD)) == (ALERT, PROTOCOL_VERSION)
    assert answer_to(context, hello(TLS_1_2, WEAK)) == (ALERT, HANDSHAKE_FAILURE)
    for cipher in context.get_ciphers():
        assert cipher["protocol"] == "TLSv1.3" or cipher["kea"] in ("kx-ecdhe", "kx-dhe"), cipher["name"]
        assert cipher["strength_bits"] >= 128 and "NULL" not in cipher["name"]
    # The same words with a cipher that is good: it is the cipher that was refused, not the words.
    incoming, outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
    served = context.wrap_bio(incoming, outgoing, server_side=True)
    incoming.write(hello(TLS_1_2, (0xC02B, 0xC02F)))
    with pytest.raises(ssl.SSLWantReadError):
        served.do_handshake()


def test_who_shows_no_certificate_of_ours_is_not_cut_off_but_unknown(pki: Pki) -> None:
    """Certificates of clients are optional, and those of others end the handshake."""
    context = server_context(pki.serving_certificate, pki.serving_key, pki.ca_certificate)
    assert context.verify_mode is ssl.CERT_OPTIONAL
    assert [Path(pki.ca_certificate).exists(), len(context.get_ca_certs())] == [True, 1]
