"""Clones of providers' templates."""

from __future__ import annotations

from typing import Any

from remuda.capi.external_objects import clone, cloned_kind, is_template, not_there, reference_to

Obj = dict[str, Any]

OWNER = {"apiVersion": "cluster.x-k8s.io/v1beta2", "kind": "MachineSet", "name": "ms", "uid": "1"}


def template(**content: Any) -> Obj:
    return {
        "apiVersion": "infrastructure.test.io/v1",
        "kind": "TestMachineTemplate",
        "metadata": {"name": "t", "namespace": "herd", "uid": "2", "labels": {"of": "template"}},
        "spec": {"template": {"spec": {"size": "small"}, **content}},
    }


def cloned(source: Obj, **options: Any) -> Obj:
    return clone(source, **{"name": "m1", "namespace": "herd", "cluster": "c1", **options})


def test_a_clone_is_of_the_kind_without_template_and_of_the_template_s_version() -> None:
    found = cloned(template())
    assert (found["apiVersion"], found["kind"]) == ("infrastructure.test.io/v1", "TestMachine")
    assert (found["metadata"]["name"], found["metadata"]["namespace"]) == ("m1", "herd")
    assert found["spec"] == {"size": "small"}


def test_a_clone_says_where_it_comes_from_and_whose_cluster_it_is() -> None:
    meta = cloned(template())["metadata"]
    assert meta["annotations"] == {
        "cluster.x-k8s.io/cloned-from-name": "t",
        "cluster.x-k8s.io/cloned-from-groupkind": "TestMachineTemplate.infrastructure.test.io",
    }
    assert meta["labels"] == {"cluster.x-k8s.io/cluster-name": "c1"}
    assert "ownerReferences" not in meta


def test_labels_and_annotations_that_are_asked_for_win_over_the_template_s() -> None:
    own = {"labels": {"a": "template", "b": "template"}, "annotations": {"a": "template"}}
    meta = cloned(template(metadata=own), labels={"a": "set"}, annotations={"n": "set"}, owner=OWNER)["metadata"]
    assert meta["labels"] == {"a": "set", "b": "template", "cluster.x-k8s.io/cluster-name": "c1"}
    assert (meta["annotations"]["a"], meta["annotations"]["n"]) == ("template", "set")
    assert meta["ownerReferences"] == [OWNER]


def test_the_cluster_s_label_can_t_be_overridden() -> None:
    meta = cloned(template(), labels={"cluster.x-k8s.io/cluster-name": "other"})["metadata"]
    assert meta["labels"]["cluster.x-k8s.io/cluster-name"] == "c1"


def test_identity_and_finalizers_of_a_template_are_not_carried_over() -> None:
    own = {"name": "x", "namespace": "y", "uid": "3", "resourceVersion": "4", "finalizers": ["f"], "selfLink": "/"}
    assert cloned(template(metadata=own))["metadata"].keys() == {"name", "namespace", "labels", "annotations"}


def test_whatever_else_a_template_holds_is_carried_over() -> None:
    found = cloned(template(kind="Special", apiVersion="infrastructure.test.io/v2", data={"k": "v"}))
    assert (found["apiVersion"], found["kind"], found["data"]) == ("infrastructure.test.io/v2", "Special", {"k": "v"})


def test_a_template_without_content_gives_a_clone_without_content() -> None:
    for spec in ({}, {"template": "nonsense"}, {"template": {"metadata": {"labels": "nonsense"}}}):
        assert "spec" not in cloned({**template(), "spec": spec})


def test_the_template_is_left_as_it_is() -> None:
    source = template(metadata={"labels": {"a": "b"}})
    cloned(source, labels={"x": "y"})
    assert source == template(metadata={"labels": {"a": "b"}})


def test_words_about_references() -> None:
    ref = reference_to(cloned(template()))
    assert ref == {"apiGroup": "infrastructure.test.io", "kind": "TestMachine", "name": "m1"}
    assert not_there(ref, "herd") == 'failed to retrieve TestMachine herd/m1: TestMachine.infrastructure.test.io "m1" not found'
    assert is_template("FooTemplate") and not is_template("Foo")
    assert (cloned_kind("FooTemplate"), cloned_kind("Foo")) == ("Foo", "Foo")
