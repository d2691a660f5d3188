"""What a declared kind becomes."""

from __future__ import annotations

from typing import Any

from remuda.api.crd import Column, Kind, Scale, Version, age_column, condition_column, definition
from remuda.api.schema import Object, object_schema


class Policy(Object, total=False):
    """A policy."""

    spec: dict[str, Any]


def test_a_kind_says_only_what_does_not_follow() -> None:
    crd = definition(Kind("example.com", "Widget", (Version("v1", Policy, storage=True),)))
    assert crd == {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": "widgets.example.com"},
        "spec": {
            "group": "example.com",
            "names": {"kind": "Widget", "listKind": "WidgetList", "plural": "widgets", "singular": "widget"},
            "scope": "Namespaced",
            "versions": [
                {
                    "name": "v1",
                    "served": True,
                    "storage": True,
                    "subresources": {"status": {}},
                    "schema": {"openAPIV3Schema": object_schema(Policy)},
                }
            ],
        },
    }


def test_a_kind_may_say_everything() -> None:
    columns = (
        condition_column("Ready", "Ready", priority=1),
        Column("Size", ".spec.size", "integer", "How big it is", format="int32"),
        age_column(""),
    )
    crd = definition(
        Kind(
            "example.com",
            "Policy",
            (
                Version("v1", Policy, storage=True, status=False),
                Version(
                    "v1alpha1",
                    Policy,
                    columns,
                    served=False,
                    deprecated=True,
                    warning="use v1",
                    scale=Scale(selector=""),
                    selectable=(".spec.size",),
                ),
            ),
            plural="policies",
            singular="pol",
            short_names=("po",),
            categories=("all",),
            scope="Cluster",
            labels={"a": "b"},
            annotations={"c": "d"},
        )
    )
    assert crd["metadata"] == {"name": "policies.example.com", "labels": {"a": "b"}, "annotations": {"c": "d"}}
    spec = crd["spec"]
    assert spec["scope"] == "Cluster"
    assert spec["names"] == {
        "kind": "Policy",
        "listKind": "PolicyList",
        "plural": "policies",
        "singular": "pol",
        "shortNames": ["po"],
        "categories": ["all"],
    }
    new, old = spec["versions"]
    assert new["subresources"] == {}
    del old["schema"]
    assert old == {
        "name": "v1alpha1",
        "served": False,
        "storage": False,
        "deprecated": True,
        "deprecationWarning": "use v1",
        "additionalPrinterColumns": [
            {"name": "Ready", "type": "string", "jsonPath": '.status.conditions[?(@.type=="Ready")].status', "priority": 1},
            {"name": "Size", "type": "integer", "jsonPath": ".spec.size", "format": "int32", "description": "How big it is"},
            {"name": "Age", "type": "date", "jsonPath": ".metadata.creationTimestamp"},
        ],
        "selectableFields": [{"jsonPath": ".spec.size"}],
        "subresources": {
            "status": {},
            "scale": {"specReplicasPath": ".spec.replicas", "statusReplicasPath": ".status.replicas"},
        },
    }
