"""Kubernetes' aesgcm envelope, against a value that Kubernetes' own transformer wrote."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from remuda.apiserver.keys.encryption import (
    BadConfiguration,
    Envelope,
    NotOurs,
    Tampered,
    UnknownKey,
    load_or_create,
    parse_keys,
    render_keys,
)
from remuda.kube.clock import Entropy
from remuda.kube.encoding import yamlio

KEY = "/registry/secrets/default/a"
FIRST = bytes(range(32))
SECOND = bytes(range(100, 132))

# Written by k8s.io/apiserver v0.36.3: NewGCMTransformer behind NewPrefixTransformers, key1 = FIRST, KEY as its context.
UPSTREAM = bytes.fromhex(
    "6b38733a656e633a61657367636d3a76313a6b6579313a715ac1f0d5221058f23375424de8bd6d774842e75aee4500"
    "ca594558248490755220838997da0a86f6a19b2315"
)


def envelope(*keys: tuple[str, bytes]) -> Envelope:
    return Envelope(keys or [("key1", FIRST)], Entropy(1))


def test_what_kubernetes_sealed_opens() -> None:
    assert envelope().open(KEY, UPSTREAM) == (b'{"kind":"Secret"}', False)


def test_what_we_seal_looks_like_what_kubernetes_seals() -> None:
    sealed = envelope().seal(KEY, b'{"kind":"Secret"}')
    assert sealed.startswith(b"k8s:enc:aesgcm:v1:key1:") and len(sealed) == len(UPSTREAM)


@given(st.binary(max_size=200), st.text(min_size=1).filter(str.isprintable))
def test_sealed_values_open_again(plain: bytes, key: str) -> None:
    both = envelope()
    assert both.open(key, both.seal(key, plain)) == (plain, False)


def test_no_nonce_is_used_twice() -> None:
    sealer = Envelope([("key1", FIRST)], Entropy())
    assert len({sealer.seal(KEY, b"same") for _ in range(100)}) == 100


def test_after_a_rotation_old_values_open_and_are_stale() -> None:
    old, new = envelope(("key1", FIRST)), envelope(("key2", SECOND), ("key1", FIRST))
    assert new.open(KEY, old.seal(KEY, b"x")) == (b"x", True)
    assert new.open(KEY, new.seal(KEY, b"x")) == (b"x", False)
    assert new.open(KEY, b'{"plain":"json"}') == (b'{"plain":"json"}', True)


def test_what_can_not_be_opened_says_why() -> None:
    sealed = envelope().seal(KEY, b"x")
    with pytest.raises(UnknownKey, match="key 'key1', which is not in the keys file"):
        envelope(("other", FIRST)).open(KEY, sealed)
    with pytest.raises(Tampered, match="does not open"):
        envelope(("key1", SECOND)).open(KEY, sealed)
    with pytest.raises(Tampered, match="stored under another key"):
        envelope().open(KEY + "b", sealed)
    with pytest.raises(Tampered):
        envelope().open(KEY, sealed[:-1] + bytes([sealed[-1] ^ 1]))
    with pytest.raises(Tampered, match="too short"):
        envelope().open(KEY, sealed[:30])
    with pytest.raises(UnknownKey):
        envelope().open(KEY, b"k8s:enc:aesgcm:v1:key1")
    with pytest.raises(NotOurs, match="encrypted with secretbox"):
        envelope().open(KEY, b"k8s:enc:secretbox:v1:key1:abc")


@pytest.mark.parametrize("keys", [[], [("", FIRST)], [("a:b", FIRST)], [("a", FIRST), ("a", SECOND)], [("a", b"short")]])
def test_keys_that_can_not_be_used_are_refused(keys: list[tuple[str, bytes]]) -> None:
    with pytest.raises(BadConfiguration):
        Envelope(keys, Entropy(1))


def test_a_keys_file_is_made_once_for_its_owner_only(tmp_path: Path) -> None:
    path = tmp_path / "encryption.yaml"
    sealed = load_or_create(path, Entropy()).seal(KEY, b"x")
    assert path.stat().st_mode & 0o777 == 0o600
    assert [file.name for file in tmp_path.iterdir()] == ["encryption.yaml"]
    assert load_or_create(path, Entropy()).open(KEY, sealed) == (b"x", False)
    path.chmod(0o644)
    with pytest.raises(BadConfiguration, match="chmod 600"):
        load_or_create(path, Entropy())


def test_the_keys_file_is_an_encryption_configuration() -> None:
    text = render_keys([("key2", SECOND), ("key1", FIRST)], ["secrets", "configmaps"])
    document = yamlio.loads(text)
    assert document["apiVersion"] == "apiserver.config.k8s.io/v1" and document["kind"] == "EncryptionConfiguration"
    [resource] = document["resources"]
    assert resource["resources"] == ["secrets", "configmaps"]
    assert [list(provider) for provider in resource["providers"]] == [["aesgcm"], ["identity"]]
    assert parse_keys(text) == [("key2", SECOND), ("key1", FIRST)]


HEAD = "apiVersion: apiserver.config.k8s.io/v1\nkind: EncryptionConfiguration\nresources:\n- resources: [secrets]\n  providers:\n"


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("{", "is not YAML"),
        ("", "is not an EncryptionConfiguration"),
        ("kind: Secret", "is not an EncryptionConfiguration"),
        ("apiVersion: v1\nkind: EncryptionConfiguration", "it must be apiserver.config.k8s.io/v1"),
        ("apiVersion: apiserver.config.k8s.io/v1\nkind: EncryptionConfiguration", "resources must be a list"),
        (HEAD + "  - identity: {}", "no aesgcm keys"),
        (HEAD + "  - aescbc: {keys: []}", "only aesgcm and identity"),
        (HEAD + "  - aesgcm: {keys: [{name: a}]}", "a name and a secret"),
        (HEAD + "  - aesgcm: {keys: [{name: a, secret: '!'}]}", "is not base64"),
        (HEAD + "  - aesgcm: {keys: [{name: a, secret: AA==}, {name: a, secret: AQ==}]}", "two different keys"),
    ],
)
def test_a_keys_file_that_can_not_be_used_says_why(text: str, says: str) -> None:
    with pytest.raises(BadConfiguration, match=says) as caught:
        parse_keys(text, "keys.yaml")
    assert "keys.yaml" in str(caught.value)
