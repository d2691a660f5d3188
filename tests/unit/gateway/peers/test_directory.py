"""What servers tell each other about themselves can't be made, changed or repeated by anyone without their keys."""

from __future__ import annotations

import base64

import msgspec
import pytest

from remuda.apiserver.keys.encryption import Envelope
from remuda.gateway.peers.directory import Introduction, NotSealed, is_token, opened, sealed, token
from remuda.gateway.peers.peering import opened_all
from remuda.kube.clock import Entropy

ENVELOPE = Envelope([("key1", b"k" * 32)], Entropy(1))
INTRODUCTION = Introduction(
    host="a", address="10.0.0.1:6443", certificate="ab" * 32, secret="s" * 43, since=1.0, sees={"b": "connection refused"}
)


def test_a_sealed_introduction_opens_with_the_shared_keys() -> None:
    text = sealed(ENVELOPE, "id-a", INTRODUCTION)
    assert opened(ENVELOPE, "id-a", text) == INTRODUCTION
    assert INTRODUCTION.secret not in text and INTRODUCTION.secret not in repr(INTRODUCTION)
    rotated = Envelope([("key2", b"n" * 32), ("key1", b"k" * 32)], Entropy(2))
    assert opened(rotated, "id-a", text) == INTRODUCTION


def _plain(introduction: Introduction) -> str:
    return base64.b64encode(msgspec.json.encode(introduction)).decode()


@pytest.mark.parametrize(
    ("name", "text", "why"),
    [
        ("id-a", _plain(INTRODUCTION), "not sealed"),
        ("id-a", sealed(Envelope([("key1", b"x" * 32)], Entropy(1)), "id-a", INTRODUCTION), "does not open"),
        ("id-a", sealed(Envelope([("key9", b"k" * 32)], Entropy(1)), "id-a", INTRODUCTION), "not in the keys file"),
        # Another server's text under its own id, and the other way round.
        ("id-b", sealed(ENVELOPE, "id-a", INTRODUCTION), "does not open"),
        ("id-a", "%%%", "can't be read"),
        ("id-a", "", "not sealed"),
        ("../x", sealed(ENVELOPE, "../x", INTRODUCTION), "not the introduction"),
        ("id-a", sealed(ENVELOPE, "id-a", msgspec.structs.replace(INTRODUCTION, certificate="ab")), "no certificate"),
    ],
)
def test_anything_else_is_refused(name: str, text: str, why: str) -> None:
    with pytest.raises(NotSealed, match=why):
        opened(ENVELOPE, name, text)


def test_a_token_is_valid_from_one_server_to_another_only() -> None:
    secret = INTRODUCTION.secret
    shown = token(secret, "id-b", "id-a")
    assert is_token(shown, secret, "id-b", "id-a")
    assert not is_token(shown, secret, "id-c", "id-a")
    assert not is_token(shown, secret, "id-b", "id-c")
    assert not is_token(shown, "another", "id-b", "id-a")
    assert not is_token(secret, secret, "id-b", "id-a")
    assert not is_token("", secret, "id-b", "id-a")
    assert not is_token("é", secret, "id-b", "id-a")
    assert not is_token(token(secret, "id b", "id-a"), secret, "id b", "id-a")


def test_of_two_starts_of_one_server_the_later_one_counts_and_a_bad_text_is_reported_once(
    caplog: pytest.LogCaptureFixture,
) -> None:
    later = msgspec.structs.replace(INTRODUCTION, since=2.0)
    other = msgspec.structs.replace(INTRODUCTION, address="10.0.0.2:6443")
    texts = {
        "old": sealed(ENVELOPE, "old", INTRODUCTION),
        "new": sealed(ENVELOPE, "new", later),
        "other": sealed(ENVELOPE, "other", other),
        "forged": _plain(other),
    }
    complained: dict[str, str] = {}
    assert opened_all(ENVELOPE, texts, complained) == {"new": later, "other": other}
    opened_all(ENVELOPE, texts, complained)
    assert caplog.text.count("is ignored") == 1
    del texts["forged"]
    opened_all(ENVELOPE, texts, complained)
    assert complained == {}
