"""Which form an answer has, and which a body had."""

from __future__ import annotations

import pytest

from remuda.apiserver.http.negotiation import JSON, PLAIN, PROTOBUF, YAML, input_type, negotiate
from remuda.kube.errors import ApiError

TABLE = "application/json;as=Table;v=v1;g=meta.k8s.io"
PARTIAL = "application/json;as=PartialObjectMetadata;v=v1;g=meta.k8s.io"


@pytest.mark.parametrize("accept", ["", "*/*", "application/json", "application/*", f"{PROTOBUF},application/json"])
def test_json_is_what_one_gets(accept: str) -> None:
    assert negotiate(accept, False) == PLAIN


def test_yaml_when_it_is_asked_for() -> None:
    assert negotiate("application/yaml", False).media_type == YAML


def test_kubectl_s_wish_for_a_table_with_json_as_its_fallback() -> None:
    found = negotiate(f"{TABLE},application/json;as=Table;v=v1beta1;g=meta.k8s.io,application/json", True)
    assert (found.media_type, found.as_, found.table_version) == (JSON, "Table", "v1")


def test_quality_decides_over_order() -> None:
    assert negotiate("application/json;q=0.5,application/yaml", False).media_type == YAML


def test_metadata_alone() -> None:
    assert negotiate(PARTIAL, False).as_ == "PartialObjectMetadata"


@pytest.mark.parametrize("accept", ["text/html", PROTOBUF, "application/json;as=Table;v=v9;g=meta.k8s.io"])
def test_what_there_is_not(accept: str) -> None:
    with pytest.raises(ApiError) as caught:
        negotiate(accept, False)
    assert caught.value.code == 406


@pytest.mark.parametrize(
    ("content_type", "builtin", "expected"),
    [
        ("", True, JSON),
        ("application/json; charset=utf-8", True, JSON),
        ("application/yaml", False, YAML),
        (PROTOBUF, True, PROTOBUF),
    ],
)
def test_bodies(content_type: str, builtin: bool, expected: str) -> None:
    assert input_type(content_type, builtin) == expected


@pytest.mark.parametrize(("content_type", "builtin"), [("text/plain", True), (PROTOBUF, False)])
def test_bodies_that_are_not_taken(content_type: str, builtin: bool) -> None:
    with pytest.raises(ApiError) as caught:
        input_type(content_type, builtin)
    assert caught.value.code == 415
