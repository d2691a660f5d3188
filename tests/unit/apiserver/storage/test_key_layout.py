"""Where objects live in the store: kube-apiserver's own layout."""

from __future__ import annotations

import pytest

from remuda.apiserver.storage import key_layout


@pytest.mark.parametrize(
    ("group", "resource", "builtin", "prefix"),
    [
        ("", "pods", True, "/registry/pods/"),
        ("", "nodes", True, "/registry/minions/"),
        ("", "services", True, "/registry/services/specs/"),
        ("", "endpoints", True, "/registry/services/endpoints/"),
        ("", "replicationcontrollers", True, "/registry/controllers/"),
        ("apps", "deployments", True, "/registry/deployments/"),
        ("networking.k8s.io", "ingresses", True, "/registry/ingress/"),
        ("networking.k8s.io", "networkpolicies", True, "/registry/networkpolicies/"),
        ("coordination.k8s.io", "leases", True, "/registry/leases/"),
        ("events.k8s.io", "events", True, "/registry/events/"),
        ("apiextensions.k8s.io", "customresourcedefinitions", True, "/registry/apiextensions.k8s.io/customresourcedefinitions/"),
        ("apiregistration.k8s.io", "apiservices", True, "/registry/apiregistration.k8s.io/apiservices/"),
        ("example.com", "services", False, "/registry/example.com/services/"),
    ],
)
def test_every_resource_has_one_bucket_that_its_keys_tell(group: str, resource: str, builtin: bool, prefix: str) -> None:
    assert key_layout.prefix_for(group, resource, builtin) == prefix
    for key, expected in ((f"{prefix}team/x", ("team", "x")), (f"{prefix}x", ("", "x"))):
        assert key_layout.bucket_of(key) == prefix
        assert key_layout.split(key, prefix) == expected
