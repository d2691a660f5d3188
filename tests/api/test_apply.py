"""Server-side apply: who owns what, who is in the way, and what becomes of fields that nobody wants any more."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from .builders import CMS, DEPLOYMENTS, PODS, cm, deployment, pod, with_meta
from .definitions import Obj, crd, defined, instance, path_of, spec_schema, version
from .harness import APPLY, Endpoint, Pair

TEXT = {"type": "string"}
ITEM = {"type": "object", "properties": {"k": TEXT, "v": TEXT, "w": TEXT}, "required": ["k"]}
PROPERTIES: Obj = {
    "a": TEXT,
    "b": TEXT,
    "n": {"type": "integer"},
    "atomic": {"type": "array", "items": TEXT},
    "set": {"type": "array", "items": TEXT, "x-kubernetes-list-type": "set"},
    "keyed": {"type": "array", "items": ITEM, "x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["k"]},
    "pairs": {
        "type": "array",
        "items": {
            "type": "object",
            "properties": {"p": {"type": "integer"}, "t": {"type": "string", "default": "tcp"}, "v": TEXT},
            "required": ["p"],
        },
        "x-kubernetes-list-type": "map",
        "x-kubernetes-list-map-keys": ["p", "t"],
    },
    "map": {"type": "object", "additionalProperties": TEXT},
    "whole": {"type": "object", "properties": {"x": TEXT, "y": TEXT}, "x-kubernetes-map-type": "atomic"},
    "nested": {"type": "object", "properties": {"x": TEXT, "y": {"type": "string", "default": "why"}}},
    "free": {"type": "object", "x-kubernetes-preserve-unknown-fields": True},
    "nullable": {"type": "string", "nullable": True},
    "embedded": {"type": "object", "x-kubernetes-embedded-resource": True, "x-kubernetes-preserve-unknown-fields": True},
}


@pytest.fixture(scope="module")
def kind(endpoints: dict[str, Endpoint]) -> Iterator[Obj]:
    pair = Pair(endpoints, ns="default")
    schema = spec_schema(**PROPERTIES)
    schema["properties"]["status"] = {"type": "object", "properties": {"s": TEXT, "t": TEXT}}
    definition = crd(pair, version(schema=schema, subresources={"status": {}}), plural="applied", kind="Applied")
    with defined(pair, definition):
        yield definition


def fields(**spec: Any) -> Obj:
    return spec


# Each step is (manager, spec, force); the answers of all steps are compared.
Step = tuple[str, Obj] | tuple[str, Obj, bool]
STORIES: dict[str, list[Step]] = {
    "create and apply again": [("one", fields(a="1")), ("one", fields(a="1")), ("one", fields(a="2"))],
    "a field is given up": [("one", fields(a="1", b="2")), ("one", fields(a="1"))],
    "two share a field": [("one", fields(a="1")), ("two", fields(a="1", b="2")), ("one", fields())],
    "two share and both give up": [("one", fields(a="1")), ("two", fields(a="1")), ("one", fields()), ("two", fields())],
    "conflict": [("one", fields(a="1")), ("two", fields(a="2"))],
    "conflict with two fields": [("one", fields(a="1", n=1)), ("two", fields(a="2", n=2))],
    "conflict with two managers": [("one", fields(a="1")), ("two", fields(b="1")), ("three", fields(a="2", b="2"))],
    "conflict with a shared field": [("one", fields(a="1")), ("two", fields(a="1")), ("three", fields(a="2"))],
    "force takes over": [("one", fields(a="1", b="1")), ("two", fields(a="2"), True), ("one", fields(a="1"))],
    "force then owner gives up": [("one", fields(a="1")), ("two", fields(a="2"), True), ("one", fields(b="1"))],
    "transfer": [("one", fields(a="1", b="1")), ("two", fields(a="1")), ("one", fields(b="1")), ("two", fields(a="3"))],
    "atomic list": [("one", fields(atomic=["a", "b"])), ("two", fields(atomic=["a"])), ("two", fields(atomic=["a"]), True)],
    "atomic list shared": [("one", fields(atomic=["a"])), ("two", fields(atomic=["a"])), ("one", fields(atomic=["b"]))],
    "atomic map": [("one", fields(whole={"x": "1"})), ("two", fields(whole={"y": "1"})), ("two", fields(whole={"y": "1"}), True)],
    "set": [
        ("one", fields(set=["a", "b"])),
        ("two", fields(set=["b", "c"])),
        ("one", fields(set=["a"])),
        ("two", fields(set=[])),
    ],
    "set order": [("one", fields(set=["c", "a"])), ("two", fields(set=["b", "a"]))],
    "keyed list": [
        ("one", fields(keyed=[{"k": "x", "v": "1"}])),
        ("two", fields(keyed=[{"k": "y", "v": "1"}, {"k": "x", "w": "2"}])),
        ("one", fields()),
    ],
    "keyed list conflict": [("one", fields(keyed=[{"k": "x", "v": "1"}])), ("two", fields(keyed=[{"k": "x", "v": "2"}]))],
    "keyed list item removed": [("one", fields(keyed=[{"k": "x", "v": "1"}, {"k": "y"}])), ("one", fields(keyed=[{"k": "y"}]))],
    "keyed list reordered": [
        ("one", fields(keyed=[{"k": "x"}, {"k": "y"}])),
        ("one", fields(keyed=[{"k": "y"}, {"k": "x"}, {"k": "z"}])),
    ],
    "keyed list twice": [("one", fields(keyed=[{"k": "x"}, {"k": "x"}]))],
    "keyed list without a key": [("one", fields(keyed=[{"v": "x"}]))],
    "set twice": [("one", fields(set=["x", "x"]))],
    "keys with defaults": [
        ("one", fields(pairs=[{"p": 1, "v": "a"}])),
        ("two", fields(pairs=[{"p": 1, "t": "tcp", "v": "b"}, {"p": 1, "t": "udp"}])),
        ("one", fields()),
    ],
    "map": [("one", fields(map={"x": "1"})), ("two", fields(map={"y": "2"})), ("one", fields(map={})), ("two", fields())],
    "map conflict": [("one", fields(map={"x": "1"})), ("two", fields(map={"x": "2"}))],
    "nested defaults": [("one", fields(nested={"x": "1"})), ("two", fields(nested={"y": "mine"})), ("one", fields())],
    "default taken": [("one", fields(nested={})), ("two", fields(nested={"y": "why"})), ("three", fields(nested={"y": "other"}))],
    "without schema": [
        ("one", fields(free={"a": {"b": [1, 2], "c": None}})),
        ("two", fields(free={"a": {"b": [3]}})),
        ("two", fields(free={"d": 1})),
        ("one", fields(free={})),
    ],
    "null": [("one", fields(nullable=None, a="1")), ("two", fields(nullable="x")), ("one", fields(nullable=None))],
    "null removes nothing": [("one", fields(a="1")), ("one", fields(a=None))],
    "embedded": [
        ("one", fields(embedded={"apiVersion": "v1", "kind": "X", "metadata": {"labels": {"a": "b"}}})),
        ("two", fields(embedded={"apiVersion": "v1", "kind": "X", "spec": 1})),
    ],
    "unknown field": [("one", fields(nothing="1"))],
    "wrong type": [("one", fields(a=1))],
    "wrong list": [("one", fields(keyed={"k": "x"}))],
    "wrong element": [("one", fields(keyed=["x"]))],
    "empty": [("one", fields()), ("two", fields())],
    "long manager": [("m" * 129, fields(a="1"))],
    "manager with a space": [("a%20b", fields(a="1"))],
}


@pytest.mark.parametrize("story", STORIES)
def test_a_custom_resource(pair: Pair, kind: Obj, story: str) -> None:
    at = path_of(kind) + "/a"
    for manager, spec, *force in STORIES[story]:
        pair.apply(at, instance(kind, spec=spec), manager, force=bool(force), ignore=causes_in_order)
    pair.get(at)


def causes_in_order(body: Any) -> Any:
    """The real server walks a Go map of managers, so that causes come in any order; the message has one."""
    causes = (body.get("details") or {}).get("causes") or []
    causes.sort(key=lambda cause: (cause.get("field", ""), cause["message"]))
    return body


def test_the_spec_itself_is_given_up(pair: Pair, kind: Obj) -> None:
    at = path_of(kind) + "/a"
    pair.apply(at, instance(kind, spec={"a": "1", "map": {"x": "y"}}), "one")
    pair.apply(at, instance(kind), "one")
    pair.get(at)


BAD: dict[str, tuple[str, Any]] = {
    "no manager": ("", {}),
    "managed fields": (
        "?fieldManager=m",
        {
            "metadata": {
                "name": "a",
                "managedFields": [
                    {"manager": "x", "operation": "Apply", "apiVersion": "v1", "fieldsType": "FieldsV1", "fieldsV1": {}}
                ],
            }
        },
    ),
    "no kind": ("?fieldManager=m", {"kind": None}),
    "no version": ("?fieldManager=m", {"apiVersion": None}),
    "another kind": ("?fieldManager=m", {"kind": "Secret"}),
    "another version": ("?fieldManager=m", {"apiVersion": "v2"}),
    "another name": ("?fieldManager=m", {"metadata": {"name": "b"}}),
    "no name": ("?fieldManager=m", {"metadata": {}}),
    "no metadata": ("?fieldManager=m", {"metadata": None}),
    "another namespace": ("?fieldManager=m", {"metadata": {"name": "a", "namespace": "other"}}),
    "resource version of nothing": ("?fieldManager=m", {"metadata": {"name": "a", "resourceVersion": "1"}}),
    "uid of nothing": ("?fieldManager=m", {"metadata": {"name": "a", "uid": "11111111-1111-4111-8111-111111111111"}}),
    "unknown field": ("?fieldManager=m", {"colour": "red"}),
    "unknown field, strict": ("?fieldManager=m&fieldValidation=Strict", {"colour": "red"}),
    "wrong type": ("?fieldManager=m", {"data": {"x": 1}}),
    "wrong shape": ("?fieldManager=m", {"data": []}),
    "bad label": ("?fieldManager=m", {"metadata": {"name": "a", "labels": {"a b": "c"}}}),
    "generate name": ("?fieldManager=m", {"metadata": {"generateName": "a"}}),
    "force is no boolean": ("?fieldManager=m&force=maybe", {}),
    "dry run": ("?fieldManager=m&dryRun=All", {}),
    "a list": ("?fieldManager=m", []),
}


@pytest.mark.parametrize("what", BAD)
def test_a_body_that_is_refused(pair: Pair, what: str) -> None:
    query, change = BAD[what]
    body = (
        change
        if isinstance(change, list)
        else {key: value for key, value in {**cm("a", x="1"), **change}.items() if value is not None}
    )
    pair.patch(CMS + "/a" + query, body, APPLY)


RAW: dict[str, bytes] = {
    "yaml": b"apiVersion: v1\nkind: ConfigMap\nmetadata: {name: a}\ndata:\n  x: 'yes'\n",
    "yaml with a boolean": b"apiVersion: v1\nkind: ConfigMap\nmetadata: {name: a}\ndata:\n  x: yes\n",
    "duplicates": b"apiVersion: v1\nkind: ConfigMap\nmetadata: {name: a}\ndata:\n  x: a\n  x: b\n",
    "two documents": b"apiVersion: v1\nkind: ConfigMap\nmetadata: {name: a}\n---\nkind: x\n",
    "text": b"hello",
    "empty": b"",
    "tabs": b"\tkind: x",
    "broken": b"kind: {",
}


@pytest.mark.parametrize("what", RAW)
@pytest.mark.parametrize("mode", ["Strict", "Warn"])
def test_yaml(pair: Pair, what: str, mode: str) -> None:
    pair.patch(f"{CMS}/a?fieldManager=m&fieldValidation={mode}", None, APPLY, raw=RAW[what])


def test_stale_and_wrong_identity(pair: Pair) -> None:
    made = pair.apply(CMS + "/a", cm("a", x="1"))
    pair.apply(CMS + "/a", with_meta(cm("a", x="2"), resourceVersion="1"))
    pair.apply(CMS + "/a", with_meta(cm("a", x="2"), uid="11111111-1111-4111-8111-111111111111"))
    pair.apply(CMS + "/a", lambda side: with_meta(cm("a", x="2"), resourceVersion=made[side].json["metadata"]["resourceVersion"]))


def workload(**template: Any) -> Obj:
    made = deployment("d", 2)
    made["spec"]["template"]["spec"].update(template)
    return made


BUILT_IN: dict[str, list[tuple[str, Any, bool]]] = {
    "env by name": [
        ("one", workload(containers=[{"name": "c", "image": "example.com/c:1", "env": [{"name": "A", "value": "1"}]}]), False),
        (
            "two",
            {**workload(), "spec": {"template": {"spec": {"containers": [{"name": "c", "env": [{"name": "B", "value": "2"}]}]}}}},
            False,
        ),
        ("one", workload(), False),
    ],
    "ports by number and protocol": [
        ("one", workload(containers=[{"name": "c", "image": "example.com/c:1", "ports": [{"containerPort": 80}]}]), False),
        (
            "two",
            {
                **workload(),
                "spec": {
                    "template": {
                        "spec": {
                            "containers": [
                                {
                                    "name": "c",
                                    "ports": [{"containerPort": 80, "name": "web"}, {"containerPort": 80, "protocol": "UDP"}],
                                }
                            ]
                        }
                    }
                },
            },
            False,
        ),
    ],
    "duplicate ports": [
        (
            "one",
            workload(
                containers=[{"name": "c", "image": "example.com/c:1", "ports": [{"containerPort": 80}, {"containerPort": 80}]}]
            ),
            False,
        )
    ],
    "duplicate env": [
        (
            "one",
            workload(
                containers=[
                    {"name": "c", "image": "example.com/c:1", "env": [{"name": "A", "value": "1"}, {"name": "A", "value": "2"}]}
                ]
            ),
            False,
        )
    ],
    "image conflict": [
        ("one", workload(), False),
        ("two", workload(containers=[{"name": "c", "image": "example.com/c:2"}]), False),
        ("two", workload(containers=[{"name": "c", "image": "example.com/c:2"}]), True),
    ],
    "second container": [
        ("one", workload(), False),
        (
            "two",
            {**workload(), "spec": {"template": {"spec": {"containers": [{"name": "side", "image": "example.com/s:1"}]}}}},
            False,
        ),
        ("two", {**workload(), "spec": {}}, False),
    ],
    "replicas given up": [
        ("one", workload(), False),
        ("one", {**workload(), "spec": {key: value for key, value in workload()["spec"].items() if key != "replicas"}}, False),
    ],
    "selector is atomic": [
        ("one", workload(), False),
        ("two", {**workload(), "spec": {"selector": {"matchLabels": {"x": "y"}}}}, False),
    ],
    "tolerations are atomic": [
        ("one", workload(tolerations=[{"key": "a", "operator": "Exists"}]), False),
        ("two", {**workload(), "spec": {"template": {"spec": {"tolerations": [{"key": "b", "operator": "Exists"}]}}}}, False),
    ],
    "status is not owned": [("one", {**workload(), "status": {"replicas": 3}}, False)],
    "labels": [
        ("one", with_meta(workload(), labels={"a": "1", "b": "2"}), False),
        ("two", with_meta(workload(), labels={"c": "3"}), False),
        ("one", with_meta(workload(), labels={"a": "1"}), False),
    ],
    "quantities that mean the same": [
        (
            "one",
            workload(containers=[{"name": "c", "image": "example.com/c:1", "resources": {"limits": {"cpu": "1000m"}}}]),
            False,
        ),
        ("two", workload(containers=[{"name": "c", "image": "example.com/c:1", "resources": {"limits": {"cpu": "1"}}}]), False),
    ],
    "invalid": [("one", {**workload(), "spec": {"replicas": -1}}, False)],
}


@pytest.mark.parametrize("story", BUILT_IN)
def test_a_deployment(pair: Pair, story: str) -> None:
    for manager, body, force in BUILT_IN[story]:
        pair.apply(DEPLOYMENTS + "/d", body, manager, force=force)


def test_a_service_and_its_ports(pair: Pair) -> None:
    at = "/api/v1/namespaces/{ns}/services/s"

    def service(*ports: Obj) -> Obj:
        return {
            "apiVersion": "v1",
            "kind": "Service",
            "metadata": {"name": "s"},
            "spec": {"clusterIP": "None", "ports": list(ports)},
        }

    pair.apply(at, service({"port": 80, "name": "a"}), "one")
    pair.apply(at, service({"port": 81, "name": "b"}, {"port": 80, "targetPort": 8080}), "two")
    pair.apply(at, service({"port": 80, "name": "a"}, {"port": 53, "name": "u", "protocol": "UDP"}), "one")
    pair.apply(at, service({"port": 81, "name": "b"}), "two")


def test_a_secret_with_string_data(pair: Pair) -> None:
    at = "/api/v1/namespaces/{ns}/secrets/s"
    body = {"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "s"}, "stringData": {"a": "1"}}
    pair.apply(at, body, "one")
    pair.apply(at, {**body, "stringData": {"b": "2"}}, "one")
    pair.apply(at, {**body, "stringData": {"a": "3"}}, "two")


def test_status_is_applied_through_its_subresource(pair: Pair, kind: Obj) -> None:
    at = path_of(kind) + "/a"
    pair.apply(at, instance(kind, spec={"a": "1"}, status={"s": "lost"}), "one")
    pair.apply(at + "/status", instance(kind, spec={"a": "lost"}, status={"s": "1"}), "two")
    pair.apply(at + "/status", instance(kind, status={"s": "2"}), "one")
    pair.apply(at + "/status", instance(kind, status={"s": "2"}), "one", force=True)
    pair.apply(at + "/status", instance(kind, status={"t": "2"}), "two")
    pair.apply(path_of(kind) + "/none/status", instance(kind, "none", status={"s": "1"}), "one")


def test_a_pod_and_its_status(pair: Pair) -> None:
    pair.apply(PODS + "/p", pod("p", node="n"), "one")
    body = {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": "p"},
        "status": {"conditions": [{"type": "Ready", "status": "True"}], "podIP": "10.0.0.1"},
    }
    pair.apply(PODS + "/p/status", body, "kubelet")
    body["status"] = {"conditions": [{"type": "Ready", "status": "False"}]}
    pair.apply(PODS + "/p/status", body, "other")
    pair.apply(PODS + "/p", pod("p", node="m"), "one")


def test_apply_after_others_changed_it(pair: Pair) -> None:
    pair.apply(CMS + "/a", cm("a", x="1", y="1"), "one")
    pair.patch(CMS + "/a?fieldManager=editor", {"data": {"x": "2", "z": "3"}})
    pair.apply(CMS + "/a", cm("a", x="1", y="1"), "one")
    pair.apply(CMS + "/a", cm("a", y="1"), "one")
    pair.patch(CMS + "/a?fieldManager=editor", {"data": {"y": None}})
    pair.apply(CMS + "/a", cm("a", y="1"), "one")


def test_apply_on_what_was_created_before(pair: Pair) -> None:
    pair.post(CMS + "?fieldManager=creator", cm("a", x="1", y="1"))
    pair.apply(CMS + "/a", cm("a", x="1"), "one")
    pair.apply(CMS + "/a", cm("a", x="2"), "one")
    pair.apply(CMS + "/a", cm("a", x="2"), "one", force=True)


def test_objects_without_managed_fields(pair: Pair) -> None:
    """Ownership before the first apply is kept under a name of its own."""
    pair.post(CMS, cm("a", x="1", y="1"))
    pair.patch(CMS + "/a", {"metadata": {"managedFields": [{}]}})
    pair.apply(CMS + "/a", cm("a", x="2"), "one")
    pair.apply(CMS + "/a", cm("a", x="2"), "one", force=True)


LAST = "kubectl.kubernetes.io/last-applied-configuration"


def test_migration_from_client_side_apply(pair: Pair) -> None:
    import json

    last = json.dumps(cm("a", x="1", y="1")) + "\n"
    pair.post(CMS + "?fieldManager=kubectl-client-side-apply", with_meta(cm("a", x="1", y="1"), annotations={LAST: last}))
    pair.apply(CMS + "/a", with_meta(cm("a", x="2"), annotations={LAST: last}), "kubectl")
    pair.apply(CMS + "/a", with_meta(cm("a", x="2", z="3"), annotations={LAST: last}), "kubectl")


def test_client_side_apply_after_server_side(pair: Pair) -> None:
    pair.apply(CMS + "/a", with_meta(cm("a", x="1"), annotations={LAST: "{}"}), "kubectl")
    pair.patch(
        CMS + "/a?fieldManager=kubectl-client-side-apply",
        {"metadata": {"annotations": {LAST: '{"data":{"x":"2"}}'}}, "data": {"x": "2"}},
    )
    pair.apply(CMS + "/a", cm("a", x="3"), "kubectl")


def test_dry_run_keeps_everything(pair: Pair, kind: Obj) -> None:
    at = path_of(kind) + "/a"
    pair.apply(at + "?dryRun=All", instance(kind, spec={"a": "1"}), "one")
    assert pair.get(at).status == 404
    pair.apply(at, instance(kind, spec={"a": "1"}), "one")
    pair.apply(at + "?dryRun=All", instance(kind, spec={"a": "2"}), "two")
    pair.apply(at + "?dryRun=All", instance(kind, spec={"a": "2"}), "two", force=True)
    pair.get(at)


def test_apply_to_a_missing_namespace(pair: Pair) -> None:
    pair.apply("/api/v1/namespaces/nowhere/configmaps/a", cm("a", x="1"))


def test_a_kind_without_schema(pair: Pair) -> None:
    with defined(pair, crd(pair, version(schema={"type": "object", "x-kubernetes-preserve-unknown-fields": True}))) as given:
        at = path_of(given) + "/a"
        pair.apply(at, instance(given, spec={"a": {"b": 1}, "l": [1, {"x": 1}]}, top=1), "one")
        pair.apply(at, instance(given, spec={"a": {"c": 2}, "l": [2]}), "two")
        pair.apply(at, instance(given, spec={"a": {"c": 2}}), "two")
        pair.apply(at, instance(given, spec={"l": [1]}), "one")


def test_a_namespace(pair: Pair) -> None:
    body = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": pair.ns, "labels": {"a": "b"}}}
    pair.apply(f"/api/v1/namespaces/{pair.ns}", body, "one")
    pair.apply(f"/api/v1/namespaces/{pair.ns}", {**body, "spec": {"finalizers": ["kubernetes"]}}, "two")


def test_owner_references_and_finalizers(pair: Pair) -> None:
    made = pair.post(CMS, cm("o"))

    def body(side: str, *finalizers: str, **more: Any) -> Obj:
        owner = {"apiVersion": "v1", "kind": "ConfigMap", "name": "o", "uid": made[side].json["metadata"]["uid"], **more}
        return with_meta(cm("a"), finalizers=list(finalizers), ownerReferences=[owner])

    pair.apply(CMS + "/a", lambda side: body(side, "e.com/a", "e.com/b"), "one")
    pair.apply(CMS + "/a", lambda side: body(side, "e.com/c", controller=True), "two")
    pair.apply(CMS + "/a", with_meta(cm("a"), finalizers=["e.com/b"]), "one")
    pair.apply(CMS + "/a", with_meta(cm("a"), finalizers=[], ownerReferences=[]), "two")
