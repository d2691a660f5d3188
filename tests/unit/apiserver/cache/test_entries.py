"""Stored objects: bytes that begin alike, so that a revision is spliced in instead of being encoded."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from remuda.apiserver.cache.entries import Entry, Parsed, encode, ensure_canonical, prefix_of

Obj = dict[str, Any]
# As a kube-apiserver with JSON storage leaves them in etcd: a custom resource, and a built-in with its newline.
FOREIGN_CUSTOM = (
    b'{"apiVersion":"example.com/v1","kind":"Widget","metadata":{"name":"w","namespace":"n","uid":"u"},"spec":{"a":1}}\n'
)
FOREIGN_BUILTIN = b'{"kind":"ConfigMap","apiVersion":"v1","metadata":{"name":"c","uid":"u"},"data":{"metadata":"{"}}\n'

METADATA = st.dictionaries(st.sampled_from(["name", "labels", "uid", "resourceVersion"]), st.text(max_size=5))
REST = st.dictionaries(st.sampled_from(["spec", "status", "data"]), st.dictionaries(st.text(), st.text(), max_size=2))


@given(st.text(max_size=8), METADATA, REST, st.integers(0, 1 << 62))
def test_a_spliced_body_is_the_object_at_its_revision(kind: str, metadata: Obj, rest: Obj, revision: int) -> None:
    obj = {**rest, "metadata": metadata, "kind": kind, "apiVersion": "g/v1"}
    body = Entry("k", "", "n", revision, encode(obj)).body(prefix_of("g/v2", kind))
    expected = {key: value for key, value in metadata.items() if key != "resourceVersion"}
    if revision:
        expected["resourceVersion"] = str(revision)
    assert json.loads(body) == {**rest, "kind": kind, "apiVersion": "g/v2", "metadata": expected}


@given(st.text(max_size=8), METADATA, REST)
def test_what_is_encoded_here_is_canonical(kind: str, metadata: Obj, rest: Obj) -> None:
    stored = encode({**rest, "metadata": metadata, "kind": kind, "apiVersion": "g/v1"})
    assert ensure_canonical(stored) == stored


@pytest.mark.parametrize(
    "value", [FOREIGN_CUSTOM, FOREIGN_BUILTIN, b'{"kind":"X","apiVersion":"v1","spec":{"metadata":{}},"metadata":{"name":"x"}}']
)
def test_what_a_real_kube_apiserver_wrote_is_taken_over(value: bytes) -> None:
    stored = ensure_canonical(value)
    assert json.loads(stored) == json.loads(value)
    assert b"\n" not in stored
    obj = json.loads(value)
    spliced = json.loads(Entry("k", "", "n", 7, stored).body(prefix_of(obj["apiVersion"], obj["kind"])))
    assert spliced == {**obj, "metadata": {**obj["metadata"], "resourceVersion": "7"}}


def test_a_deletion_shows_the_last_state_under_its_own_revision() -> None:
    entry = Entry("k", "", "n", 5, encode({"kind": "X", "apiVersion": "v1", "metadata": {"name": "n"}}))
    entry.object()
    twin = entry.at(9)
    assert twin.object()["metadata"]["resourceVersion"] == "9"
    assert entry.object()["metadata"]["resourceVersion"] == "5"


class Home:
    def __init__(self, limit: int) -> None:
        self.keep_parsed = False
        self.parsed = Parsed(limit)


def made(home: Home, number: int) -> Entry:
    entry = Entry(str(number), "", str(number), 1, encode({"kind": "X", "apiVersion": "v1", "metadata": {"name": str(number)}}))
    entry.home = home
    return entry


def test_only_so_many_bytes_stay_parsed_the_newest_ones() -> None:
    home = Home(limit=300)
    entries = [made(home, number) for number in range(50)]
    for entry in entries:
        entry.object()
    kept = [entry for entry in entries if entry.parsed]
    assert kept == entries[-len(kept) :]
    assert 0 < sum(len(entry.stored) for entry in kept) <= 300


def test_kinds_that_are_followed_in_process_stay_parsed() -> None:
    home = Home(limit=300)
    home.keep_parsed = True
    entries = [made(home, number) for number in range(50)]
    for entry in entries:
        entry.object()
    assert all(entry.parsed for entry in entries)
