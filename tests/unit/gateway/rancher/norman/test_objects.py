"""Objects in Norman's flat form, and back."""

from __future__ import annotations

from typing import Any

import pytest

from remuda.gateway.rancher.norman import types
from remuda.gateway.rancher.norman.objects import changed, key_of, shown
from remuda.gateway.rancher.resource_state import State
from remuda.kube.errors import ApiError

Obj = dict[str, Any]
META = {
    "name": "x",
    "uid": "uid-1",
    "creationTimestamp": "2026-01-02T03:04:05Z",
    "annotations": {"field.cattle.io/creatorId": "u-1"},
}
STATE = State("updating", False, True, "almost")


def test_every_object_has_its_identity_and_state() -> None:
    found = shown(types.NODE_DRIVER, {"metadata": META, "spec": {"displayName": "cloud", "active": True}}, STATE)
    assert (found["id"], found["type"], found["baseType"], found["name"]) == ("x", "nodeDriver", "nodeDriver", "cloud")
    assert (found["uuid"], found["creatorId"], found["createdTS"]) == ("uid-1", "u-1", 1767323045000)
    assert (found["state"], found["transitioning"], found["transitioningMessage"]) == ("updating", "yes", "almost")
    assert shown(types.CLUSTER, {"metadata": META}, State("error", True, True, ""))["transitioning"] == "error"


def test_spec_and_status_are_one_and_references_are_ids() -> None:
    cluster = {"metadata": META, "spec": {"displayName": "demo", "internal": True}, "status": {"nodeCount": 2, "driver": "k3s"}}
    found = shown(types.CLUSTER, cluster, STATE)
    assert (found["name"], found["internal"], found["nodeCount"], found["driver"]) == ("demo", True, 2, "k3s")
    assert not {"spec", "status", "metadata", "apiVersion", "kind", "displayName"} & set(found)
    binding = {"metadata": {**META, "namespace": "c-m-a"}, "clusterName": "c-m-a", "userName": "u-2", "roleTemplateName": "view"}
    found = shown(types.CLUSTER_BINDING, binding, STATE)
    assert (found["id"], found["clusterId"], found["userId"], found["roleTemplateId"]) == ("c-m-a:x", "c-m-a", "u-2", "view")


def test_conditions_say_when_they_changed() -> None:
    condition = {"type": "Ready", "status": "True", "lastTransitionTime": "2026-01-01T00:00:00Z"}
    (found,) = shown(types.CLUSTER, {"metadata": META, "status": {"conditions": [condition, None]}}, STATE)["conditions"]
    assert found["lastUpdateTime"] == "2026-01-01T00:00:00Z"


def test_a_field_of_the_object_never_replaces_its_identity() -> None:
    found = shown(types.CLUSTER, {"metadata": META, "spec": {"id": "other", "state": "x", "labels": "y"}}, STATE)
    assert (found["id"], found["state"], found["labels"]) == ("x", "updating", {})


@pytest.mark.parametrize(
    ("active", "condition", "state"), [(True, "True", "active"), (True, "False", "updating"), (False, "False", "inactive")]
)
def test_a_driver_is_active_once_it_can_be_used(active: bool, condition: str, state: str) -> None:
    driver = {"metadata": META, "spec": {"active": active}, "status": {"conditions": [{"type": "Active", "status": condition}]}}
    assert shown(types.NODE_DRIVER, driver, STATE)["state"] == state


def test_a_node_has_its_addresses() -> None:
    addresses = [{"type": "InternalIP", "address": "10.0.0.1"}, {"type": "ExternalIP", "address": "192.0.2.1"}]
    status = {"nodeName": "n1", "internalNodeStatus": {"addresses": addresses, "nodeInfo": {"kubeletVersion": "v1.36.3"}}}
    node = {"metadata": {**META, "namespace": "c-m-a"}, "spec": {"requestedHostname": "n1"}, "status": status}
    found = shown(types.NODE, node, STATE)
    assert (found["ipAddress"], found["externalIpAddress"], found["hostname"]) == ("10.0.0.1", "192.0.2.1", "n1")
    assert (found["clusterId"], found["info"]["kubernetes"]["kubeletVersion"]) == ("c-m-a", "v1.36.3")


def test_only_writable_fields_are_written() -> None:
    before = {"metadata": META, "spec": {"displayName": "a", "internal": False}, "status": {"nodeCount": 1}}
    body = {"name": "b", "internal": True, "nodeCount": 9, "state": "x", "id": "y", "description": "text"}
    found = changed(types.CLUSTER, before, body)
    assert found == {
        "metadata": META,
        "spec": {"displayName": "b", "internal": False, "description": "text"},
        "status": {"nodeCount": 1},
    }
    assert changed(types.CLUSTER, found, {"description": None})["spec"] == {"displayName": "b", "internal": False}


def test_fields_of_an_object_without_a_spec_are_its_own() -> None:
    found = changed(types.CLUSTER_BINDING, {"metadata": META}, {"clusterId": "c-m-a", "userId": "u-1", "roleTemplateId": "view"})
    assert found == {"metadata": META, "clusterName": "c-m-a", "userName": "u-1", "roleTemplateName": "view"}


@pytest.mark.parametrize(
    ("body", "message"),
    [
        ({"labels": ["a"]}, "labels must be a map of texts"),
        ({"annotations": {"a": 1}}, "annotations must be a map of texts"),
        ({"name": 1}, "name must be text"),
        ({"name": "a\nb"}, "name must be one line"),
    ],
)
def test_a_bad_body_is_refused_by_field(body: Obj, message: str) -> None:
    with pytest.raises(ApiError, match=message):
        changed(types.CLUSTER, {"metadata": META}, body)


@pytest.mark.parametrize(("identity", "namespaced"), [("a:b", False), ("a", True), (":b", True), ("a:", True)])
def test_an_id_of_another_form_names_nothing(identity: str, namespaced: bool) -> None:
    with pytest.raises(ApiError) as caught:
        key_of("cluster", identity, namespaced=namespaced)
    assert caught.value.code == 404
    assert key_of("project", "a:b", namespaced=True) == ("a", "b")
