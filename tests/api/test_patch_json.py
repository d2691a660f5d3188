"""JSON patch: every operation, every way to point nowhere."""

from __future__ import annotations

import json
import re
from typing import Any

import pytest

from .builders import CMS, PODS, cm, pod
from .harness import JSON_PATCH, OURS, REAL, Pair
from .masks import masked

SIDES = (OURS, REAL)

GOOD: dict[str, list[dict[str, Any]]] = {
    "add": [{"op": "add", "path": "/data/z", "value": "3"}],
    "add-over": [{"op": "add", "path": "/data/x", "value": "9"}],
    "add-parent": [
        {"op": "add", "path": "/metadata/labels", "value": {}},
        {"op": "add", "path": "/metadata/labels/a", "value": "b"},
    ],
    "remove": [{"op": "remove", "path": "/data/x"}],
    "remove-all": [{"op": "remove", "path": "/data"}],
    "replace": [{"op": "replace", "path": "/data/x", "value": "2"}],
    "move": [{"op": "move", "from": "/data/x", "path": "/data/w"}],
    "copy": [{"op": "copy", "from": "/data/x", "path": "/data/w"}],
    "test-and-replace": [{"op": "test", "path": "/data/x", "value": "1"}, {"op": "replace", "path": "/data/x", "value": "2"}],
    "test-absent-null": [{"op": "test", "path": "/data/none", "value": None}],
    "escaped": [
        {"op": "add", "path": "/metadata/annotations", "value": {"example.com/a": "1", "b~c": "2"}},
        {"op": "replace", "path": "/metadata/annotations/example.com~1a", "value": "3"},
        {"op": "replace", "path": "/metadata/annotations/b~0c", "value": "4"},
    ],
    "append": [
        {"op": "add", "path": "/metadata/finalizers", "value": []},
        {"op": "add", "path": "/metadata/finalizers/-", "value": "example.com/f"},
    ],
    "insert": [
        {"op": "add", "path": "/metadata/finalizers", "value": ["example.com/b"]},
        {"op": "add", "path": "/metadata/finalizers/0", "value": "example.com/a"},
        {"op": "add", "path": "/metadata/finalizers/1", "value": "example.com/ab"},
    ],
    "negative-index": [
        {"op": "add", "path": "/metadata/finalizers", "value": ["example.com/a", "example.com/b"]},
        {"op": "remove", "path": "/metadata/finalizers/-1"},
    ],
    "empty": [],
    "null-value": [{"op": "add", "path": "/data/x", "value": None}],
    "no-value": [{"op": "add", "path": "/data/x"}],
    "whole": [{"op": "test", "path": "/metadata/name", "value": "a"}],
    "unknown-field": [{"op": "add", "path": "/nonsense", "value": 1}],
    "extra-keys": [{"op": "replace", "path": "/data/x", "value": "2", "comment": "why"}],
}


@pytest.mark.parametrize("patch", GOOD.values(), ids=GOOD)
def test_operations(pair: Pair, patch: list[dict[str, Any]]) -> None:
    pair.post(CMS, cm("a", x="1", y="2"))
    pair.patch(CMS + "/a", patch, JSON_PATCH)


BAD: dict[str, Any] = {
    "test-fails": [{"op": "test", "path": "/data/x", "value": "9"}],
    "test-nowhere": [{"op": "test", "path": "/data/none", "value": "1"}],
    "test-no-parent": [{"op": "test", "path": "/nowhere/none", "value": "1"}],
    "remove-nowhere": [{"op": "remove", "path": "/data/none"}],
    "remove-no-parent": [{"op": "remove", "path": "/nowhere/none"}],
    "replace-nowhere": [{"op": "replace", "path": "/data/none", "value": "1"}],
    "replace-no-parent": [{"op": "replace", "path": "/nowhere/none", "value": "1"}],
    "add-no-parent": [{"op": "add", "path": "/metadata/labels/a", "value": "b"}],
    "move-nowhere": [{"op": "move", "from": "/data/none", "path": "/data/w"}],
    "move-no-from": [{"op": "move", "path": "/data/w"}],
    "copy-nowhere": [{"op": "copy", "from": "/data/none", "path": "/data/w"}],
    "unknown-op": [{"op": "destroy", "path": "/data/x"}],
    "no-op": [{"path": "/data/x"}],
    "no-path": [{"op": "remove"}],
    "path-without-slash": [{"op": "remove", "path": "data/x"}],
    "bad-index": [
        {"op": "add", "path": "/metadata/finalizers", "value": []},
        {"op": "add", "path": "/metadata/finalizers/x", "value": "f"},
    ],
    "index-too-large": [
        {"op": "add", "path": "/metadata/finalizers", "value": []},
        {"op": "add", "path": "/metadata/finalizers/5", "value": "f"},
    ],
    "into-a-string": [{"op": "add", "path": "/data/x/y", "value": "1"}],
    "change-name": [{"op": "replace", "path": "/metadata/name", "value": "b"}],
    "change-namespace": [{"op": "replace", "path": "/metadata/namespace", "value": "b"}],
    "change-kind": [{"op": "replace", "path": "/kind", "value": "ServiceAccount"}],
    "change-version": [{"op": "replace", "path": "/apiVersion", "value": "v2"}],
    "change-uid": [{"op": "replace", "path": "/metadata/uid", "value": "x"}],
    "wrong-type": [{"op": "replace", "path": "/data", "value": "text"}],
    "wrong-type-inside": [{"op": "replace", "path": "/data/x", "value": 7}],
    "invalid-label": [{"op": "add", "path": "/metadata/labels", "value": {"bad key": "x"}}],
    "remove-metadata": [{"op": "remove", "path": "/metadata"}],
    "stale": [{"op": "replace", "path": "/metadata/resourceVersion", "value": "1"}],
    "an-object": {"op": "remove", "path": "/data/x"},
    "a-list-of-numbers": [1, 2],
    "a-string": "x",
    "path-is-a-number": [{"op": "remove", "path": 7}],
    "whole-document": [{"op": "replace", "path": "", "value": {}}],
    "remove-whole-document": [{"op": "remove", "path": ""}],
}


QUOTED = re.compile(r'(?<=Invalid value: )("\{.*\}"): ', re.S)


def same_document(body: Any) -> Any:
    """The message quotes the patched object; in it only the order of keys may differ."""

    def ordered(match: re.Match[str]) -> str:
        document = masked(json.loads(json.loads(match.group(1))))
        return json.dumps(document, sort_keys=True) + ": "

    if body.get("reason") == "Invalid" and body["details"].get("causes"):
        body["message"] = QUOTED.sub(ordered, body["message"])
        for cause in body["details"]["causes"]:
            cause["message"] = QUOTED.sub(ordered, cause["message"])
    return body


@pytest.mark.parametrize("patch", BAD.values(), ids=BAD)
def test_what_is_refused(pair: Pair, patch: Any) -> None:
    pair.post(CMS, cm("a", x="1", y="2"))
    pair.patch(CMS + "/a", patch, JSON_PATCH, ignore=same_document)


@pytest.mark.parametrize("body", [b"", b"{", b"null", b"[", b"[{}]", b"NaN"], ids=str)
def test_what_is_no_patch(pair: Pair, body: bytes) -> None:
    pair.post(CMS, cm("a", x="1"))
    pair.patch(CMS + "/a", body, JSON_PATCH)


def test_a_patch_of_nothing_is_not_found(pair: Pair) -> None:
    assert pair.patch(CMS + "/none", [], JSON_PATCH).status == 404


def test_a_patch_that_changes_nothing_is_not_written(pair: Pair) -> None:
    made = pair.post(CMS, cm("a", x="1"))
    again = pair.patch(CMS + "/a", [{"op": "replace", "path": "/data/x", "value": "1"}], JSON_PATCH)
    for side in SIDES:
        assert made[side].json["metadata"]["resourceVersion"] == again[side].json["metadata"]["resourceVersion"]


def test_a_dry_run(pair: Pair) -> None:
    pair.post(CMS, cm("a", x="1"))
    pair.patch(CMS + "/a?dryRun=All", [{"op": "replace", "path": "/data/x", "value": "2"}], JSON_PATCH)
    assert pair.get(CMS + "/a").json["data"] == {"x": "1"}


@pytest.mark.parametrize(
    "query", ["force=true", "force=false", "dryRun=x", "fieldManager=" + "x" * 200, "fieldValidation=x"], ids=lambda q: q[:16]
)
def test_bad_options(pair: Pair, query: str) -> None:
    pair.post(CMS, cm("a", x="1"))
    pair.patch(f"{CMS}/a?{query}", [], JSON_PATCH)


@pytest.mark.parametrize("level", ["Strict", "Warn", "Ignore"])
def test_unknown_fields(pair: Pair, level: str) -> None:
    pair.post(CMS, cm("a", x="1"))
    pair.patch(
        f"{CMS}/a?fieldValidation={level}", [{"op": "add", "path": "/nonsense", "value": 1}], JSON_PATCH, ignore=same_document
    )


def test_duplicate_keys(pair: Pair) -> None:
    pair.post(CMS, cm("a", x="1"))
    body = b'[{"op":"replace","path":"/data/x","path":"/data/x","value":"2"}]'
    for level in ("Strict", "Warn", "Ignore"):
        pair.patch(f"{CMS}/a?fieldValidation={level}", body, JSON_PATCH, ignore=same_document)


def test_items_of_a_list_of_objects(pair: Pair) -> None:
    pair.post(PODS, pod("p"))
    pair.patch(PODS + "/p", [{"op": "replace", "path": "/spec/containers/0/image", "value": "example.com/c:2"}], JSON_PATCH)


def test_status_by_itself(pair: Pair) -> None:
    pair.post(PODS, pod("p"))
    pair.patch(PODS + "/p/status", [{"op": "replace", "path": "/status/phase", "value": "Running"}], JSON_PATCH)


def test_very_many_operations(pair: Pair) -> None:
    pair.post(CMS, cm("a", x="1"))
    patch = [{"op": "replace", "path": "/data/x", "value": str(index)} for index in range(10_001)]
    assert pair.patch(CMS + "/a", patch, JSON_PATCH).status == 413
