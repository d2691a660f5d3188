"""The strategy of CRDs themselves: what becomes of their status, and that odd input is an error, never a crash."""

from __future__ import annotations

from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from remuda.apiserver.crd.definition_strategy import DEFINITION as STRATEGY
from remuda.kube.encoding.jsonio import copy

from .definitions import crd, established, version

Obj = dict[str, Any]


def test_a_new_definition_starts_with_what_it_stores() -> None:
    made = crd(status={"storedVersions": ["v0"], "acceptedNames": {"kind": "Other"}})
    STRATEGY.prepare_for_create(made)
    assert made["status"] == {"conditions": None, "acceptedNames": {"plural": "", "kind": ""}, "storedVersions": ["v1"]}


def test_a_new_storage_version_is_stored_from_now_on() -> None:
    old = established(crd())
    new = crd(versions=[version({"type": "object"}, storage=False), version({"type": "object"}, name="v2")], status={})
    STRATEGY.prepare_for_update(new, old)
    assert new["status"] == {"storedVersions": ["v1", "v2"], "conditions": [{"type": "Established", "status": "True"}]}
    assert old["status"]["storedVersions"] == ["v1"]


def test_a_status_update_leaves_the_spec_alone() -> None:
    old, new = crd(), crd(scope="Cluster", status={"acceptedNames": {"plural": "Foos"}})
    STRATEGY.prepare_for_status_update(new, old)
    assert new["spec"] == old["spec"]
    (error,) = STRATEGY.validate_status_update(new, old)
    assert error.field == "status.acceptedNames.plural"


_EXTENSIONS = ("list-type", "list-map-keys", "map-type", "embedded-resource", "int-or-string", "preserve-unknown-fields")
_KEYWORDS = st.sampled_from(
    [
        *[
            "type",
            "properties",
            "items",
            "additionalProperties",
            "default",
            "anyOf",
            "not",
            "required",
            "enum",
            "pattern",
            "nullable",
            "format",
            "maxLength",
        ],
        *(f"x-kubernetes-{name}" for name in _EXTENSIONS),
    ]
)


def _value(keyword: str, inner: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    if keyword in ("properties",):
        return st.dictionaries(st.sampled_from(["a", "spec", "metadata"]), inner, max_size=2)
    if keyword in ("anyOf",):
        return st.lists(inner, max_size=2)
    if keyword in ("items", "not"):
        return inner
    if keyword == "additionalProperties":
        return inner | st.booleans()
    if keyword in ("nullable",) or keyword.endswith(("resource", "string", "fields")):
        return st.booleans()
    if keyword in ("required", "x-kubernetes-list-map-keys"):
        return st.lists(st.sampled_from(["a", "b"]), max_size=2)
    if keyword in ("default",):
        return st.sampled_from([None, 1, "x", {}, {"a": 1}, [], [None], {"metadata": {"name": 1}}])
    if keyword == "enum":
        return st.lists(st.sampled_from([1, "a", None]), max_size=2)
    if keyword == "maxLength":
        return st.integers(0, 3)
    if keyword == "pattern":
        return st.text(alphabet="ab(*[?\\", max_size=4)
    return st.sampled_from(["object", "array", "string", "integer", "map", "set", "atomic", "zz", ""])


def _schema(inner: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    pairs = _KEYWORDS.flatmap(lambda keyword: st.tuples(st.just(keyword), _value(keyword, inner)))
    return st.lists(pairs, max_size=4).map(dict)


schemas = st.recursive(st.just({"type": "string"}), _schema, max_leaves=10)


@settings(max_examples=300, deadline=None)
@given(schemas, schemas)
def test_any_schema_is_checked_without_a_crash(first: Obj, second: Obj) -> None:
    one = crd(versions=[version({"type": "object", "properties": {"spec": first}})])
    other = crd(versions=[version(first), version(second, name="v2", storage=False)])
    before = copy(one)
    for error in STRATEGY.validate(one) + STRATEGY.validate(other) + STRATEGY.validate_update(other, one):
        assert str(error)
    STRATEGY.warnings(other, one)
    assert one == before
