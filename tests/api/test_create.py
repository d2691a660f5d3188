"""POST: what a creator may say, what the server adds, and what it refuses."""

from __future__ import annotations

import json
import re
from typing import Any

import pytest
import yaml

from .builders import CMS, LEASES, NAMESPACES, PODS, SECRETS, cm, deployment, namespace, pod, with_meta
from .harness import APPLY, MERGE, STRATEGIC, Both, Pair

YAML = "application/yaml"


def generated(body: Any) -> Any:
    """The random end of a generated name differs, and nothing else."""
    name, base = body["metadata"]["name"], body["metadata"]["generateName"]
    assert name.startswith(base[:58]) and len(name) == min(len(base), 58) + 5
    body["metadata"]["name"] = "<generated>"
    return body


def test_generate_name_appends_five_characters(pair: Pair) -> None:
    pair.post(CMS, {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"generateName": "some-"}}, ignore=generated)


def test_generate_name_cuts_a_long_base(pair: Pair) -> None:
    pair.post(CMS, {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"generateName": "x" * 80 + "-"}}, ignore=generated)


def test_a_name_wins_over_generate_name(pair: Pair) -> None:
    assert pair.post(CMS, with_meta(cm("given"), generateName="some-")).json["metadata"]["name"] == "given"


def test_an_invalid_generate_name_is_refused(pair: Pair) -> None:
    def same_name(body: Any) -> Any:
        # The message names the generated object, which has a random end.
        name = body["details"]["name"]
        assert name.startswith("Not_Valid")
        return yaml.safe_load(yaml.safe_dump(body, width=10**6).replace(name, "<generated>"))

    body = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"generateName": "Not_Valid"}}
    assert pair.post(CMS, body, ignore=same_name).status == 422


@pytest.mark.parametrize(
    "name",
    ["UPPER", "under_score", "-dash", "dot.", "a" * 254, "sp ace", "sla/sh", "", "ünicode"],
    ids=lambda n: n[:12] or "empty",
)
def test_an_invalid_name_is_refused(pair: Pair, name: str) -> None:
    assert pair.post(CMS, cm(name)).status == 422


@pytest.mark.parametrize("name", ["a.b", "a..b", "a" * 64], ids=["dotted", "two-dots", "64-characters"])
def test_an_invalid_namespace_name_is_refused(pair: Pair, name: str) -> None:
    assert pair.post(NAMESPACES, namespace(name)).status == 422


def test_the_namespace_of_body_and_path_must_agree(pair: Pair) -> None:
    assert pair.post(CMS, with_meta(cm("a"), namespace="other")).status == 400


def test_the_namespace_comes_from_the_path_when_the_body_has_none(pair: Pair) -> None:
    assert pair.post(CMS, cm("a")).json["metadata"]["namespace"] == pair.ns


def test_a_namespaced_kind_can_not_be_created_without_a_namespace_in_the_path(pair: Pair) -> None:
    assert pair.post("/api/v1/configmaps", cm("a")).status == 405


def test_a_missing_namespace_is_named(pair: Pair) -> None:
    assert pair.post(f"/api/v1/namespaces/{pair.ns}-none/configmaps", cm("a")).status == 404


def test_a_cluster_scoped_kind_must_not_name_a_namespace(pair: Pair) -> None:
    role = {"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRole", "metadata": {"name": pair.ns}, "rules": []}
    path = "/apis/rbac.authorization.k8s.io/v1/clusterroles"
    pair.post(path, with_meta(role, namespace=pair.ns))
    pair.delete(f"{path}/{pair.ns}", compare=False)


def test_nothing_is_created_in_a_terminating_namespace(pair: Pair) -> None:
    gone = f"{pair.ns}-gone"
    pair.post(NAMESPACES, namespace(gone))
    pair.post(f"/api/v1/namespaces/{gone}/configmaps", with_meta(cm("held"), finalizers=["example.com/hold"]))
    pair.delete(f"{NAMESPACES}/{gone}", compare=False)
    answer = pair.post(f"/api/v1/namespaces/{gone}/configmaps", cm("late"))
    assert answer.status == 403
    pair.patch(f"/api/v1/namespaces/{gone}/configmaps/held", {"metadata": {"finalizers": None}}, compare=False)


@pytest.mark.parametrize(
    "body",
    [
        {"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "a"}},
        {"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "a"}},
        {"apiVersion": "v1", "kind": "Nonsense", "metadata": {"name": "a"}},
        {"apiVersion": "apps/v1", "kind": "ConfigMap", "metadata": {"name": "a"}},
        {"apiVersion": "v2", "kind": "ConfigMap", "metadata": {"name": "a"}},
        {"apiVersion": "a/b/c", "kind": "ConfigMap", "metadata": {"name": "a"}},
        {"apiVersion": "v1", "kind": "ConfigMapList", "items": []},
        {"apiVersion": "v1", "kind": "List", "items": []},
        {"apiVersion": "v1", "kind": "Status"},
        {"apiVersion": "v1", "kind": "DeleteOptions"},
        {"apiVersion": 1, "kind": "ConfigMap", "metadata": {"name": "a"}},
        {"apiVersion": "v1", "kind": ["ConfigMap"], "metadata": {"name": "a"}},
    ],
    ids=lambda body: f"{body['apiVersion']} {body['kind']}",
)
def test_another_kind_than_the_path_names_is_refused(pair: Pair, body: dict[str, Any]) -> None:
    assert pair.post(CMS, body).status == 400


@pytest.mark.parametrize(
    "body",
    [
        {"metadata": {"name": "a"}},
        {"kind": "ConfigMap", "metadata": {"name": "a"}},
        {"apiVersion": "v1", "metadata": {"name": "a"}},
    ],
    ids=["neither", "only-kind", "only-apiVersion"],
)
def test_kind_and_version_of_a_built_in_follow_from_the_path(pair: Pair, body: dict[str, Any]) -> None:
    assert pair.post(CMS, body).status == 201


@pytest.mark.parametrize(
    "body",
    [
        {"metadata": "text"},
        {"metadata": {"name": 7}},
        {"metadata": {"name": "a", "labels": {"x": 1}}},
        {"metadata": {"name": "a", "labels": ["x"]}},
        {"metadata": {"name": "a", "creationTimestamp": "yesterday"}},
        {"metadata": {"name": "a", "generation": "many"}},
        {"metadata": {"name": "a"}, "data": {"x": 1}},
        {"metadata": {"name": "a"}, "data": ["x"]},
        {"metadata": {"name": "a"}, "data": "x"},
        {"metadata": {"name": "a"}, "immutable": "yes"},
        {"metadata": {"name": "a"}, "binaryData": {"x": "not base64!"}},
        {"metadata": {"name": "a", "ownerReferences": {}}},
    ],
    ids=lambda body: str(body)[:60],
)
def test_a_field_of_the_wrong_type_is_named(pair: Pair, body: dict[str, Any]) -> None:
    assert pair.post(CMS, {"apiVersion": "v1", "kind": "ConfigMap", **body}).status == 400


def test_a_dry_run_answers_but_stores_nothing(pair: Pair) -> None:
    assert pair.post(CMS + "?dryRun=All", cm("a")).status == 201
    assert pair.get(CMS + "/a").status == 404


def test_a_dry_run_still_checks(pair: Pair) -> None:
    pair.post(CMS, cm("a"))
    assert pair.post(CMS + "?dryRun=All", cm("a")).status == 409
    assert pair.post(CMS + "?dryRun=All", cm("NOT")).status == 422


@pytest.mark.parametrize(
    "query",
    [
        "dryRun=foo",
        "dryRun=",
        "dryRun=All&dryRun=foo",
        "fieldManager=" + "x" * 129,
        "fieldManager=a%00b",
        "fieldManager=a%0Ab",
        "fieldValidation=Maybe",
        "fieldValidation=strict",
        "dryRun=foo&fieldManager=" + "x" * 129 + "&fieldValidation=Maybe",
    ],
    ids=lambda query: query[:40],
)
def test_a_bad_option_is_refused(pair: Pair, query: str) -> None:
    assert pair.post(f"{CMS}?{query}", cm("a")).status == 422


def test_a_field_manager_is_remembered(pair: Pair) -> None:
    pair.post(CMS + "?fieldManager=me", cm("a", x="1"))


UNKNOWN = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "a", "nick": "b"}, "data": {"x": "1"}, "extra": {"y": 1}}


@pytest.mark.parametrize("level", ["Strict", "Warn", "Ignore", ""])
def test_unknown_fields(pair: Pair, level: str) -> None:
    answer = pair.post(f"{CMS}?fieldValidation={level}", UNKNOWN)
    assert answer.status == (400 if level == "Strict" else 201)


@pytest.mark.parametrize("level", ["Strict", "Warn", "Ignore", ""])
def test_unknown_fields_in_yaml(pair: Pair, level: str) -> None:
    body = yaml.safe_dump(UNKNOWN).encode()
    pair.post(f"{CMS}?fieldValidation={level}", body, content_type=YAML)


DUPLICATE = b'{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"a","name":"b"},"data":{"x":"1","x":"2"},"data":{"y":"3"}}'


@pytest.mark.parametrize("level", ["Strict", "Warn", "Ignore"])
def test_duplicate_fields(pair: Pair, level: str) -> None:
    pair.post(f"{CMS}?fieldValidation={level}", DUPLICATE)


@pytest.mark.parametrize("level", ["Strict", "Warn", "Ignore"])
def test_duplicate_fields_in_yaml(pair: Pair, level: str) -> None:
    body = b"apiVersion: v1\nkind: ConfigMap\nmetadata:\n  name: a\ndata:\n  x: '1'\n  x: '2'\n"
    pair.post(f"{CMS}?fieldValidation={level}", body, content_type=YAML)


# Repeated and unknown fields in one document: (kind's path, body).
MIXED: dict[str, tuple[str, bytes]] = {
    "unknown first": (CMS, b'{"nome":1,"metadata":{"name":"a"},"data":{"x":"1","x":"2"}}'),
    "repeated first": (CMS, b'{"metadata":{"name":"b","name":"a"},"data":{"x":"1"},"nome":1}'),
    "by turns": (CMS, b'{"data":{"x":"1","x":"2"},"nome":1,"metadata":{"name":"b","nome":1,"name":"a"},"more":{}}'),
    "an unknown one repeated": (CMS, b'{"nome":1,"metadata":{"name":"a"},"nome":2}'),
    "repeated inside an unknown one": (CMS, b'{"nome":{"x":1,"x":2},"metadata":{"name":"a"},"data":{"y":"1","y":"2"}}'),
    "repeated three times": (CMS, b'{"metadata":{"name":"a","name":"a","nome":1,"name":"a"}}'),
    "in lists": (
        PODS,
        b'{"metadata":{"name":"a"},"spec":{"automountServiceAccountToken":false,"containers":[{"name":"c","image":"i","more":1},'
        b'{"name":"d","image":"i","image":"j","more":1}],"restartPolicy":"Always","less":1,"restartPolicy":"Never"}}',
    ),
    "a kind of the path": (CMS, b'{"kind":"ConfigMap","nome":1,"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"a"}}'),
}


@pytest.mark.parametrize("level", ["Strict", "Warn", "Ignore"])
@pytest.mark.parametrize("case", MIXED)
def test_unknown_and_duplicate_fields_in_one_document(pair: Pair, case: str, level: str) -> None:
    path, body = MIXED[case]
    pair.post(f"{path}?fieldValidation={level}", body)
    pair.put(f"{path}/a?fieldValidation={level}", body)


@pytest.mark.parametrize("level", ["Strict", "Warn"])
def test_unknown_and_duplicate_fields_in_yaml(pair: Pair, level: str) -> None:
    body = b"nome: 1\nmetadata:\n  name: a\n  nome: 2\ndata:\n  x: '1'\n  x: '2'\n"
    pair.post(f"{CMS}?fieldValidation={level}", body, content_type=YAML)


@pytest.mark.parametrize("level", ["Strict", "Warn"])
@pytest.mark.parametrize("kind", [MERGE, STRATEGIC, APPLY])
def test_unknown_and_duplicate_fields_in_a_patch(pair: Pair, kind: str, level: str) -> None:
    pair.post(CMS, cm("a"))
    body = b'{"nome":1,"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"a"},"data":{"x":"1","x":"2"}}'
    query = f"fieldValidation={level}&fieldManager=me"
    revision = re.compile(r'(resourceVersion\\+":\\+")\d+')
    pair.send(
        "PATCH",
        f"{CMS}/a?{query}",
        raw=body,
        content_type=kind,
        ignore=lambda said: json.loads(revision.sub(r"\1", json.dumps(said))),
    )


def test_unknown_fields_deep_in_lists_are_named(pair: Pair) -> None:
    body = deployment("d")
    body["spec"]["template"]["spec"]["containers"][0]["imag"] = "x"
    body["spec"]["template"]["spec"]["volumes"] = [{"name": "v", "emptyDir": {"sizeLimt": "1"}}]
    pair.post("/apis/apps/v1/namespaces/{ns}/deployments?fieldValidation=Strict", body)


def test_field_names_are_case_sensitive(pair: Pair) -> None:
    pair.post(CMS + "?fieldValidation=Warn", {"apiVersion": "v1", "kind": "ConfigMap", "Metadata": {}, "metadata": {"name": "a"}})


def test_a_resource_version_must_not_be_set(pair: Pair) -> None:
    assert pair.post(CMS, with_meta(cm("a"), resourceVersion="17")).status == 500


def test_a_resource_version_of_zero_is_let_through(pair: Pair) -> None:
    pair.post(CMS, with_meta(cm("a"), resourceVersion="0"))


def test_what_the_server_keeps_can_not_be_set(pair: Pair) -> None:
    body = with_meta(
        cm("a"),
        uid="11111111-2222-3333-4444-555555555555",
        creationTimestamp="2001-01-01T00:00:00Z",
        deletionTimestamp="2001-01-01T00:00:00Z",
        deletionGracePeriodSeconds=9,
        generation=7,
        selfLink="/x",
    )
    made = pair.post(CMS, body)
    for side in ("ours", "real"):
        assert made[side].json["metadata"]["uid"] != body["metadata"]["uid"]
        assert "2001" not in made[side].json["metadata"]["creationTimestamp"]


def test_a_duplicate_owner_reference_is_merged_with_a_warning(pair: Pair) -> None:
    owner = {"apiVersion": "v1", "kind": "ConfigMap", "name": "o", "uid": "11111111-2222-3333-4444-555555555555"}
    pair.post(CMS + "?dryRun=All", with_meta(cm("a"), ownerReferences=[owner, dict(owner)]))


@pytest.mark.parametrize(
    "owner",
    [
        {},
        {"apiVersion": "v1", "kind": "ConfigMap", "name": "o"},
        {"apiVersion": "v1", "kind": "Event", "name": "o", "uid": "u"},
        {"apiVersion": "a/b/c", "kind": "ConfigMap", "name": "o", "uid": "u"},
    ],
    ids=["empty", "no-uid", "event", "bad-version"],
)
def test_an_owner_reference_is_complete(pair: Pair, owner: dict[str, str]) -> None:
    assert pair.post(CMS, with_meta(cm("a"), ownerReferences=[owner])).status == 422


def test_only_one_owner_is_the_controller(pair: Pair) -> None:
    owners = [{"apiVersion": "v1", "kind": "ConfigMap", "name": n, "uid": n, "controller": True} for n in ("a", "b")]
    assert pair.post(CMS, with_meta(cm("a"), ownerReferences=owners)).status == 422


@pytest.mark.parametrize(
    "finalizers",
    [["plain"], ["bad finalizer"], ["example.com/ok", "orphan", "foregroundDeletion"]],
    ids=["plain", "invalid", "both-policies"],
)
def test_finalizers_are_checked(pair: Pair, finalizers: list[str]) -> None:
    pair.post(CMS + "?dryRun=All", with_meta(cm("a"), finalizers=finalizers))


@pytest.mark.parametrize(
    ("labels", "annotations"),
    [
        ({"bad key": "x"}, None),
        ({"a/b/c": "x"}, None),
        ({"ok": "bad value!"}, None),
        ({"ok": "x" * 64}, None),
        ({"UP.er/x": "y"}, None),
        (None, {"bad key": "x"}),
        (None, {"Example.com/x": "y"}),
        (None, {"big": "x" * 262145}),
        ({"": "x"}, {"": "x"}),
    ],
    ids=["key", "slashes", "value", "long", "prefix", "annotation-key", "annotation-prefix", "annotations-size", "empty"],
)
def test_labels_and_annotations_are_checked(pair: Pair, labels: Any, annotations: Any) -> None:
    pair.post(CMS + "?dryRun=All", with_meta(cm("a"), labels=labels, annotations=annotations))


def test_data_of_more_than_a_mebibyte_is_refused(pair: Pair) -> None:
    assert pair.post(CMS, cm("a", x="x" * (1024 * 1024 + 1))).status == 422


def test_an_object_too_large_for_the_store_is_refused(pair: Pair) -> None:
    labels = {"big": "x" * 200_000}
    body = with_meta(cm("a", x="x" * (1024 * 1024 - 10)), annotations=labels)
    body["binaryData"] = {}
    # 1 MiB of data and 200 KB of annotations still fit.
    assert pair.post(CMS + "?dryRun=All", body, ignore=lambda b: None).status == 201


def test_a_yaml_body(pair: Pair) -> None:
    body = b"apiVersion: v1\nkind: ConfigMap\nmetadata:\n  name: a\n  labels: {x: 'y'}\ndata:\n  text: |\n    one\n    two\n"
    assert pair.post(CMS, body, content_type=YAML).status == 201


@pytest.mark.parametrize(
    "text",
    [
        "a: b: c",
        "kind: ConfigMap\n  bad: indent",
        "- a\n- b",
        "just text",
        "{",
        "apiVersion: v1\nkind: ConfigMap\nmetadata:\n  name: yes\n",
    ],
    ids=["colon", "indent", "list", "text", "brace", "boolean-name"],
)
def test_a_bad_yaml_body_is_refused(pair: Pair, text: str) -> None:
    assert pair.post(CMS, text.encode(), content_type=YAML).status == 400


def test_a_json_body_is_yaml_too(pair: Pair) -> None:
    assert pair.post(CMS, cm("a", x="1"), content_type=YAML).status == 201


@pytest.mark.parametrize(
    "content_type",
    [
        "text/plain",
        "application/xml",
        "application/x-www-form-urlencoded",
        "application/json; charset=latin1",
        "nonsense",
        "application/merge-patch+json",
        "text/yaml",
    ],
)
def test_a_content_type_is_understood_or_refused(pair: Pair, content_type: str) -> None:
    pair.post(CMS, cm("a"), content_type=content_type)


def test_no_content_type_means_json(pair: Pair) -> None:
    pair.post(CMS, cm("a"), content_type="")


def test_create_can_not_name_the_object_in_the_path(pair: Pair) -> None:
    assert pair.post(CMS + "/a", cm("a")).status == 405


@pytest.mark.parametrize(
    ("method", "path"),
    [
        ("PUT", CMS),
        ("PATCH", CMS),
        ("POST", CMS + "/a"),
        ("PUT", "/api/v1/namespaces/{ns}/bindings"),
        ("GET", "/api/v1/namespaces/{ns}/bindings"),
        ("DELETE", "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews"),
        ("POST", PODS + "/a/status"),
        ("DELETE", PODS + "/a/status"),
        ("GET", PODS + "/a/binding"),
        ("GET", PODS + "/a/eviction"),
        ("DELETE", "/api/v1/namespaces"),
        ("OPTIONS", CMS),
        ("OPTIONS", CMS + "/a"),
        ("POST", "/api/v1"),
        ("PUT", "/apis/apps"),
        ("POST", "/version"),
    ],
)
def test_a_method_that_is_not_served(pair: Pair, method: str, path: str) -> None:
    headers = {"Content-Type": "application/merge-patch+json"} if method == "PATCH" else None
    pair.send(method, path, {} if method in ("PUT", "POST", "PATCH") else None, headers)


@pytest.mark.parametrize(
    "path",
    [
        "/nothing",
        "/api/v2",
        "/api/v1/nothing",
        "/api/v1/namespaces/{ns}/nothing",
        "/api/v1/namespaces/{ns}/nothing/a",
        CMS + "/a/status",
        CMS + "/a/b/c",
        "/apis/nothing.example.com",
        "/apis/nothing.example.com/v1",
        "/apis/nothing.example.com/v1/things",
        "/apis/apps/v2",
        "/apis/apps/v2/deployments",
        "/apis/apps/v1/namespaces/{ns}/configmaps",
        "/api/v1/namespaces/{ns}/nodes",
        "/api/v1/namespaces/{ns}/namespaces",
        "/api/v1/configmaps/a",
        "/api//v1",
        "/apis/",
        "/api/",
        "/api/v1/",
        "/apis/apps/",
        CMS + "/",
        CMS + "/a/",
        "//api/v1/namespaces",
        "/api/v1/namespaces/{ns}/",
        "/apis/apps/v1/namespaces/{ns}",
    ],
)
def test_a_path_that_is_not_served(pair: Pair, path: str) -> None:
    def without_list(body: Any) -> Any:
        # Discovery documents have cases of their own.
        return body if isinstance(body, str) or body.get("kind") == "Status" else body.get("kind")

    pair.get(path, ignore=without_list)


def test_head_answers_as_get_without_a_body(pair: Pair) -> None:
    pair.post(CMS, cm("a"))
    for path in (CMS + "/a", CMS, CMS + "/none"):
        both = pair.send("HEAD", path)
        for side in ("ours", "real"):
            assert both[side].raw == b""
        assert both.ours.headers.get("content-type") == both.real.headers.get("content-type")


def test_a_kind_that_allows_any_name_takes_it(pair: Pair) -> None:
    role = {"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "Role", "metadata": {"name": "odd:Name_here"}, "rules": []}
    pair.post("/apis/rbac.authorization.k8s.io/v1/namespaces/{ns}/roles", role)
    bad = with_meta(role, name="has/slash")
    pair.post("/apis/rbac.authorization.k8s.io/v1/namespaces/{ns}/roles", bad)


def test_status_is_dropped_on_create(pair: Pair) -> None:
    body = {**pod("p"), "status": {"phase": "Running", "podIP": "1.2.3.4"}}
    pair.post(PODS, body)


def test_a_secret_takes_string_data(pair: Pair) -> None:
    body = {
        "apiVersion": "v1",
        "kind": "Secret",
        "metadata": {"name": "s"},
        "stringData": {"a": "b"},
        "data": {"a": "eA==", "c": "ZA=="},
    }
    pair.post(SECRETS, body)


def test_a_lease_has_micro_times(pair: Pair) -> None:
    body = {
        "apiVersion": "coordination.k8s.io/v1",
        "kind": "Lease",
        "metadata": {"name": "l"},
        "spec": {"acquireTime": "2024-01-02T03:04:05.123456Z", "renewTime": "2024-01-02T03:04:05.000000Z", "leaseTransitions": 1},
    }
    made: Both = pair.post(LEASES, body)
    for side in ("ours", "real"):
        assert made[side].json["spec"]["renewTime"] == "2024-01-02T03:04:05.000000Z"
        assert made[side].json["spec"]["acquireTime"] == "2024-01-02T03:04:05.123456Z"


def test_times_are_normalised_to_seconds_in_utc(pair: Pair) -> None:
    body = pod("p")
    body["metadata"]["managedFields"] = []
    body["spec"]["tolerations"] = [{"key": "k", "operator": "Exists", "tolerationSeconds": 5}]
    pair.post(PODS, body)


def test_managed_fields_given_on_create_are_replaced(pair: Pair) -> None:
    fields = [
        {
            "manager": "other",
            "operation": "Update",
            "apiVersion": "v1",
            "fieldsType": "FieldsV1",
            "fieldsV1": {"f:data": {"f:x": {}}},
        }
    ]
    pair.post(CMS, with_meta(cm("a", x="1"), managedFields=fields))


def test_a_pretty_answer_is_indented(pair: Pair) -> None:
    both = pair.post(CMS + "?pretty=true", cm("a", x="1"))
    for side in ("ours", "real"):
        assert both[side].raw.startswith(b"{\n  ")
