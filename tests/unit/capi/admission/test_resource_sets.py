"""Rules of ClusterResourceSets, whatever version they are written in."""

from __future__ import annotations

from typing import Any

import pytest

from remuda.api.addons_cluster_x_k8s_io import API_VERSION, GROUP
from remuda.capi.admission.resource_sets import admitted_resource_sets, default_strategy, validate_selector
from remuda.kube.admission_attributes import CREATE, UPDATE, Attributes
from remuda.kube.authorization.users import User

Obj = dict[str, Any]
FLAT = {"matchLabels": {"network": "flat"}}


def written(selector: Obj, old: Obj | None = None, **spec: Any) -> Attributes:
    def made(found: Obj) -> Obj:
        metadata = {"name": "network", "namespace": "herd"}
        wanted = {"clusterSelector": found, "resources": [], **spec}
        return {"apiVersion": API_VERSION, "kind": "ClusterResourceSet", "metadata": metadata, "spec": wanted}

    return Attributes(
        CREATE if old is None else UPDATE,
        GROUP,
        "v1beta2",
        "clusterresourcesets",
        "ClusterResourceSet",
        "herd",
        "network",
        User("ann"),
        obj=made(selector),
        old=None if old is None else made(old),
    )


def test_objects_are_applied_once_unless_said_otherwise() -> None:
    made = default_strategy(written(FLAT))
    assert made is not None and made["spec"]["strategy"] == "ApplyOnce"
    assert default_strategy(written(FLAT, strategy="Reconcile")) is None


@pytest.mark.parametrize(
    ("selector", "old", "wrong"),
    [
        (FLAT, None, ""),
        (FLAT, FLAT, ""),
        ({}, None, "selector must not be empty"),
        ({"matchExpressions": [{"key": "a", "operator": "Near"}]}, None, "Near"),
        ({"matchLabels": {"network": "deep"}}, FLAT, "field is immutable"),
    ],
)
def test_a_selector_chooses_something_and_stays(selector: Obj, old: Obj | None, wrong: str) -> None:
    errors = list(validate_selector(written(selector, old)))
    assert bool(errors) == bool(wrong)
    assert all(wrong in str(each) for each in errors)


def test_versions_have_the_same_fields() -> None:
    for each in admitted_resource_sets():
        assert each.convert is not None
        assert each.convert({"apiVersion": API_VERSION, "spec": FLAT}, f"{GROUP}/v1beta1") == {
            "apiVersion": f"{GROUP}/v1beta1",
            "spec": FLAT,
        }
