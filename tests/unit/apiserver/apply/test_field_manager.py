"""managedFields on every write, and server-side apply: who owns what, who is refused, what is removed."""

from __future__ import annotations

import copy
import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from remuda.apiserver.apply import FieldManager
from remuda.apiserver.apply.compare import compare
from remuda.apiserver.apply.typed import compile_type
from remuda.kube.clock import VirtualClock
from remuda.kube.errors import ApiError

from .schemas import WIDGET, Obj, edited, managed_fields_problem, owned, resolve, stored, widget, widgets


def error_of(call: Any, *arguments: Any) -> ApiError:
    with pytest.raises(ApiError) as caught:
        call(*arguments)
    return caught.value


# --- create and update --------------------------------------------------------------------------------------------------


def test_a_creator_owns_all_it_sets_but_what_the_server_sets() -> None:
    made = widgets().on_create(widget({"replicas": 1, "set": ["a"], "items": [{"name": "x"}], "selector": {"name": "s"}}), "me")
    assert owned(made) == {
        "me": {
            "f:spec": {
                ".": {},
                "f:replicas": {},
                "f:set": {".": {}, 'v:"a"': {}},
                "f:items": {".": {}, 'k:{"name":"x","protocol":"TCP"}': {".": {}, "f:name": {}}},
                "f:selector": {},
            }
        }
    }
    entry = made["metadata"]["managedFields"][0]
    assert {key: entry[key] for key in entry if key != "fieldsV1"} == {
        "manager": "me",
        "operation": "Update",
        "apiVersion": "example.io/v1",
        "time": "2027-01-15T08:00:00Z",
        "fieldsType": "FieldsV1",
    }


def test_fields_that_a_new_object_always_has_are_not_owned() -> None:
    manager = widgets(empty={"metadata": {}, "spec": {"set": None}})
    made = manager.on_create(widget({"replicas": 1, "set": ["a"]}), "me")
    assert owned(made) == {"me": {"f:spec": {"f:replicas": {}, "f:set": {'v:"a"': {}}}}}


def test_an_update_takes_what_it_changes() -> None:
    clock = VirtualClock()
    manager = widgets(clock)
    live = stored(manager.on_create(widget({"replicas": 1, "text": "a"}), "creator"))
    clock._now += 60
    new = manager.on_update(live, edited(live, replicas=2), "editor")
    assert owned(new) == {"creator": {"f:spec": {".": {}, "f:text": {}}}, "editor": {"f:spec": {"f:replicas": {}}}}
    times = {entry["manager"]: entry["time"] for entry in new["metadata"]["managedFields"]}
    assert times == {"creator": "2027-01-15T08:00:00Z", "editor": "2027-01-15T08:01:00Z"}


def test_an_update_that_changes_nothing_keeps_the_very_entries() -> None:
    manager = widgets()
    live = stored(manager.on_create(widget({"replicas": 1, "free": {"a": [1, True]}}), "creator"))
    new = manager.on_update(live, copy.deepcopy(live), "editor")
    assert new == live
    assert new["metadata"]["managedFields"] is live["metadata"]["managedFields"]


def test_removed_fields_have_no_owner() -> None:
    manager = widgets()
    live = stored(manager.on_create(widget({"items": [{"name": "x", "value": 1}, {"name": "y"}]}), "creator"))
    new = manager.on_update(live, edited(live, items=[{"name": "y"}]), "editor")
    assert owned(new) == {
        "creator": {"f:spec": {".": {}, "f:items": {".": {}, 'k:{"name":"y","protocol":"TCP"}': {".": {}, "f:name": {}}}}}
    }


def test_a_boolean_is_no_number_where_anything_may_stand() -> None:
    manager = widgets()
    live = stored(manager.on_create(widget({"free": {"flag": 1}}), "creator"))
    new = manager.on_update(live, edited(live, free={"flag": True}), "editor")
    assert owned(new)["editor"] == {"f:spec": {"f:free": {"f:flag": {}}}}


def test_status_and_spec_are_owned_through_their_own_doors() -> None:
    manager = widgets()
    live = stored(manager.on_create({**widget({"replicas": 1}), "status": {"phase": "A"}}, "creator"))
    assert "f:status" not in owned(live)["creator"]
    changed = {**edited(live, replicas=5), "status": {"phase": "B"}}
    new = manager.on_update(live, changed, "controller", "status")
    assert owned(new)["controller/status"] == {"f:status": {"f:phase": {}}}
    assert owned(new)["creator"] == {"f:spec": {".": {}, "f:replicas": {}}}


def test_at_most_ten_updaters_the_oldest_become_ancient() -> None:
    clock = VirtualClock()
    manager = widgets(clock)
    live = stored(manager.on_create(widget({"replicas": 0}), "m00"))
    for number in range(1, 14):
        clock._now += 1
        labels = {**live["metadata"].get("labels", {}), f"l{number}": "x"}
        live = manager.on_update(live, {**live, "metadata": {**live["metadata"], "labels": labels}}, f"m{number:02d}")
    names = [entry["manager"] for entry in live["metadata"]["managedFields"]]
    assert names == ["ancient-changes", *(f"m{number:02d}" for number in range(5, 14))]
    assert owned(live)["ancient-changes"]["f:spec"] == {".": {}, "f:replicas": {}}


RESETS: list[Any] = [[], [{}]]


@pytest.mark.parametrize("entries", RESETS)
def test_managed_fields_can_be_reset_and_stay_away_until_the_first_apply(entries: Any) -> None:
    manager = widgets()
    live = stored(manager.on_create(widget({"replicas": 1}), "creator"))
    reset = manager.on_update(live, {**live, "metadata": {**live["metadata"], "managedFields": entries}}, "me")
    assert "managedFields" not in reset["metadata"]
    later = manager.on_update(reset, edited(reset, replicas=2), "me")
    assert "managedFields" not in later["metadata"]
    applied = manager.on_apply(later, widget({"text": "x"}), "applier")
    assert owned(applied) == {
        "applier": {"f:spec": {"f:text": {}}},
        "before-first-apply": {"f:spec": {".": {}, "f:replicas": {}}},
    }


INVALID: list[Any] = [
    [{"manager": "x"}],
    [{"manager": "x", "operation": "Update", "apiVersion": "v1", "fieldsType": "FieldsV2"}],
    [{"manager": "x", "operation": "Update", "apiVersion": "v1", "fieldsType": "FieldsV1", "fieldsV1": {"bad": {}}}],
    [{"manager": "x", "operation": "Update", "apiVersion": "v1", "fieldsType": "FieldsV1", "fieldsV1": [], "time": "no"}],
    ["x"],
    "x",
    None,
]


@pytest.mark.parametrize("entries", INVALID)
def test_invalid_managed_fields_of_a_request_are_ignored(entries: Any) -> None:
    manager = widgets()
    live = stored(manager.on_create(widget({"replicas": 1}), "creator"))
    new = manager.on_update(live, {**live, "metadata": {**live["metadata"], "managedFields": entries}}, "me")
    assert new["metadata"]["managedFields"] == live["metadata"]["managedFields"]


def test_valid_managed_fields_of_a_request_are_taken_but_not_through_a_subresource() -> None:
    manager = widgets()
    live = stored(manager.on_create(widget({"replicas": 1}), "creator"))
    entries = [{**live["metadata"]["managedFields"][0], "manager": "other"}]
    given = {**live, "metadata": {**live["metadata"], "managedFields": entries}}
    assert set(owned(manager.on_update(live, given, "me"))) == {"other"}
    assert set(owned(manager.on_update(live, given, "me", "status"))) == {"creator"}


def test_an_object_that_does_not_fit_its_type_loses_its_managed_fields() -> None:
    manager = widgets()
    live = stored(manager.on_create(widget({"replicas": 1}), "creator"))
    assert "managedFields" not in manager.on_update(live, edited(live, items=[{}, None]), "me")["metadata"]
    assert "managedFields" not in manager.on_create(widget({"unknown": 1}), "me")["metadata"]


def test_objects_given_are_never_changed() -> None:
    manager = widgets()
    live = stored(manager.on_create(widget({"replicas": 1, "set": ["a"]}), "creator"))
    new, config = edited(live, set=["b"]), widget({"set": ["c"]})
    before = copy.deepcopy((live, new, config))
    manager.on_update(live, new, "me")
    manager.on_apply(live, config, "me", True)
    assert (live, new, config) == before


def test_only_times_changed_is_nothing_changed() -> None:
    clock = VirtualClock()
    manager = widgets(clock)
    live = stored(manager.on_create(widget({"replicas": 1}), "creator"))
    clock._now += 60
    entries = [{**live["metadata"]["managedFields"][0], "time": "2030-01-01T00:00:00Z"}]
    new = {**live, "metadata": {**live["metadata"], "managedFields": entries}}
    assert manager.keep_times(live, new) == live
    different = edited(new, replicas=2)
    assert manager.keep_times(live, different) is different


# --- apply --------------------------------------------------------------------------------------------------------------


def test_apply_creates() -> None:
    made = widgets().on_apply(None, widget({"replicas": 1, "items": [{"name": "x"}]}, labels={"a": "b"}), "applier")
    assert made["spec"] == {"replicas": 1, "items": [{"name": "x"}]}
    entry = made["metadata"]["managedFields"][0]
    assert entry["operation"] == "Apply"
    assert entry["fieldsV1"] == {
        "f:metadata": {"f:labels": {"f:a": {}}},
        "f:spec": {"f:replicas": {}, "f:items": {'k:{"name":"x","protocol":"TCP"}': {".": {}, "f:name": {}}}},
    }


def test_applying_again_changes_nothing() -> None:
    clock = VirtualClock()
    manager = widgets(clock)
    config = widget({"replicas": 1, "set": ["b", "a"], "free": {"x": {"y": 1}}, "plain": ["z"]})
    live = stored(manager.on_apply(None, config, "applier"))
    clock._now += 60
    again = manager.on_apply(live, config, "applier")
    assert again == live
    assert again["metadata"]["managedFields"] is live["metadata"]["managedFields"]


def test_conflicts_name_managers_and_fields() -> None:
    manager = widgets()
    live = stored(manager.on_create(widget({"replicas": 1, "items": [{"name": "x", "value": 1}]}), "kubectl-create"))
    live = manager.on_update(live, edited(live, replicas=2), "kubectl-edit")
    live = manager.on_apply(live, widget({"text": "mine"}), "other")
    error = error_of(manager.on_apply, live, widget({"replicas": 3, "text": "x", "items": [{"name": "x", "value": 2}]}), "me")
    assert (error.code, error.reason) == (409, "Conflict")
    assert error.message == (
        "Apply failed with 3 conflicts: "
        'conflicts with "kubectl-create" using example.io/v1:\n- .spec.items[name="x",protocol="TCP"].value\n'
        'conflicts with "kubectl-edit" using example.io/v1:\n- .spec.replicas\n'
        'conflicts with "other":\n- .spec.text'
    )
    assert error.details is not None
    assert error.details["causes"][1] == {
        "reason": "FieldManagerConflict",
        "message": 'conflict with "kubectl-edit" using example.io/v1',
        "field": ".spec.replicas",
    }
    single = error_of(manager.on_apply, live, widget({"replicas": 3}), "me")
    assert single.message == ('Apply failed with 1 conflict: conflict with "kubectl-edit" using example.io/v1: .spec.replicas')


def test_a_conflict_names_the_subresource() -> None:
    manager = widgets()
    live = stored(manager.on_create(widget({}), "creator"))
    live = manager.on_update(live, {**live, "status": {"phase": "A"}}, "controller", "status")
    error = error_of(manager.on_apply, live, {**widget(), "status": {"phase": "B"}}, "me", False, "status")
    assert error.message == (
        'Apply failed with 1 conflict: conflict with "controller" with subresource "status" using example.io/v1: .status.phase'
    )


def test_force_takes_fields_from_their_owners() -> None:
    manager = widgets()
    live = stored(manager.on_create(widget({"replicas": 1, "text": "a"}), "creator"))
    new = manager.on_apply(live, widget({"replicas": 2}), "me", True)
    assert new["spec"] == {"replicas": 2, "text": "a"}
    assert owned(new) == {"me": {"f:spec": {"f:replicas": {}}}, "creator": {"f:spec": {".": {}, "f:text": {}}}}


def test_the_same_value_is_shared_not_fought_over() -> None:
    manager = widgets()
    live = stored(manager.on_apply(None, widget({"replicas": 1}), "one"))
    new = manager.on_apply(live, widget({"replicas": 1}), "two")
    assert owned(new) == {"one": {"f:spec": {"f:replicas": {}}}, "two": {"f:spec": {"f:replicas": {}}}}
    assert new["spec"] == live["spec"]


def test_fields_no_longer_applied_go_unless_another_manager_owns_them() -> None:
    manager = widgets()
    live = stored(manager.on_apply(None, widget({"replicas": 1, "text": "a", "items": [{"name": "x"}, {"name": "y"}]}), "one"))
    live = manager.on_apply(live, widget({"text": "a", "items": [{"name": "y", "value": 3}]}), "two")
    new = manager.on_apply(live, widget({"replicas": 1}), "one")
    assert new["spec"] == {"replicas": 1, "text": "a", "items": [{"name": "y", "value": 3}]}
    assert owned(new)["one"] == {"f:spec": {"f:replicas": {}}}


def test_fields_without_an_owner_stay_beside_removed_ones() -> None:
    manager = widgets()
    live = stored(manager.on_apply(None, widget({"replicas": 1, "text": "a"}), "one"))
    defaulted = edited(live, plain=["server"])
    new = manager.on_apply(defaulted, widget({"replicas": 1}), "one")
    assert new["spec"] == {"replicas": 1, "plain": ["server"]}


LIST_ORDERS: list[tuple[list[str], list[str], list[str]]] = [
    (["a", "b", "c"], ["d"], ["a", "b", "c", "d"]),
    (["a", "b", "c"], ["c", "a"], ["b", "c", "a"]),
    (["a", "b", "c"], ["x", "b"], ["a", "x", "b", "c"]),
    ([], ["x", "b"], ["x", "b"]),
    (["b", "a"], ["a", "b", "c"], ["a", "b", "c"]),
]


@pytest.mark.parametrize(("live_items", "applied", "expected"), LIST_ORDERS)
def test_merged_lists_keep_the_live_order_as_far_as_possible(
    live_items: list[str], applied: list[str], expected: list[str]
) -> None:
    manager = widgets()
    live = stored(manager.on_create(widget({"set": live_items}), "creator"))
    assert manager.on_apply(live, widget({"set": applied}), "me", True)["spec"]["set"] == expected


def test_items_that_are_there_twice_are_replaced_by_the_applied_one() -> None:
    manager = widgets()
    live = stored(manager.on_create(widget({"items": [{"name": "x", "value": 1}, {"name": "x", "value": 2}]}), "creator"))
    assert owned(live)["creator"]["f:spec"]["f:items"] == {".": {}, 'k:{"name":"x","protocol":"TCP"}': {}}
    new = manager.on_apply(live, widget({"items": [{"name": "x", "value": 3}]}), "me", True)
    assert new["spec"]["items"] == [{"name": "x", "value": 3}]


REFUSED: list[tuple[Obj, int, str]] = [
    ({"kind": "Widget"}, 400, "invalid object type: /, Kind=Widget"),
    ({}, 400, "invalid object type: /, Kind="),
    ({**widget(), "apiVersion": "example.io/v9"}, 400, "invalid object type: example.io/v9, Kind=Widget"),
    (widget(managedFields=[]), 400, "metadata.managedFields must be nil"),
    (widget({"bogus": 1}), 500,
     "failed to create typed patch object (default/w; example.io/v1, Kind=Widget): .spec.bogus: field not declared in schema"),
    (widget({"text": 1}), 500,
     "failed to create typed patch object (default/w; example.io/v1, Kind=Widget): "
     ".spec.text: expected string, got &value.valueUnstructured{Value:1}"),
    (widget({"replicas": "x"}), 500,
     "failed to create typed patch object (default/w; example.io/v1, Kind=Widget): "
     ".spec.replicas: expected numeric (int or float), got string"),
    (widget({"set": ["a", "a"]}), 500,
     'failed to create typed patch object (default/w; example.io/v1, Kind=Widget): .spec.set: duplicate entries for key [="a"]'),
    (widget({"items": {}}), 500,
     "failed to create typed patch object (default/w; example.io/v1, Kind=Widget): .spec.items: expected list, got &{map[]}"),
    (widget({"text": 1, "replicas": "x"}), 500,
     "failed to create typed patch object (default/w; example.io/v1, Kind=Widget): errors:\n"
     "  .spec.text: expected string, got &value.valueUnstructured{Value:1}\n"
     "  .spec.replicas: expected numeric (int or float), got string"),
]  # fmt: skip


@pytest.mark.parametrize(("config", "code", "message"), REFUSED)
def test_refuses_configurations(config: Obj, code: int, message: str) -> None:
    error = error_of(widgets().on_apply, None, config, "me")
    assert (error.code, error.message) == (code, message)


# --- other versions and schema changes ----------------------------------------------------------------------------------


def convert(obj: Obj, api_version: str) -> Obj:
    """v2 calls `text` `label`."""
    spec = dict(obj.get("spec", {}))
    old, new = ("text", "label") if api_version.endswith("v2") else ("label", "text")
    if old in spec:
        spec[new] = spec.pop(old)
    return {**obj, "apiVersion": api_version, "spec": spec}


def v2_schema() -> Obj:
    schema = copy.deepcopy(WIDGET)
    properties = schema["properties"]["spec"]["properties"]
    properties["label"] = properties.pop("text")
    return schema


def test_owners_in_another_version_are_followed_through_conversion() -> None:
    first = widgets(versions={"example.io/v2": v2_schema()}, convert=convert)
    second = widgets(schema=v2_schema(), version="v2", versions={"example.io/v1": WIDGET}, convert=convert)
    live = stored(first.on_apply(None, widget({"text": "a", "replicas": 1}), "one"))
    seen = convert(live, "example.io/v2")
    new = second.on_update(seen, edited(seen, label="b"), "editor")
    assert owned(new) == {"one": {"f:spec": {"f:replicas": {}}}, "editor": {"f:spec": {"f:label": {}}}}
    error = error_of(second.on_apply, seen, widget({"label": "c"}, "v2"), "me")
    assert error.message == 'Apply failed with 1 conflict: conflict with "one": .spec.text'


def test_what_was_applied_in_another_version_is_removed_when_no_longer_applied() -> None:
    first = widgets(versions={"example.io/v2": v2_schema()}, convert=convert)
    second = widgets(schema=v2_schema(), version="v2", versions={"example.io/v1": WIDGET}, convert=convert)
    live = stored(first.on_apply(None, widget({"text": "a", "replicas": 1}), "one"))
    new = second.on_apply(convert(live, "example.io/v2"), widget({"replicas": 1}, "v2"), "one")
    assert new["spec"] == {"replicas": 1}
    assert owned(new) == {"one": {"f:spec": {"f:replicas": {}}}}


def test_owners_in_versions_that_are_gone_are_dropped() -> None:
    manager = widgets()
    live = stored(manager.on_create(widget({"replicas": 1}), "creator"))
    old = {**live["metadata"]["managedFields"][0], "manager": "old", "apiVersion": "example.io/v0"}
    live["metadata"]["managedFields"] = [*live["metadata"]["managedFields"], old]
    assert set(owned(manager.on_update(live, edited(live, text="x"), "me"))) == {"creator", "me"}


def test_what_has_become_atomic_is_owned_as_a_whole() -> None:
    schema = copy.deepcopy(WIDGET)
    live = stored(widgets().on_apply(None, widget({"items": [{"name": "x", "value": 1}]}), "one"))
    schema["properties"]["spec"]["properties"]["items"]["x-kubernetes-list-type"] = "atomic"
    new = widgets(schema=schema).on_update(live, edited(live, text="t"), "me")
    assert owned(new) == {"one": {"f:spec": {"f:items": {}}}, "me": {"f:spec": {"f:text": {}}}}


def test_objects_of_unknown_shape_have_granular_maps_and_atomic_lists() -> None:
    made = widgets(schema=None).on_create(widget({"a": {"b": [1, {"c": 2}]}, "e": {}}), "me")
    assert owned(made) == {"me": {"f:spec": {".": {}, "f:a": {".": {}, "f:b": {}}, "f:e": {}}}}


# --- from client-side apply ---------------------------------------------------------------------------------------------

LAST_APPLIED = "kubectl.kubernetes.io/last-applied-configuration"


def client_side_applied(manager: FieldManager, config: Obj) -> Obj:
    annotated = {**config, "metadata": {**config["metadata"], "annotations": {LAST_APPLIED: json.dumps(config)}}}
    return stored(manager.on_create(annotated, "kubectl-client-side-apply"))


def test_kubectl_may_take_what_it_had_applied_client_side() -> None:
    manager = widgets()
    live = client_side_applied(manager, widget({"replicas": 1, "text": "<a>"}))
    config = widget({"replicas": 2, "text": "<b>"})
    assert error_of(manager.on_apply, live, config, "other").code == 409
    new = manager.on_apply(live, config, "kubectl")
    assert owned(new)["kubectl"] == {"f:spec": {"f:replicas": {}, "f:text": {}}}
    text = new["metadata"]["annotations"][LAST_APPLIED]
    assert json.loads(text) == config
    assert text.endswith("}\n") and "\\u003cb\\u003e" in text


def test_kubectl_may_not_take_what_others_changed_since() -> None:
    manager = widgets()
    live = client_side_applied(manager, widget({"replicas": 1, "text": "a"}))
    live = manager.on_update(live, edited(live, replicas=5), "hpa")
    error = error_of(manager.on_apply, live, widget({"replicas": 2, "text": "b"}), "kubectl")
    assert error.message == 'Apply failed with 1 conflict: conflict with "hpa" using example.io/v1: .spec.replicas'


def test_an_annotation_that_would_be_too_large_is_dropped() -> None:
    manager = widgets()
    live = client_side_applied(manager, widget({"text": "a"}))
    new = manager.on_apply(live, widget({"text": "x" * 300_000}), "kubectl")
    assert LAST_APPLIED not in new["metadata"]["annotations"]


# --- laws ---------------------------------------------------------------------------------------------------------------

NAMES = st.sampled_from("abc")
SPECS = st.fixed_dictionaries(
    {},
    optional={
        "replicas": st.integers(0, 2),
        "text": st.sampled_from("xy"),
        "size": st.integers(0, 1) | st.just("5%"),
        "set": st.lists(NAMES, unique=True, max_size=3),
        "items": st.lists(
            st.fixed_dictionaries({"name": NAMES}, optional={"value": st.integers(0, 1), "protocol": st.just("UDP")}),
            unique_by=lambda item: (item["name"], item.get("protocol")),
            max_size=3,
        ),
        "plain": st.lists(NAMES, max_size=2),
        "free": st.dictionaries(NAMES, st.integers(0, 1) | st.booleans() | st.dictionaries(NAMES, st.integers(0, 1)), max_size=3),
    },
)
MANAGERS = st.sampled_from(["one", "two"])
STEPS = st.lists(st.tuples(st.sampled_from(["update", "apply", "force"]), MANAGERS, SPECS), max_size=5)


def history(manager: FieldManager, first: Obj, steps: list[tuple[str, str, Obj]]) -> Obj:
    live = stored(manager.on_create(widget(first), "creator"))
    for verb, who, spec in steps:
        try:
            if verb == "update":
                live = manager.on_update(live, {**live, "spec": spec}, who)
            else:
                live = manager.on_apply(live, widget(spec), who, verb == "force")
        except ApiError as error:
            assert error.code == 409
    return live


@settings(deadline=None)
@given(SPECS, STEPS, SPECS)
def test_applying_twice_is_applying_once_whatever_happened_before(first: Obj, steps: Any, spec: Obj) -> None:
    manager = widgets()
    live = history(manager, first, steps)
    once = manager.on_apply(live, widget(spec), "me", True)
    assert manager.on_apply(once, widget(spec), "me") == once


@settings(deadline=None)
@given(SPECS, STEPS, SPECS)
def test_after_a_forced_apply_the_object_says_what_was_applied(first: Obj, steps: Any, spec: Obj) -> None:
    manager = widgets()
    live = history(manager, first, steps)
    new = manager.on_apply(live, widget(spec), "me", True)
    # Applied once more into the result there is nothing left to change.
    change = compare(compile_type(WIDGET, resolve), new, manager.on_apply(new, widget(spec), "me"))
    assert change == ({}, {}, {})
    assert managed_fields_problem(new) == ""


JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-1, 2) | st.text(max_size=2),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(st.sampled_from(["name", "items", "set", "spec", "f:a", "operation"]), inner, max_size=3)
    ),
    max_leaves=8,
)
ENTRIES = st.lists(
    st.fixed_dictionaries(
        {},
        optional={
            "manager": JSON,
            "operation": st.sampled_from(["Apply", "Update"]) | JSON,
            "apiVersion": st.just("example.io/v1") | JSON,
            "fieldsType": st.just("FieldsV1") | JSON,
            "fieldsV1": st.dictionaries(st.sampled_from(["f:spec", ".", "v:1", "k:{}"]), JSON, max_size=2) | JSON,
            "time": st.just("2020-01-01T00:00:00+02:00") | JSON,
            "subresource": JSON,
        },
    )
    | JSON,
    max_size=2,
)


@settings(deadline=None)
@given(JSON, ENTRIES, JSON)
def test_hostile_objects_and_entries_only_ever_fail_as_api_errors(spec: Any, entries: Any, metadata: Any) -> None:
    for schema in (WIDGET, None):
        manager = widgets(schema=schema)
        live = stored(manager.on_create(widget({"replicas": 1, "set": ["a"]}), "creator"))
        new = {**widget(), "spec": spec, "metadata": {**live["metadata"], "managedFields": entries}}
        result = manager.on_update(live, new, "me")
        assert managed_fields_problem(result) == ""
        manager.on_create(new, "me")
        for config in ({**widget(), "spec": spec}, {**widget(), "metadata": metadata}):
            try:
                manager.on_apply(live, config, "me", True)
            except ApiError as error:
                assert error.code in (400, 500)


def test_a_newer_time_that_is_all_that_changed_does_not_move_its_entry() -> None:
    manager = widgets()
    live = stored(manager.on_create(widget({"replicas": 1}), "creator"))
    (first,) = live["metadata"]["managedFields"]
    second = {**first, "manager": "other"}
    live = {**live, "metadata": {**live["metadata"], "managedFields": [first, second]}}
    newer = [second, {**first, "time": "2030-01-01T00:00:00Z"}]
    assert manager.keep_times(live, {**live, "metadata": {**live["metadata"], "managedFields": newer}}) == live
    twice = {**live, "metadata": {**live["metadata"], "managedFields": [second, second]}}
    assert manager.keep_times(live, twice) is twice
