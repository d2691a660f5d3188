"""The OpenAPI document of a CRD: names, references and parameters that clients rely on."""

from __future__ import annotations

from typing import Any

from remuda.apiserver.discovery import openapi_schemas

Obj = dict[str, Any]

SCHEMA: Obj = {
    "type": "object",
    "properties": {
        "spec": {
            "type": "object",
            "properties": {
                "port": {"x-kubernetes-int-or-string": True},
                "limited": {"x-kubernetes-int-or-string": True, "anyOf": [{"pattern": "x"}]},
                "template": {
                    "type": "object",
                    "x-kubernetes-embedded-resource": True,
                    "x-kubernetes-preserve-unknown-fields": True,
                    "required": ["kind"],
                },
            },
        }
    },
}


VERBS = frozenset(("get", "update", "patch"))
SERVED = openapi_schemas.Served(
    group="example.com",
    version="v1",
    kind="Foo",
    plural="foos",
    namespaced=True,
    schema_name=openapi_schemas.model_name("example.com", "v1", "Foo"),
    list_schema_name=openapi_schemas.model_name("example.com", "v1", "FooList"),
    parts=(openapi_schemas.Part("status", VERBS), openapi_schemas.Part("scale", VERBS, openapi_schemas.SCALE)),
)


def test_paths_and_operation_ids() -> None:
    paths = openapi_schemas.operations(SERVED)
    found = {
        path: {method: op["operationId"] for method, op in item.items() if method != "parameters"} for path, item in paths.items()
    }
    root = "/apis/example.com/v1"
    assert found == {
        f"{root}/foos": {"get": "listExampleComV1FooForAllNamespaces"},
        f"{root}/namespaces/{{namespace}}/foos": {
            "get": "listExampleComV1NamespacedFoo",
            "post": "createExampleComV1NamespacedFoo",
            "delete": "deleteExampleComV1CollectionNamespacedFoo",
        },
        f"{root}/namespaces/{{namespace}}/foos/{{name}}": {
            "get": "readExampleComV1NamespacedFoo",
            "put": "replaceExampleComV1NamespacedFoo",
            "delete": "deleteExampleComV1NamespacedFoo",
            "patch": "patchExampleComV1NamespacedFoo",
        },
        f"{root}/namespaces/{{namespace}}/foos/{{name}}/scale": {
            "get": "readExampleComV1NamespacedFooScale",
            "put": "replaceExampleComV1NamespacedFooScale",
            "patch": "patchExampleComV1NamespacedFooScale",
        },
        f"{root}/namespaces/{{namespace}}/foos/{{name}}/status": {
            "get": "readExampleComV1NamespacedFooStatus",
            "put": "replaceExampleComV1NamespacedFooStatus",
            "patch": "patchExampleComV1NamespacedFooStatus",
        },
    }


def test_patch_takes_field_validation_and_says_its_kind() -> None:
    paths = openapi_schemas.operations(SERVED)
    item = paths["/apis/example.com/v1/namespaces/{namespace}/foos/{name}"]
    patch = item["patch"]
    assert [parameter["name"] for parameter in patch["parameters"]] == ["dryRun", "fieldManager", "fieldValidation", "force"]
    assert [parameter["name"] for parameter in item["parameters"]] == ["name", "namespace", "pretty"]
    assert patch["x-kubernetes-action"] == "patch"
    assert patch["x-kubernetes-group-version-kind"] == {"group": "example.com", "version": "v1", "kind": "Foo"}
    assert list(patch["requestBody"]["content"]) == list(openapi_schemas.PATCHES)


def test_built_in_kinds_can_be_described_too() -> None:
    served = openapi_schemas.Served(
        "rbac.authorization.k8s.io", "v1", "ClusterRole", "clusterroles", False, "x.ClusterRole", "x.ClusterRoleList"
    )
    paths = openapi_schemas.operations(served)
    item = paths["/apis/rbac.authorization.k8s.io/v1/clusterroles"]
    assert item["get"]["operationId"] == "listRbacAuthorizationV1ClusterRole"
    assert item["get"]["tags"] == ["rbacAuthorization_v1"]
    core = openapi_schemas.operations(
        openapi_schemas.Served("", "v1", "Pod", "pods", True, "x.Pod", "x.PodList", frozenset(("get",)))
    )
    assert list(core) == ["/api/v1/namespaces/{namespace}/pods/{name}"]


def test_schemas() -> None:
    found = openapi_schemas.schemas(SERVED, "FooList", SCHEMA, ["spec.a"])
    assert list(found) == ["com.example.v1.Foo", "com.example.v1.FooList"]
    foo = found["com.example.v1.Foo"]
    reference = {"$ref": "#/components/schemas/io.k8s.apimachinery.pkg.apis.meta.v1.ObjectMeta"}
    assert foo["properties"]["metadata"]["allOf"] == [reference]
    assert foo["x-kubernetes-group-version-kind"] == [{"group": "example.com", "kind": "Foo", "version": "v1"}]
    assert foo["x-kubernetes-selectable-fields"] == [{"fieldPath": "spec.a"}]
    spec = foo["properties"]["spec"]["properties"]
    assert spec["port"]["anyOf"] == [{"type": "integer"}, {"type": "string"}]
    assert spec["limited"]["allOf"] == [{"anyOf": [{"type": "integer"}, {"type": "string"}]}]
    assert spec["template"]["required"] == ["kind", "apiVersion"]
    assert spec["template"]["properties"]["metadata"]["allOf"] == [reference]
    items = found["com.example.v1.FooList"]["properties"]["items"]
    assert items["items"] == {"$ref": "#/components/schemas/com.example.v1.Foo"}
    assert "anyOf" not in SCHEMA["properties"]["spec"]["properties"]["port"]
