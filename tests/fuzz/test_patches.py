"""Patches of all four kinds on objects of any shape: a result or an ApiError that is the sender's, and the object untouched."""

from __future__ import annotations

import copy
from typing import Any

from hypothesis import example, given
from hypothesis import strategies as st

from remuda.apiserver.apply.strategic_merge import apply_strategic_patch
from remuda.apiserver.scheme import builtin_types
from remuda.kube.encoding import jsonpatch, mergepatch
from remuda.kube.errors import ApiError
from tests.unit.apiserver.apply.schemas import managed_fields_problem, widget, widgets

from .budget import fuzzing
from .shapes import objects, shaped, texts, values

FUZZ = fuzzing(150)
Obj = dict[str, Any]


def refused(error: ApiError) -> None:
    assert 400 <= error.code < 500 or (error.code == 500 and error.reason == ""), error
    assert error.message


def filled(value: Any) -> Any:
    """Without what is empty: nothing is the same as a null to whoever reads the object."""
    if isinstance(value, dict):
        return {name: each for name, each in ((name, filled(each)) for name, each in value.items()) if each not in (None, {}, [])}
    return [filled(each) for each in value] if isinstance(value, list) else value


# --- JSON patch -------------------------------------------------------------------------------------------------------

small = shaped(st.sampled_from(["a", "b", "~", "/", "", "0", "-"]), leaves=8)
documents = st.dictionaries(st.sampled_from(["a", "b", "~", "/", "0"]), small, max_size=4)
parts = st.one_of(
    st.sampled_from(["a", "b", "~0", "~1", "~", "~2", "", "0", "1", "-", "-1", "+1", "01", "1_0", "٣", "9" * 5000]), texts
)
pointers = st.one_of(st.lists(parts, max_size=4).map(lambda found: "".join(f"/{part}" for part in found)), texts)
operations = st.fixed_dictionaries(
    {"op": st.one_of(st.sampled_from(["add", "remove", "replace", "move", "copy", "test"]), values), "path": pointers},
    optional={"value": small, "from": pointers, "more": values},
)


@FUZZ
@given(documents, st.one_of(st.lists(operations, max_size=6), values), st.booleans())
@example({"a": [1]}, [{"op": "replace", "path": "/a/" + "9" * 5000, "value": 1}], False)
@example({"a": {}}, [{"op": "copy", "from": "/a", "path": "/a/b"}] * 40, False)
def test_json_patch(document: Obj, patch: Any, lenient: bool) -> None:
    before = copy.deepcopy(document)
    try:
        jsonpatch.apply_patch(document, patch, lenient)
    except ApiError as error:
        refused(error)
    assert document == before


@FUZZ
@given(documents, documents)
def test_json_diff_leads_from_one_to_the_other(old: Obj, new: Obj) -> None:
    assert mergepatch.same_json(jsonpatch.apply(old, jsonpatch.diff(old, new)), new)


# --- merge patch ------------------------------------------------------------------------------------------------------


@FUZZ
@given(objects, values)
def test_merge_patch(document: Obj, patch: Any) -> None:
    before = copy.deepcopy(document)
    try:
        once = mergepatch.apply_merge_patch(document, patch)
    except ApiError as error:
        refused(error)
    else:
        assert mergepatch.same_json(mergepatch.apply_merge_patch(once, patch), once), "a merge patch twice is the same as once"
    assert document == before


# --- strategic merge patch --------------------------------------------------------------------------------------------

_KINDS = {
    "Deployment": "io.k8s.api.apps.v1.Deployment",
    "Service": "io.k8s.api.core.v1.Service",
    "Node": "io.k8s.api.core.v1.Node",
}
_POD: Obj = {
    "containers": [{"name": "a", "ports": [{"containerPort": 80, "protocol": "TCP"}], "env": [{"name": "E", "value": "1"}]}],
    "volumes": [{"name": "v", "emptyDir": {}}],
    "tolerations": [{"key": "k"}],
    "imagePullSecrets": [{"name": "s"}],
}
_LIVE: dict[str, Obj] = {
    "Deployment": {
        "metadata": {"name": "x", "finalizers": ["a/b", "c/d"], "labels": {"a": "b"}},
        "spec": {"strategy": {"type": "RollingUpdate", "rollingUpdate": {}}, "template": {"spec": _POD}},
    },
    "Service": {"metadata": {"name": "x"}, "spec": {"ports": [{"port": 80, "name": "a"}], "selector": {"a": "b"}}},
    "Node": {"metadata": {"name": "x"}, "spec": {"taints": [{"key": "a", "effect": "NoExecute"}], "podCIDRs": ["10.0.0.0/8"]}},
}
members = st.sampled_from(
    [
        "metadata", "spec", "template", "containers", "volumes", "ports", "env", "finalizers", "labels", "strategy",
        "selector", "name", "value", "containerPort", "protocol", "port", "taints", "key", "effect", "podCIDRs", "emptyDir",
        "rollingUpdate", "imagePullSecrets", "tolerations", "type", "$patch", "$retainKeys", "$setElementOrder/containers",
        "$setElementOrder/ports", "$setElementOrder/finalizers", "$setElementOrder/", "$deleteFromPrimitiveList/finalizers",
        "$deleteFromPrimitiveList/podCIDRs", "$deleteFromPrimitiveList/containers", "$setElementOrder/podCIDRs", "unknown", "",
    ]
)  # fmt: skip
leaves = st.one_of(
    st.sampled_from(["a", "b", "v", "x", "E", "replace", "merge", "delete", "a/b", "TCP", "10.0.0.0/8", 80, None, True, 1.5, []])
)
changes = st.recursive(
    leaves,
    lambda inner: st.one_of(st.lists(inner, max_size=3), st.dictionaries(members, inner, max_size=4)),
    max_leaves=12,
)


@FUZZ
@given(st.sampled_from(sorted(_KINDS)), st.one_of(st.dictionaries(members, changes, max_size=4), values), changes)
def test_strategic_merge_patch(kind: str, patch: Any, pod: Any) -> None:
    live = copy.deepcopy(_LIVE[kind])
    schema = {"$ref": f"#/components/schemas/{_KINDS[kind]}"}
    for sent in (patch, {"spec": patch}, {"spec": {"template": {"spec": pod}}}, {"metadata": pod}):
        if not isinstance(sent, dict):
            continue
        try:
            apply_strategic_patch(live, sent, schema, builtin_types.definition)
        except ApiError as error:
            refused(error)
        assert live == _LIVE[kind]


# --- server-side apply ------------------------------------------------------------------------------------------------

managers = st.sampled_from(["one", "two", "three"])
items = st.lists(
    st.fixed_dictionaries(
        {},
        optional={
            "name": st.one_of(st.sampled_from("ab"), values),
            "protocol": st.sampled_from(["TCP", "UDP", None, 3]),
            "value": st.one_of(st.integers(0, 3), values),
            "labels": st.dictionaries(st.sampled_from("xy"), st.sampled_from("12"), max_size=2),
        },
    ),
    max_size=3,
)
specs = st.fixed_dictionaries(
    {},
    optional={
        "replicas": st.one_of(st.integers(0, 3), values),
        "text": st.one_of(st.sampled_from("ab"), values),
        "size": st.one_of(st.just("5%"), st.integers(0, 9), values),
        "set": st.one_of(st.lists(st.sampled_from("abc"), max_size=3), values),
        "items": st.one_of(items, values),
        "plain": st.lists(texts, max_size=3),
        "selector": st.one_of(st.just({"name": "x"}), values),
        "free": objects,
    },
)
steps = st.tuples(st.sampled_from(["apply", "force", "update", "status"]), managers, st.one_of(specs, values))


@FUZZ
@given(st.lists(steps, max_size=6))
@example([("update", "one", {"set": ["a", "a"]}), ("apply", "two", {"set": ["a"]})])
def test_apply_and_update_in_any_order(order: list[tuple[str, str, Any]]) -> None:
    fields = widgets()
    live: Obj | None = None
    for verb, manager, spec in order:
        config = {**widget(), "spec": spec}
        before = copy.deepcopy(live)
        try:
            if verb in ("apply", "force"):
                made = fields.on_apply(live, config, manager, verb == "force")
                again = fields.on_apply(made, config, manager, verb == "force")
                assert filled({"spec": again.get("spec")}) == filled({"spec": made.get("spec")}), (
                    "to apply the same again changes nothing"
                )
            elif live is None:
                made = fields.on_create(config, manager)
            else:
                given_ = {**config, "metadata": live["metadata"]}
                made = fields.on_update(live, given_, manager, "status" if verb == "status" else "")
        except ApiError as error:
            refused(error)
        else:
            assert managed_fields_problem(made) == ""
            live = made
            continue
        assert live == before


@FUZZ
@given(st.one_of(values, st.lists(objects, max_size=3)), objects, specs)
def test_managed_fields_written_by_a_client(entries: Any, fields_v1: Any, spec: Any) -> None:
    known = {"manager": "m", "operation": "Apply", "apiVersion": "example.io/v1", "fieldsType": "FieldsV1", "fieldsV1": fields_v1}
    for managed in (entries, [known], [{**known, "operation": "Update", "subresource": "status"}]):
        sent = widget({"replicas": 1}, managedFields=managed)
        if managed_fields_problem(sent):
            continue
        try:
            live = widgets().on_update(widget({"replicas": 2}), sent, "two")
            widgets().on_apply(live, {**widget(), "spec": spec}, "two", True)
        except ApiError as error:
            refused(error)
