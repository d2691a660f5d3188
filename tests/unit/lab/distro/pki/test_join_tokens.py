"""Tokens: what they say of whom to trust."""

from __future__ import annotations

import hashlib

import pytest

from remuda.kube.clock import Entropy, VirtualClock
from remuda.lab.distro.pki import join_tokens
from remuda.lab.distro.pki.authorities import CLIENT_CA, SERVER_CA, made
from remuda.lab.distro.pki.join_tokens import Token, TokenError, certificates_in, parse

CAS = made(VirtualClock(), Entropy(1), (SERVER_CA, CLIENT_CA))
CA, OTHER = CAS[f"tls/{SERVER_CA}.crt"], CAS[f"tls/{CLIENT_CA}.crt"]


def test_a_secure_token_says_which_ca_is_the_right_one() -> None:
    text = join_tokens.secure("secret", CA)
    assert text == f"K10{hashlib.sha256(CA).hexdigest()}::server:secret"
    token = parse(f" {text}\n")
    assert token == Token("secret", "server", hashlib.sha256(CA).hexdigest())
    token.check_ca(CA, "here")
    with pytest.raises(TokenError, match="https://x"):
        token.check_ca(OTHER, "https://x")


def test_of_a_chain_the_root_counts() -> None:
    assert join_tokens.hash_of(OTHER + CA) == hashlib.sha256(certificates_in(CA)[0]).hexdigest()


def test_a_password_alone_trusts_any_server() -> None:
    parse("secret").check_ca(OTHER, "anywhere")
    assert parse("secret") == Token("secret")
    assert parse("node:secret") == Token("secret", "node")
    assert parse("with:colon") == Token("with:colon")


@pytest.mark.parametrize(
    "text", ["", "K10abc::server:x", f"K10{'0' * 64}::server", f"K10{'0' * 64}::server:", f"K10{'x' * 64}::a:b"]
)
def test_a_token_that_was_cut_is_refused(text: str) -> None:
    with pytest.raises(TokenError):
        parse(text)


def test_a_token_is_not_shown() -> None:
    assert "secret" not in repr(parse("secret"))
