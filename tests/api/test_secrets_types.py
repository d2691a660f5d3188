"""Secrets of every type with the keys they must have, immutability, and the rules of ConfigMaps."""

from __future__ import annotations

import base64
import json
from typing import Any

import pytest

from .builders import CMS, SECRETS, cm
from .harness import JSON_PATCH, STRATEGIC, Pair


def b64(text: str) -> str:
    return base64.b64encode(text.encode()).decode()


def secret(name: str = "s", kind: str = "", **data: str) -> dict[str, Any]:
    body: dict[str, Any] = {"apiVersion": "v1", "kind": "Secret", "metadata": {"name": name}}
    if kind:
        body["type"] = kind
    if data:
        body["data"] = {key.replace("__", "."): b64(value) for key, value in data.items()}
    return body


DOCKER = json.dumps({"auths": {"example.com": {"auth": b64("u:p")}}})


@pytest.mark.parametrize(
    "body",
    [
        secret(),
        secret(kind="Opaque", a="b"),
        secret(kind="example.com/own", a="b"),
        secret(kind="kubernetes.io/basic-auth"),
        secret(kind="kubernetes.io/basic-auth", username="u"),
        secret(kind="kubernetes.io/basic-auth", password="p"),
        secret(kind="kubernetes.io/ssh-auth"),
        secret(kind="kubernetes.io/ssh-auth", **{"ssh-privatekey": "k"}),
        secret(kind="kubernetes.io/ssh-auth", **{"ssh-privatekey": ""}),
        secret(kind="kubernetes.io/tls"),
        secret(kind="kubernetes.io/tls", tls__crt="c"),
        secret(kind="kubernetes.io/tls", tls__crt="", tls__key=""),
        secret(kind="kubernetes.io/dockerconfigjson"),
        secret(kind="kubernetes.io/dockerconfigjson", __dockerconfigjson="nonsense"),
        secret(kind="kubernetes.io/dockerconfigjson", __dockerconfigjson=DOCKER),
        secret(kind="kubernetes.io/dockercfg", __dockercfg="{}"),
        secret(kind="kubernetes.io/dockercfg", __dockercfg="{"),
        secret(kind="kubernetes.io/dockercfg"),
        secret(kind="bootstrap.kubernetes.io/token", **{"token-id": "abcdef"}),
        secret(kind="helm.sh/release.v1", release="x"),
        secret(a="b", **{"bad key": "c"}),
        secret(**{"..": "c"}),
        secret(**{"x" * 254: "c"}),
        {**secret(), "stringData": {"a": "plain"}},
        {**secret(a="first"), "stringData": {"a": "second", "b": "third"}},
        {**secret(), "stringData": {"bad key": "x"}},
        {**secret(), "data": {"a": "not base64!"}},
        {**secret(), "data": {"a": None}},
        {**secret(), "data": {"a": ""}},
        {**secret(), "data": None, "immutable": False},
        {**secret(a="b"), "immutable": True},
    ],
    ids=lambda body: f"{body.get('type', '')} {sorted(body.get('data') or {})} {body.get('stringData', '')}"[:70],
)
def test_a_secret_is_checked(pair: Pair, body: dict[str, Any]) -> None:
    pair.post(SECRETS, body)


def test_a_secrets_type_can_not_change(pair: Pair) -> None:
    pair.post(SECRETS, secret(a="b"))
    assert pair.patch(SECRETS + "/s", {"type": "example.com/other"}).status == 422
    assert pair.put(SECRETS + "/s", secret(kind="kubernetes.io/tls", tls__crt="", tls__key="")).status == 422
    # Left out, it is kept.
    assert pair.put(SECRETS + "/s", secret(c="d")).status == 200


def test_a_required_key_can_not_be_removed(pair: Pair) -> None:
    pair.post(SECRETS, secret(kind="kubernetes.io/tls", tls__crt="c", tls__key="k"))
    assert pair.patch(SECRETS + "/s", {"data": {"tls.key": None}}).status == 422


def test_string_data_overwrites_on_patch(pair: Pair) -> None:
    pair.post(SECRETS, secret(a="b", c="d"))
    pair.patch(SECRETS + "/s", {"stringData": {"a": "new"}})
    pair.patch(SECRETS + "/s", {"stringData": {"e": "f"}}, STRATEGIC)
    pair.get(SECRETS + "/s")


def test_an_immutable_secret_stays(pair: Pair) -> None:
    pair.post(SECRETS, {**secret(a="b"), "immutable": True})
    assert pair.patch(SECRETS + "/s", {"data": {"a": b64("c")}}).status == 422
    assert pair.patch(SECRETS + "/s", {"stringData": {"z": "c"}}).status == 422
    assert pair.patch(SECRETS + "/s", {"immutable": False}).status == 422
    assert pair.patch(SECRETS + "/s", {"immutable": None, "data": None}).status == 422
    assert pair.patch(SECRETS + "/s", {"metadata": {"labels": {"ok": "yes"}}}).status == 200
    assert pair.delete(SECRETS + "/s").status == 200


def test_a_secret_can_become_immutable(pair: Pair) -> None:
    pair.post(SECRETS, secret(a="b"))
    assert pair.patch(SECRETS + "/s", {"immutable": True, "data": {"a": b64("z")}}).status == 200
    assert pair.patch(SECRETS + "/s", {"data": {"a": b64("y")}}).status == 422


def test_a_secret_of_more_than_a_mebibyte_is_refused(pair: Pair) -> None:
    assert pair.post(SECRETS, secret(a="x" * (1024 * 1024 + 1))).status == 422


def test_secrets_are_selected_by_type(pair: Pair) -> None:
    pair.post(SECRETS, secret("one", "example.com/one"))
    pair.post(SECRETS, secret("two"))
    assert len(pair.get(SECRETS + "?fieldSelector=type%3DOpaque").json["items"]) == 1
    assert len(pair.get(SECRETS + "?fieldSelector=type%21%3DOpaque").json["items"]) == 1


@pytest.mark.parametrize(
    "body",
    [
        {**cm("c"), "data": {"bad key": "x"}},
        {**cm("c"), "data": {"..x": "y", "ok.key_-1": "z"}},
        {**cm("c"), "data": {"a": "x"}, "binaryData": {"a": "eA=="}},
        {**cm("c"), "binaryData": {"b": "AAEC/w=="}},
        {**cm("c"), "data": {"": "x"}},
        {**cm("c"), "data": {"x" * 254: "y"}},
        {**cm("c"), "immutable": True, "data": {"a": "x"}},
    ],
    ids=lambda body: f"{str(body.get('data'))[:40]} {body.get('binaryData', '')}",
)
def test_a_config_map_is_checked(pair: Pair, body: dict[str, Any]) -> None:
    pair.post(CMS, body)


def test_an_immutable_config_map_stays(pair: Pair) -> None:
    pair.post(CMS, {**cm("c", a="b"), "immutable": True})
    assert pair.patch(CMS + "/c", {"data": {"a": "c"}}).status == 422
    assert pair.patch(CMS + "/c", {"binaryData": {"z": "eA=="}}).status == 422
    assert pair.patch(CMS + "/c", [{"op": "remove", "path": "/immutable"}], JSON_PATCH).status == 422
    assert pair.patch(CMS + "/c", {"metadata": {"annotations": {"a": "b"}}}).status == 200
