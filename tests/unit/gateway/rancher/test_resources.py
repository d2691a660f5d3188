"""One object as clients read it, and back; the kinds and schemas that it is shown with."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from remuda.gateway.rancher import kinds, query, schemas
from remuda.gateway.rancher.kinds import Kind, Kinds
from remuda.gateway.rancher.relationships import relationships_of
from remuda.gateway.rancher.resources import Shape, States, shape_of, stored_form
from remuda.gateway.rancher.schemas import Permissions, UsableKinds
from remuda.kube.authorization.rbac import Rbac
from remuda.kube.authorization.users import AUTHENTICATED, User
from remuda.kube.errors import ApiError

Obj = dict[str, Any]
BASE = "https://remuda.example/v1"
VERBS = ["get", "list", "watch", "create", "update", "patch", "delete"]
ANN = User("ann", groups=(AUTHENTICATED,))

LISTS: list[Obj] = [
    {
        "groupVersion": "v1",
        "resources": [
            {"name": "secrets", "kind": "Secret", "namespaced": True, "verbs": VERBS},
            {"name": "events", "kind": "Event", "namespaced": True, "verbs": VERBS},
            {"name": "nodes", "kind": "Node", "namespaced": False, "verbs": VERBS},
            {"name": "pods", "kind": "Pod", "namespaced": True, "verbs": VERBS},
            {"name": "pods/log", "kind": "Pod", "namespaced": True, "verbs": ["get"]},
        ],
    },
    {
        "groupVersion": "management.cattle.io/v3",
        "resources": [
            {"name": name, "kind": kind, "verbs": VERBS} for name, kind in (("clusters", "Cluster"), ("settings", "Setting"))
        ],
    },
    {"groupVersion": "apps/v1", "resources": [{"name": "deployments", "kind": "Deployment", "namespaced": True, "verbs": VERBS}]},
]
DEFINITION: Obj = {
    "kind": "CustomResourceDefinition",
    "metadata": {"name": "clusters.management.cattle.io", "annotations": {"a": "b"}},
    "spec": {
        "group": "management.cattle.io",
        "names": {"plural": "clusters"},
        "versions": [
            {
                "name": "v3",
                "schema": {"large": True},
                "additionalPrinterColumns": [{"name": "Display Name", "type": "string", "jsonPath": ".spec.displayName"}],
            }
        ],
    },
}
KINDS = kinds.read(LISTS, kinds.custom_columns([kinds.defined_columns(DEFINITION)]))


class Stored:
    """Roles and bindings as an ObjectSource."""

    def __init__(self, *objects: Obj) -> None:
        self._objects = objects

    def subscribe(self, group: str, resource: str, listener: Callable[[Obj | None, Obj | None], None]) -> None:
        for obj in self._objects:
            if f"{obj['kind'].lower()}s" == resource:
                listener(obj, None)

    def get(self, group: str, resource: str, namespace: str, name: str) -> Obj | None:
        return None

    def list(self, group: str, resource: str, namespace: str = "") -> list[Obj]:
        return []


def granted(*rules: Obj, namespace: str = "") -> Rbac:
    """Ann's permissions, everywhere or in one namespace."""
    meta = {"name": "ann", **({"namespace": namespace} if namespace else {})}
    role = {"kind": "ClusterRole", "metadata": {"name": "ann"}, "rules": list(rules)}
    subjects = [{"kind": "User", "name": "ann"}]
    binding = {"kind": "RoleBinding" if namespace else "ClusterRoleBinding", "metadata": meta, "subjects": subjects}
    return Rbac(Stored(role, {**binding, "roleRef": {"kind": "ClusterRole", "name": "ann"}}))


def rule(verbs: list[str], group: str, resource: str, *names: str) -> Obj:
    found: Obj = {"verbs": verbs, "apiGroups": [group], "resources": [resource]}
    return {**found, **({"resourceNames": list(names)} if names else {})}


def kind(name: str) -> Kind:
    found = KINDS.find(name)
    assert found is not None
    return found


def shape(rbac: Rbac, text: str = "", **more: tuple[str, ...]) -> Shape:
    return shape_of(query.parse(text), BASE, KINDS, Permissions(rbac, ANN), States(), 0.0, more)


# --- kinds and schemas ----------------------------------------------------------------------------------------------------


def test_a_kind_is_found_by_its_id_and_its_plural_in_any_case() -> None:
    for name in ("management.cattle.io.cluster", "management.cattle.io.clusters", "Management.cattle.io.Cluster"):
        assert kind(name).gvr == ("management.cattle.io", "v3", "clusters")
    assert kind("pod").id == "pod"
    assert KINDS.find("pods/log") is None


def test_columns_are_those_of_the_definition_or_of_kubernetes() -> None:
    assert [column.name for column in kind("management.cattle.io.cluster").columns] == ["Name", "Display Name"]
    assert [column.name for column in kind("management.cattle.io.setting").columns] == ["Name", "Age"]
    assert len(kind("event").columns) == 10


def test_each_group_is_read_in_its_preferred_version() -> None:
    groups = {"groups": [{"name": "a", "preferredVersion": {"version": "v2"}}, {"name": "b", "versions": [{"version": "v1"}]}]}
    assert kinds.preferred_versions(groups, {"versions": ["v1"]}) == [("", "v1"), ("a", "v2"), ("b", "v1")]


def test_the_schema_is_what_the_caller_may_do() -> None:
    rbac = granted(rule(["get", "list"], "", "secrets"), rule(["update"], "", "nodes"))
    usable = UsableKinds().of(Permissions(rbac, ANN), KINDS)
    assert set(usable) == {"secret", "node"}
    secret, node = (schemas.shown(usable[name], BASE) for name in ("secret", "node"))
    assert (secret["collectionMethods"], secret["resourceMethods"]) == (["GET"], ["GET"])
    assert secret["links"] == {"self": f"{BASE}/schemas/secret", "collection": f"{BASE}/secrets"}
    assert secret["attributes"]["verbs"] == ["get", "list"]
    assert (node["collectionMethods"], node["resourceMethods"], "collection" in node["links"]) == ([], ["PUT"], False)


@pytest.mark.parametrize(
    "rbac",
    [granted(rule(["list"], "", "secrets"), namespace="a"), granted(rule(["list"], "", "secrets", "one"))],
    ids=["in one namespace", "on one name"],
)
def test_a_permission_somewhere_shows_the_schema(rbac: Rbac) -> None:
    assert UsableKinds().of(Permissions(rbac, ANN), KINDS)["secret"].verbs == {"list"}


def test_schemas_follow_a_change_of_roles() -> None:
    rbac, known = granted(rule(["list"], "", "secrets")), UsableKinds()
    assert set(known.of(Permissions(rbac, ANN), KINDS)) == {"secret"}
    rbac._role_changed({"metadata": {"name": "ann"}, "rules": [rule(["list"], "", "nodes")]}, None)
    assert set(known.of(Permissions(rbac, ANN), KINDS)) == {"node"}


# --- one object -----------------------------------------------------------------------------------------------------------


def test_an_object_has_id_type_links_columns_and_state() -> None:
    rbac = granted(rule(["get", "update"], "management.cattle.io", "clusters"))
    obj = {"metadata": {"name": "c-1", "resourceVersion": "7"}, "spec": {"displayName": "demo"}}
    shown = shape(rbac).shown(kind("management.cattle.io.cluster"), obj)
    itself = f"{BASE}/management.cattle.io.clusters/c-1"
    assert (shown["id"], shown["type"]) == ("c-1", "management.cattle.io.cluster")
    assert shown["links"] == {"self": itself, "view": itself, "update": itself}
    assert (shown["apiVersion"], shown["kind"]) == ("management.cattle.io/v3", "Cluster")
    assert shown["metadata"]["fields"] == ["c-1", "demo"]
    assert shown["metadata"]["state"]["name"] == "active"
    assert shown["metadata"]["relationships"] == []
    assert "state" not in obj["metadata"]


def test_links_are_permissions_on_this_object() -> None:
    rbac = granted(rule(["delete"], "", "secrets", "mine"))
    links = [set(shape(rbac).links(kind("secret"), {"metadata": {"name": name, "namespace": "a"}})) for name in ("mine", "other")]
    assert links == [{"self", "view", "remove"}, {"self", "view"}]


def test_further_links_are_those_of_this_object_only() -> None:
    found = shape(granted(), **{"c-1": ("shell",)})
    assert found.links(kind("node"), {"metadata": {"name": "c-1"}})["shell"] == f"{BASE}/nodes/c-1?link=shell"
    assert "shell" not in found.links(kind("node"), {"metadata": {"name": "c-2"}})


def test_fields_with_a_name_of_ours_are_renamed_there_and_back() -> None:
    secret = {"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "s", "namespace": "a"}, "type": "Opaque"}
    shown = shape(granted()).shown(kind("secret"), secret)
    assert (shown["type"], shown["_type"]) == ("secret", "Opaque")
    assert stored_form(kind("secret"), shown) == secret


def test_a_field_named_type_is_kept_where_it_is_not_the_schema() -> None:
    assert stored_form(kind("secret"), {"metadata": {}, "type": "kubernetes.io/tls"})["type"] == "kubernetes.io/tls"


def test_an_object_is_stored_as_it_was_read() -> None:
    status = {"conditions": [{"type": "Ready", "status": "True", "lastUpdateTime": "t"}]}
    obj = {"apiVersion": "management.cattle.io/v3", "kind": "Cluster", "metadata": {"name": "c"}, "spec": {}, "status": status}
    assert (
        stored_form(kind("management.cattle.io.cluster"), shape(granted()).shown(kind("management.cattle.io.cluster"), obj))
        == obj
    )


@pytest.mark.parametrize("body", [[], "text", None, {"metadata": []}])
def test_what_is_no_object_is_refused(body: Any) -> None:
    with pytest.raises(ApiError) as refusal:
        stored_form(kind("secret"), body)
    assert refusal.value.code == 400


def test_fields_can_be_left_out_or_chosen() -> None:
    obj = {"metadata": {"name": "c", "managedFields": [1], "labels": {"a/b": "c"}}, "spec": {"displayName": "d", "x": 1}}
    cluster = kind("management.cattle.io.cluster")
    without = shape(granted(), "exclude=metadata.managedFields&exclude=metadata.labels[a/b]").shown(cluster, obj)
    assert "managedFields" not in without["metadata"] and without["metadata"]["labels"] == {}
    chosen = shape(granted(), "include=spec.displayName&include=metadata.state.name").shown(cluster, obj)
    assert set(chosen) == {"id", "type", "links", "actions", "metadata", "spec"}
    assert chosen["spec"] == {"displayName": "d"} and chosen["metadata"]["state"] == {"name": "active"}
    assert obj["metadata"]["labels"] == {"a/b": "c"}


def test_a_setting_shows_its_default_and_a_feature_explicit_nulls() -> None:
    setting = {"metadata": {"name": "ui-pl"}, "default": "rancher", "value": ""}
    assert shape(granted()).shown(kind("management.cattle.io.setting"), setting)["value"] == "rancher"
    feature = Kind(
        "management.cattle.io", "v3", "Feature", "features", False, frozenset(VERBS), id="management.cattle.io.feature"
    )
    shown = shape(granted()).shown(feature, {"metadata": {"name": "f"}, "status": {"default": True}})
    assert shown["spec"] == {"value": None} and shown["status"] == {"default": True, "lockedValue": None}


def test_a_state_is_computed_again_for_another_version() -> None:
    states = States()
    first = {"metadata": {"uid": "u", "resourceVersion": "1"}, "status": {"phase": "Pending"}}
    second = {"metadata": {"uid": "u", "resourceVersion": "2"}, "status": {"phase": "Running"}}
    assert [states.of(obj, 0.0).name for obj in (first, second, first)] == ["pending", "running", "pending"]


# --- relationships --------------------------------------------------------------------------------------------------------


def related(group: str, kind_: str, obj: Obj) -> list[tuple[str, ...]]:
    found = relationships_of(group, kind_, obj, Kinds(KINDS))
    return [tuple(str(each[key]) for key in each if key not in ("state", "message", "error", "transitioning")) for each in found]


def test_owners_are_named_in_the_objects_namespace_or_without_one() -> None:
    owners = [{"apiVersion": "apps/v1", "kind": "Deployment", "name": "d"}, {"apiVersion": "v1", "kind": "Node", "name": "n"}]
    obj = {"metadata": {"name": "x", "namespace": "a", "ownerReferences": owners}}
    assert related("", "Pod", obj) == [("a/d", "apps.deployment", "owner"), ("n", "node", "owner")]


def test_a_generated_cluster_names_the_cluster_that_it_was_generated_from() -> None:
    said = {
        "objectset.rio.cattle.io/owner-gvk": "provisioning.cattle.io/v1, Kind=Cluster",
        "objectset.rio.cattle.io/owner-name": "demo",
        "objectset.rio.cattle.io/owner-namespace": "fleet-default",
    }
    obj = {"metadata": {"name": "c-m-1", "annotations": said}}
    assert related("management.cattle.io", "Cluster", obj) == [
        ("fleet-default/demo", "provisioning.cattle.io.cluster", "applies")
    ]


def test_a_provisioned_cluster_names_its_managed_one() -> None:
    obj = {"metadata": {"name": "demo", "namespace": "fleet-default"}, "status": {"clusterName": "c-m-1"}}
    assert related("provisioning.cattle.io", "Cluster", obj) == [("c-m-1", "management.cattle.io.cluster", "creates")]


def test_a_workload_names_its_pods_and_what_they_use() -> None:
    spec = {
        "serviceAccountName": "robot",
        "volumes": [{"secret": {"secretName": "s"}}, {"configMap": {"name": "c"}}, {"persistentVolumeClaim": {"claimName": "p"}}],
        "containers": [{"envFrom": [{"secretRef": {"name": "s"}}], "env": [{"valueFrom": {"configMapKeyRef": {"name": "e"}}}]}],
    }
    obj = {
        "metadata": {"name": "d", "namespace": "a"},
        "spec": {"selector": {"matchLabels": {"app": "d"}}, "template": {"spec": spec}},
    }
    assert related("apps", "Deployment", obj) == [
        ("a/robot", "serviceaccount", "uses"),
        ("a/s", "secret", "uses"),
        ("a/c", "configmap", "uses"),
        ("a/p", "persistentvolumeclaim", "uses"),
        ("a/e", "configmap", "uses"),
        ("pod", "a", "app=d", "creates"),
    ]


def test_a_service_selects_pods_and_a_pod_names_its_node() -> None:
    service = {"metadata": {"name": "s", "namespace": "a"}, "spec": {"selector": {"app": "d"}}}
    assert related("", "Service", service) == [("pod", "a", "app=d", "selects")]
    assert related("", "Pod", {"metadata": {"namespace": "a"}, "spec": {"nodeName": "n1"}}) == [("n1", "node", "uses")]
