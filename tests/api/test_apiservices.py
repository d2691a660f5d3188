"""APIServices: the groups and versions that the server itself serves, as objects."""

from __future__ import annotations

import pytest

from .harness import Pair

SERVICES = "/apis/apiregistration.k8s.io/v1/apiservices"
GROUPS = [
    "",
    "apps",
    "batch",
    "coordination.k8s.io",
    "rbac.authorization.k8s.io",
    "authentication.k8s.io",
    "authorization.k8s.io",
    "policy",
    "discovery.k8s.io",
    "events.k8s.io",
    "storage.k8s.io",
    "apiextensions.k8s.io",
    "admissionregistration.k8s.io",
]


@pytest.mark.parametrize("group", GROUPS)
def test_a_built_in_group_has_one(pair: Pair, group: str) -> None:
    pair.eventually(f"{SERVICES}/v1.{group}", lambda answer: bool(answer.status == 200 and answer.json.get("status")))


def test_one_comes_and_goes_with_a_crd(pair: Pair) -> None:
    group = f"{pair.ns}.example.io"
    crd = {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": f"mules.{group}"},
        "spec": {
            "group": group,
            "scope": "Namespaced",
            "names": {"plural": "mules", "kind": "Mule"},
            "versions": [{"name": "v2", "served": True, "storage": True, "schema": {"openAPIV3Schema": {"type": "object"}}}],
        },
    }
    crds = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
    pair.post(crds, crd)
    pair.eventually(
        f"{SERVICES}/v2.{group}", lambda answer: bool(answer.status == 200 and answer.json.get("status", {}).get("conditions"))
    )
    pair.delete(f"{crds}/mules.{group}", compare=False)
    gone = pair.eventually(f"{SERVICES}/v2.{group}", lambda answer: answer.status == 404)
    assert gone.status == 404
