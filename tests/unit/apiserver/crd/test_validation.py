"""What kube-apiserver refuses in a CustomResourceDefinition, word by word."""

from __future__ import annotations

from typing import Any

import pytest

from remuda.apiserver.crd import validation

from .definitions import crd, established, version, with_field, with_schema

Obj = dict[str, Any]
S = "spec.validation.openAPIV3Schema"
F = f"{S}.properties[f]"
LABEL = (
    "a DNS-1035 label must consist of lower case alphanumeric characters or '-', start with an alphabetic character, and end "
    "with an alphanumeric character (e.g. 'my-name',  or 'abc-123', regex used for validation is '[a-z]([-a-z0-9]*[a-z0-9])?')"
)


def shown(errors: list[Any]) -> list[str]:
    return [str(error) for error in errors]


def _version_json(**more: Any) -> str:
    import json

    found = {"Name": "v1", "Served": True, "Storage": True, "Deprecated": False, "DeprecationWarning": None, "Schema": None}
    found |= {"Subresources": None, "AdditionalPrinterColumns": None, "SelectableFields": None, **more}
    return json.dumps(found, separators=(",", ":"))


def test_a_sound_definition() -> None:
    assert validation.validate(crd()) == []


REFUSED: list[tuple[Obj, list[str]]] = [
    (crd(scope="x"), ['spec.scope: Unsupported value: "x": supported values: "Cluster", "Namespaced"']),
    (crd(scope=""), ["spec.scope: Required value"]),
    (
        crd(group="foo", metadata={"name": "foos.foo"}),
        ['spec.group: Invalid value: "foo": should be a domain with at least one dot'],
    ),
    (crd(metadata={"name": "x.y"}), ['metadata.name: Invalid value: "x.y": must be spec.names.plural+"."+spec.group']),
    (
        crd(names={"plural": "foos", "kind": "Foo", "shortNames": ["F"], "listKind": "Foo"}),
        [
            f'spec.names.shortNames[0]: Invalid value: "F": {LABEL}',
            'spec.names.listKind: Invalid value: "Foo": kind and listKind may not be the same',
        ],
    ),
    (
        crd(versions=[version({"type": "object"}, storage=False)]),
        [
            f"spec.versions: Invalid value: [{_version_json(Storage=False)}]: must have exactly one version "
            f"marked as storage version",
            "status.storedVersions: Invalid value: null: must have at least one stored version",
        ],
    ),
    (crd(versions=[version()]), ["spec.versions[0].schema.openAPIV3Schema: Required value"]),
    (
        crd(preserveUnknownFields=True),
        [
            "spec.preserveUnknownFields: Invalid value: true: cannot set to true, set "
            "x-kubernetes-preserve-unknown-fields to true "
            "in spec.versions[*].schema instead"
        ],
    ),
    (with_schema({}), [f"{S}.type: Required value: must not be empty at the root"]),
    (
        with_schema({"type": "array", "items": {"type": "string"}}),
        [f'{S}.type: Invalid value: "array": must be object at the root'],
    ),
    (with_field({"type": "array"}), [f"{F}.items: Required value: must be specified"]),
    (with_field({}), [f"{F}.type: Required value: must not be empty for specified object fields"]),
    (
        with_field({"type": "string", "anyOf": [{"type": "string"}]}),
        [f"{F}.anyOf[0].type: Forbidden: must be empty to be structural"],
    ),
    (
        with_schema({"type": "object", "oneOf": [{"properties": {"a": {}}}]}),
        [f"{S}.properties[a]: Required value: because it is defined in {S}.oneOf[0].properties[a]"],
    ),
    (
        with_schema({"type": "object", "properties": {"metadata": {"type": "object", "properties": {"x": {"type": "string"}}}}}),
        [
            f"{S}.properties[metadata]: Forbidden: must not specify anything other than name and "
            f"generateName, but metadata is implicitly specified"
        ],
    ),
    (
        with_field({"type": "string", "pattern": "(?=x)"}),
        [
            f'{F}.pattern: Invalid value: "(?=x)": must be a valid regular expression, but isn\'t: error '
            f"parsing regexp: invalid or "
            "unsupported Perl syntax: `(?=`"
        ],
    ),
    (
        with_field({"type": "bogus"}),
        [f'{F}.type: Unsupported value: "bogus": supported values: "array", "boolean", "integer", "number", "object", "string"'],
    ),
    (
        with_field({"type": "array", "uniqueItems": True, "items": {"type": "string"}}),
        [f"{F}.uniqueItems: Forbidden: uniqueItems cannot be set to true since the runtime complexity becomes quadratic"],
    ),
    (
        with_field({"type": "object", "properties": {"a": {"type": "string"}}, "additionalProperties": {"type": "string"}}),
        [f"{F}.additionalProperties: Forbidden: additionalProperties and properties are mutual exclusive"],
    ),
    (
        with_field({"type": "array", "x-kubernetes-list-type": "set", "items": {"type": "object"}}),
        [
            f"{F}.items.x-kubernetes-map-type: Invalid value: null: must be atomic as item of a list with "
            f"x-kubernetes-list-type=set"
        ],
    ),
    (
        with_field(
            {
                "type": "array",
                "x-kubernetes-list-type": "map",
                "x-kubernetes-list-map-keys": ["k"],
                "items": {"type": "object", "properties": {"k": {"type": "string"}}},
            }
        ),
        [
            f"{F}.items.properties[k].default: Required value: this property is in x-kubernetes-list-map-keys, so it must have a "
            "default or be a required property"
        ],
    ),
    (
        with_field({"type": "string", "x-kubernetes-list-type": "set"}),
        [f'{F}.type: Invalid value: "string": must be array if x-kubernetes-list-type is specified'],
    ),
    (
        with_field({"type": "integer", "default": "x"}),
        [f'{F}.default: Invalid value: "string":  in body must be of type integer: "string"'],
    ),
    (
        with_field({"type": "object", "default": {"zz": 1}, "properties": {"a": {"type": "string"}}}),
        [f'{F}.default: Invalid value: {{"zz":1}}: must not have unknown fields'],
    ),
    (
        with_schema({"type": "object", "properties": {"metadata": {"type": "object", "default": {}}}}),
        [f"{S}.properties[metadata].default: Forbidden: must not be set in top-level metadata"],
    ),
    (
        with_schema({"type": "object", "anyOf": [{"required": ["a"]}], "nullable": True}),
        [f"{S}.nullable: Forbidden: nullable cannot be true at the root"],
    ),
    (
        with_field({"type": "string", "x-kubernetes-validations": [{"rule": ""}, {"rule": "true", "message": " "}]}),
        [
            f"{F}.x-kubernetes-validations[0].rule: Required value: rule is not specified",
            f'{F}.x-kubernetes-validations[1].message: Invalid value: " ": must be non-empty if specified',
        ],
    ),
    (
        with_field({"type": "object", "x-kubernetes-validations": [{"rule": "true", "reason": "x", "fieldPath": ".nope"}]}),
        [
            f'{F}.x-kubernetes-validations[0].reason: Unsupported value: "x": supported values: "FieldValueDuplicate", '
            '"FieldValueForbidden", "FieldValueInvalid", "FieldValueRequired"',
            f'{F}.x-kubernetes-validations[0].fieldPath: Invalid value: ".nope": must be a valid path',
        ],
    ),
    (
        with_schema({"type": "object", "x-kubernetes-validations": [{"rule": "self.foo == 1"}]}),
        [
            f'{S}.x-kubernetes-validations[0].rule: Invalid value: {{"Rule":"self.foo == 1","Message":"","MessageExpression":"",'
            '"Reason":null,"FieldPath":"","OptionalOldSelf":null}: compilation failed: ERROR: <input>:1:5: undefined field '
            "'foo'\n | self.foo == 1\n | ....^"
        ],
    ),
    (
        with_field(
            {
                "type": "array",
                "items": {"type": "string", "x-kubernetes-validations": [{"rule": "self == oldSelf"}], "maxLength": 1},
                "maxItems": 1,
            }
        ),
        [
            f'{F}.items.x-kubernetes-validations[0].rule: Invalid value: "self == oldSelf": oldSelf cannot be used on the '
            f"uncorrelatable portion of the schema within {F}"
        ],
    ),
    (
        with_schema({"type": "object"}, additionalPrinterColumns=[{"name": "a", "type": "x", "jsonPath": "a"}]),
        [
            'spec.additionalPrinterColumns[0].type: Invalid value: "x": must be one of boolean,date,integer,number,string',
            'spec.additionalPrinterColumns[0].JSONPath: Invalid value: "a": must be a simple json path starting with .',
        ],
    ),
    (
        with_schema({"type": "object"}, selectableFields=[{"jsonPath": ".spec.a"}]),
        ['spec.selectableFields[0].jsonPath: Invalid value: ".spec.a": is an invalid path: does not refer to a valid field'],
    ),
    (
        with_schema({"type": "object"}, subresources={"scale": {"specReplicasPath": ".status.x", "statusReplicasPath": ""}}),
        [
            'spec.subresources.scale.specReplicasPath: Invalid value: ".status.x": should be a json path under .spec',
            "spec.subresources.scale.statusReplicasPath: Required value",
        ],
    ),
    (
        crd(conversion={"strategy": "Webhook"}),
        [
            "spec.conversion.webhookClientConfig: Required value: required when strategy is set to Webhook",
            "spec.conversion.conversionReviewVersions: Required value",
        ],
    ),
    (
        crd(
            conversion={
                "strategy": "Webhook",
                "webhook": {"clientConfig": {"url": "http://a"}, "conversionReviewVersions": ["v3"]},
            }
        ),
        [
            "spec.conversion.webhookClientConfig.url: Invalid value: \"http\": 'https' is the only allowed URL scheme; desired "
            "format: https://host[/path]",
            'spec.conversion.conversionReviewVersions: Invalid value: ["v3"]: must include at least one of v1, v1beta1',
        ],
    ),
    (
        crd(group="x.k8s.io", metadata={"name": "foos.x.k8s.io"}),
        [
            "metadata.annotations[api-approved.kubernetes.io]: Required value: protected groups must have approval annotation "
            '"api-approved.kubernetes.io", see https://github.com/kubernetes/enhancements/pull/1111'
        ],
    ),
    (
        crd(
            versions=[version({"type": "object"}), version({"type": "object", "properties": {"a": {}}}, name="v2", storage=False)]
        ),
        [
            "spec.versions[1].schema.openAPIV3Schema.properties[a].type: Required value: must not be empty "
            "for specified object fields"
        ],
    ),
]


@pytest.mark.parametrize(("definition", "expected"), REFUSED)
def test_refused(definition: Obj, expected: list[str]) -> None:
    assert shown(validation.validate(definition)) == expected


def test_the_root_is_bare_when_there_is_a_status_subresource() -> None:
    definition = with_schema({"type": "object", "anyOf": [{"required": ["a"]}]}, subresources={"status": {}})
    (error,) = validation.validate(definition)
    assert error.field == S
    assert error.detail.startswith("only [Description Type Format Title ")
    assert '"AnyOf":[{"ID":""' in str(error)


UPDATES: list[tuple[Obj, Obj, list[str]]] = [
    (crd(), crd(), []),
    (crd(), crd(scope="Cluster"), []),
    (established(crd()), crd(scope="Cluster"), ['spec.scope: Invalid value: "Cluster": field is immutable']),
    (
        established(crd()),
        crd(names={"plural": "foos", "kind": "Bar"}),
        ['spec.names.kind: Invalid value: "Bar": field is immutable'],
    ),
    (crd(), crd(group="other.com"), ['spec.group: Invalid value: "other.com": field is immutable']),
    (
        crd(),
        crd(status={"storedVersions": ["v1", "v0"]}),
        [
            'status.storedVersions[1]: Invalid value: "v0": missing from spec.versions; v0 was previously a storage version, and '
            "must remain in spec.versions until a storage migration ensures no data remains persisted in v0 and removes v0 from "
            "status.storedVersions"
        ],
    ),
    # What was already wrong need not be mended.
    (with_field({"type": "bogus"}), with_field({"type": "bogus"}), []),
    (crd(preserveUnknownFields=True), crd(preserveUnknownFields=True), []),
]


@pytest.mark.parametrize(("old", "new", "expected"), UPDATES)
def test_updates(old: Obj, new: Obj, expected: list[str]) -> None:
    assert shown(validation.validate_update(new, old)) == expected


def test_unknown_formats_are_told_once() -> None:
    odd = with_field({"type": "string", "format": "zz"})
    assert validation.warnings(odd, None) == ['unrecognized format "zz"']
    assert validation.warnings(odd, odd) == []
    assert validation.warnings(with_field({"type": "string", "format": "date"}), None) == []


def test_defaults() -> None:
    made = crd(conversion={"strategy": "Webhook", "webhook": {"clientConfig": {"service": {"name": "a", "namespace": "b"}}}})
    assert made["spec"]["names"] == {"plural": "foos", "kind": "Foo", "singular": "foo", "listKind": "FooList"}
    assert made["spec"]["conversion"]["webhook"]["clientConfig"]["service"]["port"] == 443
    assert made["status"] == {"storedVersions": ["v1"]}
    assert crd()["spec"]["conversion"] == {"strategy": "None"}
