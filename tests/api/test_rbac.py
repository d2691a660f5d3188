"""What roles allow: verbs, resources, names and paths; what they refuse, and in which words; who may write them."""

from __future__ import annotations

from typing import Any

import pytest

from .builders import CMS, PODS, SECRETS, cm, pod
from .callers import (
    RBAC,
    acting,
    attributes_of,
    binding,
    grant,
    group_subject,
    role,
    rule,
    ungrant,
    until,
    user_subject,
    wait_allowed,
)
from .harness import APPLY, JSON_PATCH, Pair

ROLES = RBAC + "/namespaces/{ns}/roles"
BINDINGS = RBAC + "/namespaces/{ns}/rolebindings"
CLUSTER_ROLES = RBAC + "/clusterroles"
CLUSTER_BINDINGS = RBAC + "/clusterrolebindings"


def jane(pair: Pair) -> str:
    return f"{pair.ns}-jane"


@pytest.mark.parametrize(
    ("method", "path"),
    [
        ("GET", CMS + "/a"),
        ("GET", CMS),
        ("GET", CMS + "?watch=1"),
        ("GET", "/api/v1/configmaps"),
        ("GET", "/api/v1/watch/configmaps"),
        ("GET", "/api/v1/watch/namespaces/{ns}/configmaps/a"),
        ("POST", CMS),
        ("PUT", CMS + "/a"),
        ("PATCH", CMS + "/a"),
        ("DELETE", CMS + "/a"),
        ("DELETE", CMS),
        ("GET", "/api/v1/nodes"),
        ("GET", "/api/v1/nodes/n1"),
        ("GET", "/api/v1/namespaces/{ns}"),
        ("POST", "/api/v1/namespaces"),
        ("GET", PODS + "/p/status"),
        ("PUT", PODS + "/p/status"),
        ("POST", PODS + "/p/eviction"),
        ("POST", PODS + "/p/binding"),
        ("GET", PODS + "/p/log"),
        ("POST", PODS + "/p/exec"),
        ("GET", "/apis/apps/v1/namespaces/{ns}/deployments/d/scale"),
        ("POST", "/api/v1/namespaces/{ns}/serviceaccounts/default/token"),
        ("PUT", "/api/v1/namespaces/{ns}/finalize"),
        ("GET", "/apis/nothing.example.com/v1/namespaces/{ns}/things/x"),
        ("GET", "/apis/nothing.example.com/v1/things"),
        ("GET", CMS + "?fieldSelector=metadata.name%3Da"),
        ("GET", "/logs"),
        ("GET", "/metrics"),
        ("POST", "/nothing"),
        ("GET", "/apis/authorization.k8s.io/v1/namespaces/{ns}/localsubjectaccessreviews"),
        ("POST", "/apis/authorization.k8s.io/v1/namespaces/{ns}/localsubjectaccessreviews"),
        ("POST", "/apis/authorization.k8s.io/v1/subjectaccessreviews"),
        ("POST", "/apis/authentication.k8s.io/v1/tokenreviews"),
        ("OPTIONS", CMS),
    ],
)
def test_a_user_without_roles_is_told_what_was_missing(pair: Pair, method: str, path: str) -> None:
    headers = {"Content-Type": "application/merge-patch+json"} if method == "PATCH" else None
    body = {} if method in ("POST", "PUT", "PATCH") else None
    assert acting(pair, "jane").send(method, path, body, headers).status == 403


@pytest.mark.parametrize("path", ["/api", "/apis", "/version", "/healthz", "/livez", "/readyz", "/openapi/v3", "/apis/apps/v1"])
def test_every_known_user_may_discover(pair: Pair, path: str) -> None:
    # Health is a matter of the moment: a server whose store takes its time is not well meanwhile.
    both = acting(pair, "jane").eventually(path, lambda answer: answer.status != 500, ignore=lambda body: None)
    assert both.status == 200


VERBS = ["get", "list", "watch", "create", "update", "patch", "delete", "deletecollection"]


@pytest.mark.parametrize("verb", VERBS)
def test_a_rule_allows_its_verb_and_no_other(pair: Pair, verb: str) -> None:
    pair.post(CMS, cm("a"))
    grant(pair, jane(pair), rule([verb], ["configmaps"]))
    caller = acting(pair, jane(pair))
    caller.get(CMS + "/a")
    caller.get(CMS + "?fieldSelector=metadata.name%3Da")
    caller.post(CMS, cm("b"))
    caller.put(CMS + "/a", cm("a", x="1"))
    caller.patch(CMS + "/a", {"data": {"y": "2"}})
    caller.delete(CMS + "?labelSelector=nope")
    caller.delete(CMS + "/a")
    watched = CMS + "?watch=1&timeoutSeconds=1&fieldSelector=metadata.name%3Dnope"
    caller.get(watched)


def test_all_verbs_by_a_star(pair: Pair) -> None:
    grant(pair, jane(pair), rule(["*"], ["configmaps"]))
    caller = acting(pair, jane(pair))
    assert caller.post(CMS, cm("a")).status == 201
    assert caller.delete(CMS + "/a").status == 200
    assert caller.get(SECRETS).status == 403


def test_all_resources_by_a_star_are_those_of_the_group(pair: Pair) -> None:
    grant(pair, jane(pair), rule(["get", "list"], ["*"]))
    caller = acting(pair, jane(pair))
    assert caller.get(SECRETS + "/none").status == 404
    assert caller.get(PODS + "/none/status").status == 404
    assert caller.get("/apis/apps/v1/namespaces/{ns}/deployments").status == 403


def test_all_groups_by_a_star(pair: Pair) -> None:
    grant(pair, jane(pair), rule(["get"], ["deployments"], ["*"]))
    assert acting(pair, jane(pair)).get("/apis/apps/v1/namespaces/{ns}/deployments/none").status == 404


def test_a_subresource_is_not_its_parent(pair: Pair) -> None:
    pair.post(PODS, pod("p"))
    grant(pair, jane(pair), rule(["get"], ["pods"]))
    caller = acting(pair, jane(pair))
    assert caller.get(PODS + "/p").status == 200
    assert caller.get(PODS + "/p/status").status == 403


def test_a_parent_is_not_its_subresource(pair: Pair) -> None:
    pair.post(PODS, pod("p"))
    grant(pair, jane(pair), rule(["get"], ["pods/status"]))
    caller = acting(pair, jane(pair))
    assert caller.get(PODS + "/p").status == 403
    assert caller.get(PODS + "/p/status").status == 200


def test_one_subresource_of_all_resources(pair: Pair) -> None:
    grant(pair, jane(pair), rule(["get"], ["*/scale"], ["apps"]))
    caller = acting(pair, jane(pair))
    assert caller.get("/apis/apps/v1/namespaces/{ns}/deployments/none/scale").status == 404
    assert caller.get("/apis/apps/v1/namespaces/{ns}/deployments/none/status").status == 403


def test_names_narrow_a_rule(pair: Pair) -> None:
    for name in ("a", "b"):
        pair.post(CMS, cm(name))
    verbs = ["get", "list", "watch", "create", "update", "patch", "delete", "deletecollection"]
    grant(pair, jane(pair), rule(verbs, ["configmaps"], resourceNames=["a"]))
    caller = acting(pair, jane(pair))
    assert caller.get(CMS + "/a").status == 200
    assert caller.get(CMS + "/b").status == 403
    assert caller.get(CMS).status == 403
    assert caller.post(CMS, cm("c")).status == 403
    assert caller.patch(CMS + "/b", {"data": {}}).status == 403
    assert caller.delete(CMS).status == 403


@pytest.mark.parametrize(
    ("query", "status"),
    [
        ("fieldSelector=metadata.name%3Da", 200),
        ("fieldSelector=metadata.name%3D%3Da", 200),
        ("fieldSelector=metadata.name%3Db", 403),
        ("fieldSelector=metadata.name%21%3Db", 403),
        ("fieldSelector=metadata.name%3Da,metadata.namespace%3Dx", 200),
        ("fieldSelector=metadata.namespace%3Dx", 403),
        ("labelSelector=metadata.name%3Da", 403),
        ("watch=1&timeoutSeconds=1&fieldSelector=metadata.name%3Dzz", 403),
        ("fieldSelector=bad%3D%3D%3Dselector", 403),
    ],
)
def test_a_list_by_name_needs_only_that_name(pair: Pair, query: str, status: int) -> None:
    pair.post(CMS, cm("a"))
    grant(pair, jane(pair), rule(["list", "watch"], ["configmaps"], resourceNames=["a"]))
    assert acting(pair, jane(pair)).get(f"{CMS}?{query}").status == status


def test_a_watch_by_name_needs_only_that_name(pair: Pair) -> None:
    grant(pair, jane(pair), rule(["list", "watch"], ["configmaps"], resourceNames=["a"]))
    assert acting(pair, jane(pair)).get(CMS + "?watch=1&timeoutSeconds=1&fieldSelector=metadata.name%3Da").status == 200


def test_a_delete_of_many_by_name_needs_only_that_name(pair: Pair) -> None:
    pair.post(CMS, cm("a"))
    grant(pair, jane(pair), rule(["deletecollection"], ["configmaps"], resourceNames=["a"]))
    acting(pair, jane(pair)).delete(CMS + "?fieldSelector=metadata.name%3Da")


def test_a_create_by_put_needs_create_too(pair: Pair) -> None:
    leases = "/apis/coordination.k8s.io/v1/namespaces/{ns}/leases"
    body = {"apiVersion": "coordination.k8s.io/v1", "kind": "Lease", "metadata": {"name": "l"}, "spec": {}}
    grant(pair, jane(pair), rule(["update", "patch"], ["leases"], ["coordination.k8s.io"]))
    caller = acting(pair, jane(pair))
    assert caller.put(leases + "/l", body).status == 403
    caller.patch(leases + "/l?fieldManager=x", body, APPLY)


def test_an_apply_that_creates_needs_patch_and_create(pair: Pair) -> None:
    grant(pair, jane(pair), rule(["patch"], ["configmaps"]))
    assert acting(pair, jane(pair)).apply(CMS + "/new", cm("new", x="1")).status == 403
    grant(pair, jane(pair), rule(["create"], ["configmaps"]), name="more")
    assert acting(pair, jane(pair)).apply(CMS + "/new", cm("new", x="1")).status == 201


def test_paths_that_are_no_resources(pair: Pair) -> None:
    grant(pair, jane(pair), {"verbs": ["get"], "nonResourceURLs": ["/metrics", "/debug/*"]}, cluster=True)
    caller = acting(pair, jane(pair))
    assert caller.get("/metrics", ignore=lambda body: None).status == 200
    assert caller.get("/debug/nothing", compare=False).ours.status == 404
    assert caller.get("/metrics/nothing").status == 403
    assert caller.post("/metrics").status == 403
    ungrant(pair)


def test_a_cluster_role_bound_in_a_namespace_reaches_no_further(pair: Pair) -> None:
    name = f"{pair.ns}-reader"
    pair.post(CLUSTER_ROLES, role(name, rule(["get", "list"], ["configmaps"]), cluster=True))
    pair.post(BINDINGS, binding("b", name, user_subject(jane(pair)), role_kind="ClusterRole"))
    wait_allowed(pair, jane(pair), attributes_of(pair, rule(["get"], ["configmaps"])))
    caller = acting(pair, jane(pair))
    assert caller.get(CMS + "?labelSelector=nope").status == 200
    assert caller.get("/api/v1/namespaces/default/configmaps").status == 403
    assert caller.get("/api/v1/configmaps").status == 403
    pair.delete(f"{CLUSTER_ROLES}/{name}")


def test_a_binding_to_a_group(pair: Pair) -> None:
    pair.post(ROLES, role("r", rule(["get"], ["configmaps"])))
    pair.post(BINDINGS, binding("b", "r", group_subject(f"{pair.ns}-devs")))
    until(lambda: acting(pair, "joe", [f"{pair.ns}-devs"]).get(CMS + "/none", compare=False), 404)
    assert acting(pair, "joe", [f"{pair.ns}-devs"]).get(CMS + "/none").status == 404
    assert acting(pair, "joe", ["other"]).get(CMS + "/none").status == 403


def test_a_binding_to_a_role_that_is_not_there_gives_nothing(pair: Pair) -> None:
    pair.post(BINDINGS, binding("b", "missing", user_subject(jane(pair))))
    # A refusal names the role once the authorizer has heard of the binding.
    refused = acting(pair, jane(pair)).eventually(CMS, lambda answer: '"missing" not found' in str(answer.json.get("message")))
    assert refused.status == 403


def test_a_right_ends_with_its_binding(pair: Pair) -> None:
    grant(pair, jane(pair), rule(["get"], ["configmaps"]))
    pair.delete(BINDINGS + "/granted")
    wait_allowed(pair, jane(pair), attributes_of(pair, rule(["get"], ["configmaps"])), allowed=False)
    assert acting(pair, jane(pair)).get(CMS + "/a").status == 403


# --- the objects themselves ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "body",
    [
        role("ok", rule(["get"], ["pods"])),
        role("no-verbs", rule([], ["pods"])),
        role("no-groups", {"verbs": ["get"], "resources": ["pods"]}),
        role("no-resources", {"verbs": ["get"], "apiGroups": [""]}),
        role("paths", {"verbs": ["get"], "nonResourceURLs": ["/x"]}),
        role("both", {"verbs": ["get"], "apiGroups": [""], "resources": ["pods"], "nonResourceURLs": ["/x"]}),
        role("bad/name"),
        role(".."),
        role("empty"),
        role("names", rule(["create", "get"], ["pods"], resourceNames=["a"])),
    ],
    ids=lambda body: body["metadata"]["name"],
)
def test_a_role_is_checked(pair: Pair, body: dict[str, Any]) -> None:
    pair.post(ROLES, body)


@pytest.mark.parametrize(
    "body",
    [
        role("both", {"verbs": ["get"], "apiGroups": [""], "resources": ["pods"], "nonResourceURLs": ["/x"]}, cluster=True),
        role("path", {"verbs": ["get"], "nonResourceURLs": ["x", "/a*b"]}, cluster=True),
        role("star", {"verbs": ["*"], "nonResourceURLs": ["*"]}, cluster=True),
        {**role("sel", cluster=True), "aggregationRule": {"clusterRoleSelectors": []}},
        {**role("badsel", cluster=True), "aggregationRule": {"clusterRoleSelectors": [{"matchLabels": {"bad key": "x"}}]}},
        {**role("nilsel", cluster=True), "aggregationRule": {}},
    ],
    ids=lambda body: body["metadata"]["name"],
)
def test_a_cluster_role_is_checked(pair: Pair, body: dict[str, Any]) -> None:
    pair.post(CLUSTER_ROLES + "?dryRun=All", body)


@pytest.mark.parametrize(
    "change",
    [
        {},
        {"subjects": [{"kind": "ServiceAccount", "name": "default"}]},
        {"subjects": [{"kind": "ServiceAccount", "name": "Bad_Name", "namespace": "x"}]},
        {"subjects": [{"kind": "Robot", "name": "x"}]},
        {"subjects": [{"kind": "User"}]},
        {"subjects": [{"kind": "User", "name": "x", "apiGroup": "wrong"}]},
        {"subjects": [{"kind": "Group", "name": "x"}]},
        {"subjects": [{"kind": "ServiceAccount", "name": "x", "namespace": "y", "apiGroup": "wrong"}]},
        {"roleRef": {}},
        {"roleRef": {"kind": "Other", "name": "r"}},
        {"roleRef": {"apiGroup": "wrong", "kind": "Role", "name": "r"}},
        {"roleRef": {"kind": "Role", "name": "bad/name"}},
        {"roleRef": {"kind": "Role", "name": "r"}},
    ],
    ids=lambda change: str(change)[:70],
)
def test_a_binding_is_checked(pair: Pair, change: dict[str, Any]) -> None:
    body = {**binding("b", "view", user_subject("x"), role_kind="ClusterRole"), **change}
    pair.post(BINDINGS, body)


def test_a_cluster_binding_names_a_cluster_role(pair: Pair) -> None:
    body = binding(f"{pair.ns}-b", "r", user_subject("x"), role_kind="Role", cluster=True)
    assert pair.post(CLUSTER_BINDINGS, body).status == 422


def test_what_a_binding_binds_can_not_change(pair: Pair) -> None:
    pair.post(BINDINGS, binding("b", "view", user_subject("x"), role_kind="ClusterRole"))
    assert pair.patch(BINDINGS + "/b", {"roleRef": {"name": "edit"}}).status == 422
    assert pair.patch(BINDINGS + "/b", {"subjects": [user_subject("y")]}).status == 200


# --- escalation ---------------------------------------------------------------------------------------------------------


def owner_of_roles(pair: Pair, *more: dict[str, Any]) -> Any:
    group = ["rbac.authorization.k8s.io"]
    grant(
        pair, jane(pair), rule(["create", "update", "patch", "get", "delete"], ["roles", "rolebindings"], group),
        rule(["get"], ["configmaps"]), *more,
    )  # fmt: skip
    return acting(pair, jane(pair))


@pytest.mark.parametrize(
    "given",
    [
        rule(["get"], ["configmaps"]),
        rule(["get"], ["configmaps"], resourceNames=["a"]),
        rule(["get", "list"], ["configmaps"]),
        rule(["get"], ["secrets"]),
        rule(["*"], ["*"], ["*"]),
        rule(["get"], ["configmaps", "secrets"]),
        rule(["get"], ["configmaps/status"]),
        rule(["get"], ["configmaps"], ["", "apps"]),
    ],
    ids=["held", "narrower", "verb", "resource", "everything", "one-of-two", "subresource", "group"],
)
def test_nobody_gives_what_they_do_not_have(pair: Pair, given: dict[str, Any]) -> None:
    owner_of_roles(pair).post(ROLES, role("given", given))


def test_an_update_may_not_widen_a_role(pair: Pair) -> None:
    caller = owner_of_roles(pair)
    pair.post(ROLES, role("r", rule(["get"], ["configmaps"])))
    assert caller.patch(ROLES + "/r", [{"op": "add", "path": "/rules/0/verbs/-", "value": "delete"}], JSON_PATCH).status == 403
    assert caller.patch(ROLES + "/r", {"metadata": {"labels": {"a": "b"}}}).status == 200


def test_a_role_that_was_wider_may_be_narrowed(pair: Pair) -> None:
    caller = owner_of_roles(pair)
    pair.post(ROLES, role("r", rule(["get"], ["secrets"])))
    caller.patch(ROLES + "/r", {"metadata": {"labels": {"a": "b"}}})
    caller.patch(ROLES + "/r", {"rules": []})


def test_the_escalate_verb_lifts_it(pair: Pair) -> None:
    caller = owner_of_roles(pair, rule(["escalate"], ["roles"], ["rbac.authorization.k8s.io"]))
    assert caller.post(ROLES, role("given", rule(["*"], ["*"], ["*"]))).status == 201


def test_binding_a_role_needs_its_rights_or_the_bind_verb(pair: Pair) -> None:
    caller = owner_of_roles(pair, rule(["bind"], ["clusterroles"], ["rbac.authorization.k8s.io"], resourceNames=["view"]))
    assert caller.post(BINDINGS, binding("b1", "admin", user_subject("joe"), role_kind="ClusterRole")).status == 403
    assert caller.post(BINDINGS, binding("b2", "view", user_subject("joe"), role_kind="ClusterRole")).status == 201
    pair.post(ROLES, role("held", rule(["get"], ["configmaps"])))
    assert caller.post(BINDINGS, binding("b3", "held", user_subject("joe"))).status == 201
    caller.post(BINDINGS, binding("b4", "missing", user_subject("joe")))


def test_cluster_roles_are_guarded_too(pair: Pair) -> None:
    group = ["rbac.authorization.k8s.io"]
    grant(pair, jane(pair), rule(["create"], ["clusterroles", "clusterrolebindings"], group), cluster=True)
    caller = acting(pair, jane(pair))
    name = f"{pair.ns}-wide"
    assert caller.post(CLUSTER_ROLES, role(name, rule(["get"], ["nodes"]), cluster=True)).status == 403
    urls = {"verbs": ["get"], "nonResourceURLs": ["/metrics"]}
    assert caller.post(CLUSTER_ROLES, role(name, urls, cluster=True)).status == 403
    body = binding(name, "cluster-admin", user_subject(jane(pair)), role_kind="ClusterRole", cluster=True)
    assert caller.post(CLUSTER_BINDINGS, body).status == 403
    aggregating = {**role(name, cluster=True), "aggregationRule": {"clusterRoleSelectors": [{"matchLabels": {"x": "y"}}]}}
    assert caller.post(CLUSTER_ROLES, aggregating).status == 403
    ungrant(pair)


# --- aggregation and bootstrap ------------------------------------------------------------------------------------------


def test_an_aggregated_role_is_filled(pair: Pair) -> None:
    name, label = f"{pair.ns}-all", {"aggregate": pair.ns}
    selectors = [{"matchLabels": label}]
    whole = {**role(name, rule(["get"], ["dropped"]), cluster=True), "aggregationRule": {"clusterRoleSelectors": selectors}}
    pair.post(CLUSTER_ROLES, whole)
    pair.post(CLUSTER_ROLES, role(f"{pair.ns}-2", rule(["get"], ["pods"]), rule(["list"], ["pods"]), cluster=True, labels=label))
    pair.post(CLUSTER_ROLES, role(f"{pair.ns}-1", rule(["get"], ["nodes"]), rule(["get"], ["pods"]), cluster=True, labels=label))
    pair.eventually(f"{CLUSTER_ROLES}/{name}", lambda answer: len(answer.json.get("rules") or []) == 3)
    pair.delete(f"{CLUSTER_ROLES}/{pair.ns}-1")
    pair.eventually(f"{CLUSTER_ROLES}/{name}", lambda answer: len(answer.json.get("rules") or []) == 2)
    # The whole first: a controller that empties it for want of parts applies, and that would bring it back.
    for each in (name, f"{pair.ns}-2"):
        pair.delete(f"{CLUSTER_ROLES}/{each}")


def names_of(kind: str) -> Any:
    return lambda body: sorted(item["metadata"]["name"] for item in body["items"] if item["metadata"]["name"].startswith(kind))


@pytest.mark.parametrize("where", [CLUSTER_ROLES, CLUSTER_BINDINGS, RBAC + "/roles", RBAC + "/rolebindings"])
def test_the_usual_roles_and_bindings_are_there(pair: Pair, where: str) -> None:
    label = "?labelSelector=kubernetes.io/bootstrapping%3Drbac-defaults"

    def shown(body: Any) -> Any:
        for item in body["items"]:
            for entry in item["metadata"].get("managedFields", []):
                entry["manager"] = "<server>"
        return body["items"]

    pair.get(where + label, ignore=shown)


@pytest.mark.parametrize("name", ["admin", "edit", "view"])
def test_the_roles_for_users_are_filled(pair: Pair, name: str) -> None:
    both = pair.eventually(
        f"{CLUSTER_ROLES}/{name}", lambda answer: bool(answer.json.get("rules")), ignore=lambda body: body["rules"]
    )
    assert both.json["rules"]
