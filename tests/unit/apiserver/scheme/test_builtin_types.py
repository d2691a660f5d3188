"""The description of built-in types: schemas as a real server's OpenAPI has them, Go facts, discovery."""

from __future__ import annotations

from typing import Any

import pytest

from remuda.apiserver.scheme import builtin_types

DEPLOYMENT_SPEC = "io.k8s.api.apps.v1.DeploymentSpec"


def references(schema: Any) -> set[str]:
    if isinstance(schema, list):
        return set().union(*(references(each) for each in schema)) if schema else set()
    if not isinstance(schema, dict):
        return set()
    found = {schema["$ref"]} if isinstance(schema.get("$ref"), str) else set()
    return found.union(*(references(each) for each in schema.values())) if schema else found


def test_schema_of_a_struct_is_what_a_real_server_serves_without_its_prose() -> None:
    assert builtin_types.definition(DEPLOYMENT_SPEC) == {
        "type": "object",
        "required": ["selector", "template"],
        "properties": {
            "minReadySeconds": {"type": "integer", "format": "int32"},
            "paused": {"type": "boolean"},
            "progressDeadlineSeconds": {"type": "integer", "format": "int32"},
            "replicas": {"type": "integer", "format": "int32"},
            "revisionHistoryLimit": {"type": "integer", "format": "int32"},
            "selector": {"allOf": [{"$ref": "#/components/schemas/io.k8s.apimachinery.pkg.apis.meta.v1.LabelSelector"}]},
            "strategy": {
                "default": {},
                "allOf": [{"$ref": "#/components/schemas/io.k8s.api.apps.v1.DeploymentStrategy"}],
                "x-kubernetes-patch-strategy": "retainKeys",
            },
            "template": {
                "default": {},
                "allOf": [{"$ref": "#/components/schemas/io.k8s.api.core.v1.PodTemplateSpec"}],
            },
        },
    }


def test_list_keys_and_patch_strategy_are_kept() -> None:
    ports = builtin_types.definition("io.k8s.api.core.v1.ServiceSpec")["properties"]["ports"]
    assert ports["x-kubernetes-list-type"] == "map"
    assert ports["x-kubernetes-list-map-keys"] == ["port", "protocol"]
    assert ports["x-kubernetes-patch-merge-key"] == "port"
    assert ports["x-kubernetes-patch-strategy"] == "merge"


def test_a_kind_names_itself() -> None:
    assert builtin_types.definition("io.k8s.api.core.v1.Secret")["x-kubernetes-group-version-kind"] == [
        {"group": "", "kind": "Secret", "version": "v1"}
    ]


def test_a_type_of_every_group_names_the_group_of_its_document() -> None:
    name = "io.k8s.apimachinery.pkg.apis.meta.v1.DeleteOptions"
    kinds = "x-kubernetes-group-version-kind"
    core = {"group": "", "kind": "DeleteOptions", "version": "v1"}
    assert kinds not in builtin_types.definition(name)
    assert builtin_types.definition_in(name, "", "v1")[kinds] == [core]
    assert builtin_types.definition_in(name, "apps", "v1")[kinds] == [core, {**core, "group": "apps"}]


@pytest.mark.parametrize(
    ("name", "schema"),
    [
        ("io.k8s.apimachinery.pkg.apis.meta.v1.Time", {"type": "string", "format": "date-time"}),
        ("io.k8s.apimachinery.pkg.api.resource.Quantity", {"oneOf": [{"type": "string"}, {"type": "number"}]}),
        (
            "io.k8s.apimachinery.pkg.util.intstr.IntOrString",
            {"format": "int-or-string", "oneOf": [{"type": "integer"}, {"type": "string"}]},
        ),
        ("io.k8s.apimachinery.pkg.runtime.RawExtension", {"type": "object"}),
        ("io.k8s.apiextensions-apiserver.pkg.apis.apiextensions.v1.JSON", {}),
    ],
)
def test_types_with_their_own_json_have_their_own_schema(name: str, schema: dict[str, Any]) -> None:
    assert builtin_types.definition(name) == schema


def test_inlined_structs_are_opened_in_the_schema_and_have_no_definition_of_their_own_in_documents() -> None:
    volume = builtin_types.definition("io.k8s.api.core.v1.Volume")["properties"]
    assert {"name", "secret", "configMap", "hostPath"} <= volume.keys()
    assert "io.k8s.api.core.v1.VolumeSource" not in builtin_types.definition_names()


def test_every_reference_leads_to_a_definition() -> None:
    names = set(builtin_types.definition_names())
    assert len(names) > 500
    for name in names:
        for reference in references(builtin_types.definition(name)):
            assert reference.removeprefix(builtin_types.REFERENCE) in names, f"{name} refers to {reference}"


def test_no_description_was_carried_over() -> None:
    def prose(schema: Any) -> bool:
        if isinstance(schema, list):
            return any(prose(each) for each in schema)
        if not isinstance(schema, dict):
            return False
        return isinstance(schema.get("description"), str) or any(prose(each) for each in schema.values())

    assert not [name for name in builtin_types.definition_names() if prose(builtin_types.definition(name))]


@pytest.mark.parametrize(
    ("group", "version", "kind", "name"),
    [
        ("", "v1", "Pod", "io.k8s.api.core.v1.Pod"),
        ("", "v1", "PodList", "io.k8s.api.core.v1.PodList"),
        ("apps", "v1", "Deployment", "io.k8s.api.apps.v1.Deployment"),
        ("policy", "v1", "Eviction", "io.k8s.api.policy.v1.Eviction"),
        ("authentication.k8s.io", "v1", "TokenRequest", "io.k8s.api.authentication.v1.TokenRequest"),
        ("autoscaling", "v1", "Scale", "io.k8s.api.autoscaling.v1.Scale"),
        ("apps", "v1", "DeleteOptions", "io.k8s.apimachinery.pkg.apis.meta.v1.DeleteOptions"),
        (
            "apiextensions.k8s.io",
            "v1",
            "CustomResourceDefinition",
            "io.k8s.apiextensions-apiserver.pkg.apis.apiextensions.v1.CustomResourceDefinition",
        ),
    ],
)
def test_a_kind_is_found_by_group_version_and_kind(group: str, version: str, kind: str, name: str) -> None:
    assert builtin_types.type_of(group, version, kind) == name


def test_an_unknown_kind_is_none_and_an_unknown_definition_a_key_error() -> None:
    assert builtin_types.type_of("apps", "v1beta1", "Deployment") is None
    with pytest.raises(KeyError):
        builtin_types.definition("io.k8s.api.apps.v1.Nothing")


def test_go_names_are_those_of_error_texts() -> None:
    assert builtin_types.go_type(DEPLOYMENT_SPEC) == "v1.DeploymentSpec"
    by_name = {field.name: field for field in builtin_types.fields(DEPLOYMENT_SPEC)}
    assert by_name["replicas"].type.name == "*int32"
    assert by_name["replicas"].type.value.name == "int32"
    assert by_name["template"].type.name == "v1.PodTemplateSpec"
    containers = {field.name: field for field in builtin_types.fields("io.k8s.api.core.v1.PodSpec")}["containers"]
    assert containers.type.name == "[]v1.Container"
    limits = {field.name: field for field in builtin_types.fields("io.k8s.api.core.v1.ResourceRequirements")}["limits"]
    assert limits.type.name == "v1.ResourceList"
    protocol = {field.name: field for field in builtin_types.fields("io.k8s.api.core.v1.ContainerPort")}["protocol"]
    assert protocol.type.name == "v1.Protocol"


def test_fields_know_how_empty_values_are_written_and_their_protobuf_number() -> None:
    by_name = {field.name: field for field in builtin_types.flat_fields("io.k8s.api.apps.v1.Deployment")}
    assert list(by_name) == ["kind", "apiVersion", "metadata", "spec", "status"]
    assert by_name["status"].omitempty
    assert by_name["metadata"].number == 1
    assert by_name["status"].always_written, "Go's omitempty has no effect on a struct"
    assert not by_name["kind"].always_written
    inlined_type_meta = builtin_types.fields("io.k8s.api.apps.v1.Deployment")[0]
    assert (inlined_type_meta.inline, inlined_type_meta.number) == (True, 0)
    spec = {field.name: field for field in builtin_types.flat_fields(DEPLOYMENT_SPEC)}
    assert spec["selector"].required
    assert not spec["selector"].omitempty
    assert spec["selector"].always_written
    assert not spec["replicas"].always_written
    assert not spec["strategy"].required


def test_inlined_structs_stay_one_field_for_protobuf() -> None:
    source = [field for field in builtin_types.fields("io.k8s.api.core.v1.Volume") if field.inline]
    assert [(field.number, field.type.definition) for field in source] == [(2, "io.k8s.api.core.v1.VolumeSource")]


def test_resources_are_listed_as_discovery_lists_them() -> None:
    resources = {(each.group, each.version, each.name): each for each in builtin_types.kinds()}
    pods = resources["", "v1", "pods"]
    assert (pods.kind, pods.singular, pods.namespaced) == ("Pod", "pod", True)
    assert pods.short_names == ("po",)
    assert pods.categories == ("all",)
    assert pods.verbs == ("create", "delete", "deletecollection", "get", "list", "patch", "update", "watch")
    eviction = {each.name: each for each in pods.subresources}["eviction"]
    assert (eviction.group, eviction.version, eviction.kind, eviction.verbs) == ("policy", "v1", "Eviction", ("create",))
    assert not resources["", "v1", "nodes"].namespaced


def test_every_resource_has_a_definition() -> None:
    for each in builtin_types.kinds():
        assert builtin_types.type_of(each.group, each.version, each.kind), each
