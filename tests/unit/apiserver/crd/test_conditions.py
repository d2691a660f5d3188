"""Who gets which names, and what a CRD's conditions say about it."""

from __future__ import annotations

from typing import Any

import pytest

from remuda.apiserver.crd.conditions import decide_names, next_status

from .definitions import crd, with_field

Obj = dict[str, Any]
NOW = "2026-01-01T00:00:00Z"


def test_a_new_definition_is_accepted_and_established() -> None:
    definition = crd()
    status = next_status(definition, [definition], NOW)
    assert status is not None
    assert status["acceptedNames"] == {"plural": "foos", "singular": "foo", "kind": "Foo", "listKind": "FooList"}
    assert status["storedVersions"] == ["v1"]
    assert status["conditions"] == [
        {
            "lastTransitionTime": NOW,
            "message": "no conflicts found",
            "reason": "NoConflicts",
            "status": "True",
            "type": "NamesAccepted",
        },
        {
            "lastTransitionTime": NOW,
            "message": "the initial names have been accepted",
            "reason": "InitialNamesAccepted",
            "status": "True",
            "type": "Established",
        },
    ]
    assert next_status({**definition, "status": status}, [], "2027-01-01T00:00:00Z") is None


@pytest.mark.parametrize(
    ("names", "reason", "message"),
    [
        ({"plural": "bars", "singular": "bar", "kind": "Foo", "listKind": "BarList"}, "KindConflict", '"Foo" is already in use'),
        ({"plural": "bars", "kind": "Bar", "listKind": "FooList"}, "ListKindConflict", '"FooList" is already in use'),
        (
            {"plural": "bars", "kind": "Bar", "shortNames": ["foo", "f"]},
            "ShortNamesConflict",
            '["foo" is already in use, "f" is already in use]',
        ),
        ({"plural": "bars", "kind": "Bar", "singular": "foos"}, "SingularConflict", '"foos" is already in use'),
    ],
)
def test_a_name_that_another_definition_has(names: Obj, reason: str, message: str) -> None:
    first = crd(names={"plural": "foos", "kind": "Foo", "shortNames": ["f"]})
    first["status"] = next_status(first, [first], NOW)
    second = crd(metadata={"name": "bars.example.com"}, names=names)
    assert decide_names(second, [first, second])[1:] == (reason, message)
    status = next_status(second, [first, second], NOW)
    assert status is not None
    assert [(c["type"], c["status"], c["reason"]) for c in status["conditions"]] == [
        ("NamesAccepted", "False", reason),
        ("Established", "False", "NotAccepted"),
    ]
    assert "plural" in status["acceptedNames"]


def test_other_groups_do_not_matter() -> None:
    first = crd(group="other.com")
    first["status"] = next_status(first, [first], NOW)
    assert decide_names(crd(), [first])[1] == "NoConflicts"


def test_a_definition_stays_established_when_it_asks_for_a_taken_name() -> None:
    taken = crd(names={"plural": "bars", "kind": "Bar", "shortNames": ["b"]})
    taken["status"] = next_status(taken, [taken], NOW)
    mine = crd()
    mine["status"] = next_status(mine, [mine], NOW)
    mine["spec"]["names"]["shortNames"] = ["b"]
    status = next_status(mine, [taken, mine], "2027-01-01T00:00:00Z")
    assert status is not None
    conditions = {condition["type"]: condition for condition in status["conditions"]}
    assert conditions["NamesAccepted"]["reason"] == "ShortNamesConflict"
    assert conditions["NamesAccepted"]["lastTransitionTime"] == "2027-01-01T00:00:00Z"
    assert conditions["Established"]["status"] == "True"
    assert conditions["Established"]["lastTransitionTime"] == NOW


def test_a_broken_ca_bundle_keeps_it_from_being_established() -> None:
    definition = crd()
    status = next_status(definition, [definition], NOW, broken_ca_bundle=True)
    assert status is not None
    assert (status["conditions"][1]["status"], status["conditions"][1]["reason"]) == ("False", "InvalidCABundle")


def test_a_schema_that_is_not_structural_is_told() -> None:
    definition = with_field({})
    status = next_status(definition, [definition], NOW)
    assert status is not None
    condition = status["conditions"][-1]
    assert (condition["type"], condition["status"], condition["reason"]) == ("NonStructuralSchema", "True", "Violations")
    assert condition["message"] == (
        "spec.versions[0].schema.openAPIV3Schema.properties[f].type: Required value: must not be empty "
        "for specified object fields"
    )
    mended = {**crd(), "status": status}
    after = next_status(mended, [mended], NOW)
    assert after is not None
    assert "NonStructuralSchema" not in [each["type"] for each in after["conditions"]]


@pytest.mark.parametrize(
    ("annotation", "status", "reason"),
    [
        ("", "False", "MissingAnnotation"),
        ("unapproved, experimental", "False", "UnapprovedAnnotation"),
        ("https://github.com/kubernetes/kubernetes/pull/1", "True", "ApprovedAnnotation"),
        ("because", "False", "InvalidAnnotation"),
    ],
)
def test_protected_groups_need_approval(annotation: str, status: str, reason: str) -> None:
    definition = crd(group="x.k8s.io", metadata={"annotations": {"api-approved.kubernetes.io": annotation}})
    found = next_status(definition, [definition], NOW)
    assert found is not None
    last = found["conditions"][-1]
    assert (last["type"], last["status"], last["reason"]) == ("KubernetesAPIApprovalPolicyConformant", status, reason)
