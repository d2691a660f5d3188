"""Objects made from the tables of the conversion, for round trips: of all fields, in all states that a field can have."""

from __future__ import annotations

from typing import Any

from hypothesis import strategies as st

from remuda.capi.conversion.go_structs import (
    BOOL,
    COLLECTION,
    DURATION,
    INT,
    KEPT_COLLECTION,
    POINTER,
    STRING,
    TIME,
    Field,
    StructFields,
    many,
    mapping,
)
from remuda.capi.conversion.kind_rules import KINDS

Obj = dict[str, Any]
Strategy = st.SearchStrategy[Any]

NAMESPACE = "ns"
_MANY, _MAPPING = many(StructFields({})).read, mapping(StructFields({})).read
_GROUPS = st.sampled_from(["infrastructure.example.com", "bootstrap.example.com"])
_KINDS = st.sampled_from(["Thing", "ThingTemplate"])
_TEXTS = {"version", "providerID", "failureDomain", "failureReason", "failureMessage", "dataSecretName", "deletePolicy"}
_TEXTS |= {"unhealthyRange"}
_FLAGS = {"paused", "enable", "enabled", "infrastructureProvisioned", "controlPlaneInitialized", "bootstrapDataSecretCreated"}
_FLAGS |= {"controlPlane"}
_TIMES = st.datetimes().map(lambda time: time.replace(microsecond=0).isoformat() + "Z").filter(lambda text: text[:4] != "0001")
_WHOLE_DURATIONS = st.sampled_from(["1s", "10s", "1m0s", "1h0m1s", "-2m3s", "596523h14m7s"])
# v1beta2 has no place for these.
_GONE = {"progressDeadlineSeconds", "revisionHistoryLimit", "definitionFrom"}


class Generated:
    """`full`: nothing is zero, empty or odd, so that a round trip changes nothing at all."""

    def __init__(self, full: bool) -> None:
        self._full = full
        self._words = st.sampled_from(["a", "b-c", "ü"] if full else ["", "a", "b-c", "ü"])
        self._numbers = st.sampled_from([1, -1, 2**31 - 1] if full else [0, 1, -1, 2**31 - 1])
        self._size = 1 if full else 0

    def obj(self, kind: str, version: str) -> Strategy:
        sections = self._struct(getattr(KINDS[kind], version), version)
        top = {"apiVersion": f"cluster.x-k8s.io/{version}", "kind": kind, "metadata": {"name": "o", "namespace": NAMESPACE}}
        return sections.map(lambda found: {**top, **found})

    def _struct(self, shape: StructFields, version: str) -> Strategy:
        if "fieldPath" in shape.fields or shape.fields.keys() == {"apiGroup", "kind", "name"}:
            return self._reference("fieldPath" in shape.fields)
        optional = {
            name: self._field(name, field, version)
            for name, field in shape.fields.items()
            if not (self._full and (name in _GONE or (name == "rolloutAfter" and "class" in shape.fields)))
        }
        found = st.fixed_dictionaries({}, optional=optional)
        return found.filter(bool) if self._full else found

    def _reference(self, old: bool) -> Strategy:
        if not old:
            return st.fixed_dictionaries({"apiGroup": _GROUPS, "kind": _KINDS, "name": self._words})
        version = "v1" if self._full else "v7"
        return st.fixed_dictionaries(
            {
                "apiVersion": _GROUPS.map(lambda group: f"{group}/{version}"),
                "kind": _KINDS,
                "name": self._words,
                "namespace": st.just(NAMESPACE if self._full else "other"),
            }
        )

    def _field(self, name: str, field: Field, version: str) -> Strategy:
        if name == "nodeRef" and version == "v1beta1" and self._full:
            return st.just({"apiVersion": "v1", "kind": "Node", "name": "n"})
        if field.shape is not None:
            return self._structs(field, field.shape, version)
        if field is STRING:
            return self._words
        if field is INT:
            return self._numbers
        if field is BOOL:
            return st.booleans()
        if field is TIME:
            return _TIMES
        if field is COLLECTION or field is KEPT_COLLECTION:
            lists = name in {"cidrBlocks", "targets", "values", "failureDomains"}
            if lists:
                return st.lists(self._words, min_size=self._size, max_size=2)
            return st.dictionaries(self._words, self._words, min_size=self._size, max_size=2)
        if field is DURATION or name.endswith("Timeout"):
            return _WHOLE_DURATIONS if self._full else st.sampled_from(["0s", "1.5s", "90m", "-1ms", "1h"])
        assert field is POINTER, name
        return self._scalar(name)

    def _scalar(self, name: str) -> Strategy:
        if name in _TEXTS:
            return self._words
        if name in _FLAGS:
            return st.booleans()
        if name in {"maxUnavailable", "maxSurge", "maxInFlight", "maxUnhealthy", "unhealthyLessThanOrEqualTo"}:
            return st.one_of(self._numbers, st.just("33%"))
        if name == "value":
            return st.sampled_from([True, False, 0, "", {"a": [None]}, []])
        return self._numbers

    def _structs(self, field: Field, shape: StructFields, version: str) -> Strategy:
        one = self._struct(shape, version)
        # The readers of lists and maps are closures of one function each.
        code = getattr(field.read, "__code__", None)
        if code is getattr(_MANY, "__code__", None):
            return st.lists(one, min_size=self._size, max_size=2)
        if code is getattr(_MAPPING, "__code__", None):
            return st.dictionaries(st.sampled_from(["", "x", "A", "b"]), one, min_size=self._size, max_size=3)
        return one
