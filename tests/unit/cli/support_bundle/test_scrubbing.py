"""What is hidden of a text, by its form and because it is known; and what stays, so that a bundle is of use."""

from __future__ import annotations

import base64
import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from remuda.cli.support_bundle import scrubbing
from remuda.cli.support_bundle.scrubbing import SHORTEST, Scrubber

HARMLESS = [
    line
    for line in (Path(__file__).parents[2] / "kube" / "harmless_lines.txt").read_text(encoding="utf-8").splitlines()
    if line and not line.startswith("# ")
]
KEY = "-----BEGIN EC PRIVATE KEY-----\nMHcCAQEEIBl0dGxlU2VjcmV0Tm9ib2R5S25vd3M5\n-----END EC PRIVATE KEY-----"
PLAN = {
    "files": [{"path": "/etc/x", "content": base64.b64encode(b"token: deep-inside-1\nserver: https://a.example").decode()}],
    "instructions": [{"env": ["PASSWORD=of-the-environment"], "args": ["--listen"]}],
}


def encoded(text: str) -> str:
    return base64.b64encode(text.encode()).decode()


@pytest.fixture
def scrubber() -> Scrubber:
    made = Scrubber()
    made.learn_data(
        {
            "password": encoded("plain-old-word"),
            "phrase": encoded("correct horse battery staple"),
            "tls.key": encoded(KEY),
            "plan": encoded(json.dumps(PLAN)),
            "settings.json": encoded(json.dumps({"region": "eu-north-1", "password": "of-many-lines"}, indent=2)),
            "odd": encoded("{curly-and-odd"),
            "namespace": encoded("remuda-system"),
            "ca.crt": encoded("-----BEGIN CERTIFICATE-----\nMIIBpublicpublicpublicpublic12\n-----END CERTIFICATE-----"),
        }
    )
    return made


@pytest.mark.parametrize(
    ("text", "secret"),
    [
        ("it said plain-old-word.", "plain-old-word"),
        ("https://user:plain-old-word@host/x", "plain-old-word"),
        (f"data: {encoded('plain-old-word')}", encoded("plain-old-word")),
        ('{"p": "plain-old-word"}', "plain-old-word"),
        ("with correct horse battery staple in it", "battery"),
        ("a line of the key MHcCAQEEIBl0dGxlU2VjcmV0Tm9ib2R5S25vd3M5", "MHcCAQEE"),
        ("joined with deep-inside-1", "deep-inside-1"),
        ("env of-the-environment", "of-the-environment"),
        ("of a document: of-many-lines", "of-many-lines"),
        ("no document: {curly-and-odd", "curly-and-odd"),
        ("password=whatever-it-is", "whatever-it-is"),
        ('"secretKey": "abcdef"', "abcdef"),
        ("remuda serve --token abcdefgh12345678 --listen :1", "abcdefgh12345678"),
        ("Authorization: Bearer abcdef", "abcdef"),
        ("its password xkcd9361passes (also in a file)", "xkcd9361passes"),
    ],
)
def test_a_secret_is_hidden(scrubber: Scrubber, text: str, secret: str) -> None:
    assert secret not in scrubber.text(text)


@pytest.mark.parametrize(
    "text",
    [
        "the namespace remuda-system of https://a.example:8443/v3 was made",
        "--token-file /etc/remuda/token --listen 0.0.0.0:443",
        "in the region eu-north-1",
        "reconciled fleet-default/demo in 12 ms: Ready=True, waiting for etcd",
        "MIIBpublicpublicpublicpublic12",
    ],
)
def test_what_helps_stays(scrubber: Scrubber, text: str) -> None:
    assert scrubber.text(text) == text


def test_an_unknown_key_is_hidden_over_many_lines() -> None:
    log = ["before", *KEY.splitlines(), "after"]
    assert list(Scrubber().lines(log)) == ["before", "[hidden]", "after"]


def test_public_names_are_forgotten() -> None:
    scrubber = Scrubber()
    scrubber.learn("fleet-default")
    scrubber.forget(["fleet-default"])
    assert scrubber.text("in fleet-default") == "in fleet-default"


def test_more_phrases_than_can_be_looked_for_are_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(scrubbing, "_MOST_PHRASES", 1)
    scrubber = Scrubber()
    scrubber.learn_data({"last-apply-time": encoded("Mon Nov 16 13:50:10 UTC 2026"), "a": encoded("one of them")})
    assert not scrubber.overflowed and scrubber.text("it is one of them") == "it is [hidden]"
    scrubber.learn("one too many")
    assert scrubber.overflowed


WORDS = st.text(alphabet="abcXYZ0189-_.+~!$%^*", min_size=SHORTEST, max_size=40)


@given(WORDS, st.sampled_from(["{}", "a {} b", "k={}", '"{}"', "x:{}@y", "/p/{}/q", "({})", "a,{},b"]))
def test_any_word_that_is_known_is_hidden_wherever_it_stands(word: str, around: str) -> None:
    scrubber = Scrubber()
    scrubber.learn_data({"anything": encoded(word)})
    assert word not in scrubber.text(around.format(word))


def test_lines_of_programs_stay_as_they_are() -> None:
    """The same lines as for the rules that this adds to."""
    assert len(HARMLESS) > 300
    changed = [(line, found) for line in HARMLESS if (found := Scrubber().text(line)) != line]
    assert changed == []


@pytest.mark.parametrize(
    ("text", "secret"),
    [
        ("token: waiting", "waiting"),
        ("password: correcthorse was refused", "correcthorse"),
        ('"token": "abcdef" and more', "abcdef"),
        ("--registry-password secretword --other", "secretword"),
        ("token: Abc1defg was refused", "Abc1defg"),
    ],
)
def test_what_may_be_a_secret_is_hidden_in_a_sentence_too(text: str, secret: str) -> None:
    assert secret not in Scrubber().text(text)
