"""CustomResourceDefinitions: what they may say, how they come to be served, change and go."""

from __future__ import annotations

import copy
from typing import Any

import pytest

from .definitions import (
    CRDS,
    Obj,
    condition,
    crd,
    defined,
    establish,
    group_of,
    instance,
    path_of,
    remove,
    spec_schema,
    version,
)
from .harness import APPLY, JSON_PATCH, MERGE, SIDES, STRATEGIC, Pair

WEBHOOK = {"clientConfig": {"url": "https://127.0.0.1:1/convert"}, "conversionReviewVersions": ["v1"]}


def field(schema: Obj) -> Obj:
    """A version whose `spec.f` has the schema."""
    return version(schema=spec_schema(f=schema))


def columns(*given: Obj) -> Obj:
    return version(schema=spec_schema(f={"type": "string"}), additionalPrinterColumns=list(given))


def scale(**paths: str) -> Obj:
    return version(schema=spec_schema(replicas={"type": "integer"}), subresources={"scale": paths})


def selectable(*paths: str, **properties: Obj) -> Obj:
    return version(schema=spec_schema(**properties), selectableFields=[{"jsonPath": path} for path in paths])


def rule(text: str, schema: Obj | None = None, **more: Any) -> Obj:
    return field({**(schema or {"type": "string", "maxLength": 10}), "x-kubernetes-validations": [{"rule": text, **more}]})


def sorted_conditions(answer: Any) -> Any:
    """Different controllers of the real server write them, so that either may be first."""
    answer["status"]["conditions"].sort(key=lambda each: each["type"])
    return answer


# What a CRD may not say, and what it surprisingly may: each is one version, or a change to the spec.
VERSIONS: dict[str, Obj] = {
    # structure
    "no type": field({}),
    "unknown type": field({"type": "text"}),
    "type at the root is not object": version(schema={"type": "string"}),
    "no schema": {"name": "v1", "served": True, "storage": True},
    "empty schema": version(schema={"description": "nothing"}),
    "array without items": field({"type": "array"}),
    "items that is a list": field({"type": "array", "items": [{"type": "string"}]}),
    "properties and additional properties": field(
        {"type": "object", "properties": {"a": {"type": "string"}}, "additionalProperties": {"type": "string"}}
    ),
    "additional properties false": field(
        {"type": "object", "properties": {"a": {"type": "string"}}, "additionalProperties": False}
    ),
    "unique items": field({"type": "array", "uniqueItems": True, "items": {"type": "string"}}),
    "a reference": field({"$ref": "#/definitions/x"}),
    "nullable in any of": field({"type": "string", "anyOf": [{"nullable": True}]}),
    "type in any of": field({"type": "string", "anyOf": [{"type": "string"}]}),
    "description in not": field({"type": "string", "not": {"description": "x"}}),
    "default in one of": field({"type": "string", "oneOf": [{"default": "x"}]}),
    "property only in any of": field({"type": "object", "anyOf": [{"properties": {"x": {"minimum": 1}}}]}),
    "items only in all of": field({"type": "object", "allOf": [{"items": {"minimum": 1}}]}),
    "preserve unknown fields is false": field({"type": "object", "x-kubernetes-preserve-unknown-fields": False}),
    "preserve unknown fields on an array": field(
        {"type": "array", "x-kubernetes-preserve-unknown-fields": True, "items": {"type": "string"}}
    ),
    "embedded resource without properties": field({"type": "object", "x-kubernetes-embedded-resource": True}),
    "embedded resource on a string": field({"type": "string", "x-kubernetes-embedded-resource": True}),
    "int or string with a type": field({"type": "string", "x-kubernetes-int-or-string": True}),
    "metadata is restricted by more than a name": version(
        schema={"type": "object", "properties": {"metadata": {"type": "object", "properties": {"labels": {"type": "object"}}}}}
    ),
    "metadata has a default": version(
        schema={"type": "object", "properties": {"metadata": {"type": "object", "default": {"name": "x"}}}}
    ),
    "kind is not a string": version(schema={"type": "object", "properties": {"kind": {"type": "integer"}}}),
    "forbidden pattern": field({"type": "string", "pattern": "(a"}),
    "pattern with lookahead": field({"type": "string", "pattern": "a(?=b)"}),
    "negative bounds": field({"type": "string", "minLength": -1, "maxLength": -2}),
    "minimum above maximum": field({"type": "integer", "minimum": 5, "maximum": 1}),
    "exclusive minimum without minimum": field({"type": "integer", "exclusiveMinimum": True}),
    "empty enum": field({"type": "string", "enum": []}),
    "unsupported keyword id": field({"type": "string", "id": "x"}),
    "dependencies": field({"type": "object", "dependencies": {"a": ["b"]}}),
    "pattern properties": field({"type": "object", "patternProperties": {"a": {"type": "string"}}}),
    "definitions": field({"type": "object", "definitions": {"a": {"type": "string"}}}),
    # list and map types
    "unknown list type": field({"type": "array", "items": {"type": "string"}, "x-kubernetes-list-type": "bag"}),
    "list map without keys": field({"type": "array", "items": {"type": "object"}, "x-kubernetes-list-type": "map"}),
    "list map keys without map": field({"type": "array", "items": {"type": "object"}, "x-kubernetes-list-map-keys": ["a"]}),
    "list map of strings": field(
        {"type": "array", "items": {"type": "string"}, "x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["a"]}
    ),
    "list map key that is not a property": field(
        {
            "type": "array",
            "items": {"type": "object", "properties": {"b": {"type": "string"}}},
            "x-kubernetes-list-type": "map",
            "x-kubernetes-list-map-keys": ["a"],
        }
    ),
    "list map key that is optional without default": field(
        {
            "type": "array",
            "items": {"type": "object", "properties": {"a": {"type": "string"}}},
            "x-kubernetes-list-type": "map",
            "x-kubernetes-list-map-keys": ["a"],
        }
    ),
    "list map key twice": field(
        {
            "type": "array",
            "items": {"type": "object", "required": ["a"], "properties": {"a": {"type": "string"}}},
            "x-kubernetes-list-type": "map",
            "x-kubernetes-list-map-keys": ["a", "a"],
        }
    ),
    "set of granular objects": field(
        {"type": "array", "items": {"type": "object", "properties": {"a": {"type": "string"}}}, "x-kubernetes-list-type": "set"}
    ),
    "set of nullable": field({"type": "array", "items": {"type": "string", "nullable": True}, "x-kubernetes-list-type": "set"}),
    "map type on a string": field({"type": "string", "x-kubernetes-map-type": "atomic"}),
    "unknown map type": field({"type": "object", "x-kubernetes-map-type": "loose"}),
    # defaults
    "default of the wrong type": field({"type": "string", "default": 1}),
    "default that is not in the enum": field({"type": "string", "enum": ["a"], "default": "b"}),
    "default with unknown fields": field({"type": "object", "properties": {"a": {"type": "string"}}, "default": {"b": 1}}),
    "default that is null": field({"type": "string", "default": None}),
    "default that breaks a rule": rule("self == 'a'", {"type": "string", "maxLength": 5, "default": "b"}),
    "default for a key below metadata": version(
        schema={
            "type": "object",
            "properties": {"metadata": {"type": "object", "properties": {"name": {"type": "string", "default": "x"}}}},
        }
    ),
    # columns
    "column without a name": columns({"name": "", "type": "string", "jsonPath": ".spec.f"}),
    "column of unknown type": columns({"name": "F", "type": "text", "jsonPath": ".spec.f"}),
    "column without a type": columns({"name": "F", "jsonPath": ".spec.f"}),
    "column of unknown format": columns({"name": "F", "type": "integer", "format": "int128", "jsonPath": ".spec.f"}),
    "column without a path": columns({"name": "F", "type": "string"}),
    "column with a broken path": columns({"name": "F", "type": "string", "jsonPath": ".spec[f"}),
    "column whose path has no dot": columns({"name": "F", "type": "string", "jsonPath": "spec.f"}),
    "column twice": columns(
        {"name": "F", "type": "string", "jsonPath": ".spec.f"}, {"name": "F", "type": "string", "jsonPath": ".spec.f"}
    ),
    # scale
    "scale without paths": scale(),
    "scale outside spec": scale(specReplicasPath=".status.replicas", statusReplicasPath=".status.replicas"),
    "scale of an array element": scale(specReplicasPath=".spec.a[0]", statusReplicasPath=".status.replicas"),
    "scale status in spec": scale(specReplicasPath=".spec.replicas", statusReplicasPath=".spec.replicas"),
    "scale with a bad selector path": scale(
        specReplicasPath=".spec.replicas", statusReplicasPath=".status.replicas", labelSelectorPath=".metadata.x"
    ),
    # selectable fields
    "selectable field that does not exist": selectable(".spec.x", f={"type": "string"}),
    "selectable field that is an object": selectable(".spec.f", f={"type": "object"}),
    "selectable field in metadata": selectable(".metadata.name", f={"type": "string"}),
    "selectable field below an array": selectable(".spec.f[0]", f={"type": "array", "items": {"type": "string"}}),
    "selectable field twice": selectable(".spec.f", ".spec.f", f={"type": "string"}),
    "selectable field without a dot": selectable("spec.f", f={"type": "string"}),
    "too many selectable fields": selectable(
        *[f".spec.f{n}" for n in range(9)], **{f"f{n}": {"type": "string"} for n in range(9)}
    ),
    # rules
    "rule that is empty": rule(""),
    "rule that does not parse": rule("self ="),
    "rule of the wrong type": rule("self"),
    "rule with an unknown name": rule("other == 'x'"),
    "rule with an unknown function": rule("self.explode()"),
    "rule with an unknown field": rule("self.x == 1", {"type": "object", "properties": {"y": {"type": "integer"}}}),
    "rule comparing different types": rule("self == 1"),
    "rule without bounds costs too much": rule(
        "self.all(x, self.all(y, x == y))", {"type": "array", "items": {"type": "string"}}
    ),
    "rule with two unbounded lists": rule("self.all(x, x.contains('a'))", {"type": "array", "items": {"type": "string"}}),
    "rule message with a line break": rule("self == 'a'", message="a\nb"),
    "rule message of blanks": rule("self == 'a'", message="  "),
    "rule with a line break and no message": rule("self == 'a' ||\nself == 'b'"),
    "rule with an unknown reason": rule("self == 'a'", reason="Whatever"),
    "rule with a bad field path": rule(
        "self.y == 1", {"type": "object", "properties": {"y": {"type": "integer"}}}, fieldPath=".z"
    ),
    "rule with an index in the field path": rule(
        "self.y == 1", {"type": "object", "properties": {"y": {"type": "integer"}}}, fieldPath=".y[0]"
    ),
    "rule whose message expression is no text": rule("self == 'a'", messageExpression="1"),
    "rule whose message expression does not parse": rule("self == 'a'", messageExpression="'a' +"),
    "old self in a list that is no map": field(
        {
            "type": "array",
            "maxItems": 3,
            "items": {"type": "string", "maxLength": 3, "x-kubernetes-validations": [{"rule": "self == oldSelf"}]},
        }
    ),
    "optional old self without old self": rule("self == 'a'", optionalOldSelf=True),
    "optional old self compared directly": rule("self == oldSelf", optionalOldSelf=True),
    "rule on a schema that preserves unknown fields": rule(
        "self.x == 1", {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
    ),
    "rule below any of": field({"type": "string", "anyOf": [{"x-kubernetes-validations": [{"rule": "true"}]}]}),
    # subresources
    "root with other keywords and status": version(
        schema={"type": "object", "required": ["spec"], "anyOf": [{"required": ["spec"]}]}, subresources={"status": {}}
    ),
}

SPECS: dict[str, Obj] = {
    "no versions": {"versions": []},
    "no storage version": {"versions": [version(storage=False)]},
    "two storage versions": {"versions": [version("v1"), version("v2")]},
    "the same version twice": {"versions": [version("v1"), version("v1", storage=False)]},
    "a version that is no label": {"versions": [version("V_1")]},
    "upper case plural": {"names": {"plural": "Widgets", "kind": "Widget"}},
    "no kind": {"names": {"plural": "widgets"}},
    "kind with a dash": {"names": {"plural": "widgets", "kind": "Wid-Get"}},
    "list kind equals kind": {"names": {"plural": "widgets", "kind": "Widget", "listKind": "Widget"}},
    "short name that is no label": {"names": {"plural": "widgets", "kind": "Widget", "shortNames": ["W_1"]}},
    "category that is no label": {"names": {"plural": "widgets", "kind": "Widget", "categories": ["A B"]}},
    "singular in upper case": {"names": {"plural": "widgets", "kind": "Widget", "singular": "Widget"}},
    "unknown scope": {"scope": "Planetary"},
    "no scope": {"scope": ""},
    "no group": {"group": ""},
    "group without a dot": {"group": "example"},
    "group that is not lower case": {"group": "Example.com"},
    "conversion of unknown strategy": {"conversion": {"strategy": "Magic"}},
    "webhook conversion without a webhook": {"conversion": {"strategy": "Webhook"}},
    "conversion none with a webhook": {"conversion": {"strategy": "None", "webhook": WEBHOOK}},
    "webhook without review versions": {
        "conversion": {"strategy": "Webhook", "webhook": {"clientConfig": WEBHOOK["clientConfig"]}}
    },
    "webhook with unknown review versions": {
        "conversion": {"strategy": "Webhook", "webhook": {**WEBHOOK, "conversionReviewVersions": ["v9"]}}
    },
    "webhook with a url and a service": {
        "conversion": {
            "strategy": "Webhook",
            "webhook": {**WEBHOOK, "clientConfig": {"url": "https://x", "service": {"name": "s", "namespace": "n"}}},
        }
    },
    "webhook over http": {
        "conversion": {"strategy": "Webhook", "webhook": {**WEBHOOK, "clientConfig": {"url": "http://127.0.0.1/x"}}}
    },
    "webhook whose service has a bad port": {
        "conversion": {
            "strategy": "Webhook",
            "webhook": {**WEBHOOK, "clientConfig": {"service": {"name": "s", "namespace": "n", "port": 70000}}},
        }
    },
    "webhook with a broken bundle": {
        "conversion": {
            "strategy": "Webhook",
            "webhook": {**WEBHOOK, "clientConfig": {"url": "https://127.0.0.1/x", "caBundle": "bm8="}},
        }
    },
    "preserve unknown fields of old": {"preserveUnknownFields": True},
}


@pytest.mark.parametrize("what", VERSIONS)
def test_a_version_is_judged_alike(pair: Pair, what: str) -> None:
    pair.post(CRDS + "?dryRun=All", crd(pair, VERSIONS[what]))


@pytest.mark.parametrize("what", SPECS)
def test_a_definition_is_judged_alike(pair: Pair, what: str) -> None:
    given = crd(pair)
    given["spec"].update(copy.deepcopy(SPECS[what]))
    pair.post(CRDS + "?dryRun=All", given)


def test_the_name_must_be_plural_dot_group(pair: Pair) -> None:
    given = crd(pair)
    given["metadata"]["name"] = "widgets.example.org"
    assert pair.post(CRDS, given).status == 422


def test_a_protected_group_needs_an_approval(pair: Pair) -> None:
    given = crd(pair, group="things.k8s.io")
    given["metadata"]["name"] = "widgets.things.k8s.io"
    assert pair.post(CRDS + "?dryRun=All", given).status == 422
    for annotation in ("https://github.com/kubernetes/kubernetes/pull/1", "unapproved, for tests", "whatever"):
        given["metadata"]["annotations"] = {"api-approved.kubernetes.io": annotation}
        pair.post(CRDS + "?dryRun=All", given)


def test_a_protected_group_that_is_unapproved_says_so_in_its_conditions(pair: Pair) -> None:
    group = f"{pair.ns}.k8s.io"
    given = crd(pair, group=group)
    given["metadata"] = {"name": f"widgets.{group}", "annotations": {"api-approved.kubernetes.io": "unapproved, an experiment"}}
    with defined(pair, given, compare=False):
        pair.eventually(
            f"{CRDS}/widgets.{group}",
            lambda answer: condition(answer, "KubernetesAPIApprovalPolicyConformant") != "",
            ignore=sorted_conditions,
        )


def test_unknown_formats_are_warned_about(pair: Pair) -> None:
    pair.post(CRDS + "?dryRun=All", crd(pair, field({"type": "string", "format": "zip"})))


def test_defaults_of_a_definition(pair: Pair) -> None:
    with defined(pair, crd(pair)):
        pair.get(f"{CRDS}/widgets.{group_of(pair)}")


def test_the_status_a_creator_sends_is_dropped(pair: Pair) -> None:
    given = {**crd(pair), "status": {"storedVersions": ["v9"], "conditions": [], "acceptedNames": {"kind": "X", "plural": "xs"}}}
    with defined(pair, given):
        pass


def test_unknown_fields_in_a_definition(pair: Pair) -> None:
    given = crd(pair, surprise=1)
    given["spec"]["versions"][0]["extra"] = True
    for mode in ("Strict", "Warn", "Ignore"):
        pair.post(f"{CRDS}?dryRun=All&fieldValidation={mode}", given)


def test_a_definition_in_yaml(pair: Pair) -> None:
    import yaml

    text = yaml.safe_dump(crd(pair)).encode()
    pair.post(CRDS + "?dryRun=All", raw=text, content_type="application/yaml")


def test_two_definitions_that_want_the_same_kind(pair: Pair) -> None:
    second = crd(pair, plural="gadgets", kind="Widget")
    with defined(pair, crd(pair)):
        pair.post(CRDS, second)
        at = f"{CRDS}/gadgets.{group_of(pair)}"
        pair.eventually(at, lambda answer: condition(answer, "NamesAccepted") == "False")
        assert pair.get(path_of(second)).status == 404
    try:
        # The names are free now.
        pair.eventually(at, lambda answer: condition(answer, "Established") == "True")
    finally:
        remove(pair, second)


def test_two_definitions_that_want_the_same_short_name(pair: Pair) -> None:
    first = crd(pair, names={"shortNames": ["wg"], "singular": "widget"})
    second = crd(pair, plural="gadgets", kind="Gadget", names={"shortNames": ["gd", "wg"]})
    with defined(pair, first):
        pair.post(CRDS, second)
        try:
            at = f"{CRDS}/gadgets.{group_of(pair)}"
            pair.eventually(at, lambda answer: condition(answer, "NamesAccepted") == "False")
            pair.patch(at, {"spec": {"names": {"shortNames": ["gd"]}}}, compare=False)
            pair.eventually(at, lambda answer: condition(answer, "Established") == "True")
        finally:
            remove(pair, second)


def test_singular_name_that_is_taken(pair: Pair) -> None:
    with defined(pair, crd(pair, names={"singular": "thing"})):
        second = crd(pair, plural="gadgets", kind="Gadget", names={"singular": "thing"})
        pair.post(CRDS, second)
        try:
            pair.eventually(f"{CRDS}/gadgets.{group_of(pair)}", lambda answer: condition(answer, "NamesAccepted") == "False")
        finally:
            remove(pair, second)


def test_names_show_in_discovery(pair: Pair) -> None:
    names = {"shortNames": ["wg", "wdg"], "categories": ["all", "things"], "singular": "widget", "listKind": "WidgetList"}
    one = version(
        schema=spec_schema(replicas={"type": "integer"}),
        subresources={"status": {}, "scale": {"specReplicasPath": ".spec.replicas", "statusReplicasPath": ".status.replicas"}},
    )
    with defined(pair, crd(pair, one, names=names)):
        group = group_of(pair)
        pair.eventually(f"/apis/{group}/v1", lambda answer: answer.status == 200)
        pair.get(f"/apis/{group}")


def test_a_cluster_scoped_kind(pair: Pair) -> None:
    with defined(pair, crd(pair, scope="Cluster")) as given:
        at = path_of(given)
        pair.post(at, instance(given))
        pair.get(at + "/a")
        pair.get(at)
        assert pair.get(f"/apis/{group_of(pair)}/v1/namespaces/{pair.ns}/widgets").status == 404
        pair.delete(at + "/a")


def test_generation_of_a_definition_counts_spec_changes(pair: Pair) -> None:
    with defined(pair, crd(pair)) as given:
        at = f"{CRDS}/{given['metadata']['name']}"
        pair.patch(at, {"metadata": {"labels": {"a": "b"}}})
        pair.patch(at, {"spec": {"names": {"categories": ["all"]}}}, compare=False)
        pair.eventually(at, lambda answer: answer.json["status"]["acceptedNames"].get("categories") == ["all"])


IMMUTABLE: dict[str, Obj] = {
    "scope": {"scope": "Cluster"},
    "group": {"group": "example.org"},
    "plural": {"names": {"plural": "gadgets"}},
    "kind": {"names": {"kind": "Gadget"}},
    "list kind": {"names": {"listKind": "Gadgets"}},
    "stored version removed": {"versions": [version("v2")]},
}


@pytest.mark.parametrize("what", IMMUTABLE)
def test_an_established_definition_keeps_its(pair: Pair, what: str) -> None:
    with defined(pair, crd(pair)) as given:
        pair.patch(f"{CRDS}/{given['metadata']['name']}?dryRun=All", {"spec": IMMUTABLE[what]})


def test_status_of_a_definition_can_drop_a_stored_version(pair: Pair) -> None:
    with defined(pair, crd(pair, version("v1"), version("v2", storage=False))) as given:
        at = f"{CRDS}/{given['metadata']['name']}"
        pair.patch(at, {"spec": {"versions": [version("v1", storage=False), version("v2")]}})
        pair.patch(at + "/status", {"status": {"storedVersions": ["v1"]}})
        pair.patch(at + "/status", {"status": {"storedVersions": []}})
        pair.patch(at + "/status", {"status": {"storedVersions": ["v2"]}})
        pair.patch(at, {"spec": {"versions": [version("v2")]}})


def test_status_write_leaves_the_spec(pair: Pair) -> None:
    with defined(pair, crd(pair)) as given:
        at = f"{CRDS}/{given['metadata']['name']}"
        now = pair.get(at)

        def body(side: str) -> Obj:
            changed = copy.deepcopy(now[side].json)
            changed["spec"]["names"]["shortNames"] = ["zz"]
            return changed

        pair.put(at + "/status", body)
        pair.get(at + "/status")


def test_a_new_field_is_served_after_an_update(pair: Pair) -> None:
    with defined(pair, crd(pair, version(schema=spec_schema(a={"type": "string"})))) as given:
        at = path_of(given)
        pair.post(at, instance(given, spec={"a": "1", "b": "2"}))
        pair.patch(
            f"{CRDS}/{given['metadata']['name']}",
            {"spec": {"versions": [version(schema=spec_schema(a={"type": "string"}, b={"type": "string", "default": "new"}))]}},
        )
        pair.eventually(at + "/a", lambda answer: answer.json["spec"].get("b") == "new")
        pair.post(at, instance(given, "b", spec={"a": "1", "b": "2"}))
        pair.get(at + "/b")


def test_a_definition_goes_with_its_objects(pair: Pair) -> None:
    given = crd(pair, version(schema=spec_schema(a={"type": "string"})))
    establish(pair, given)
    at = path_of(given)
    pair.post(at, instance(given))
    pair.post(at, instance(given, "b"))
    pair.delete(f"{CRDS}/{given['metadata']['name']}")
    pair.eventually(f"{CRDS}/{given['metadata']['name']}", lambda answer: answer.status == 404)
    pair.eventually(at, lambda answer: answer.status == 404)


def test_a_definition_waits_for_the_finalizers_of_its_objects(pair: Pair) -> None:
    given = crd(pair)
    establish(pair, given)
    at, crd_at = path_of(given), f"{CRDS}/{given['metadata']['name']}"
    body = instance(given)
    body["metadata"]["finalizers"] = ["example.com/wait"]
    pair.post(at, body)
    pair.delete(crd_at)
    pair.eventually(crd_at, lambda answer: "InstanceDeletionInProgress" in answer.raw.decode())
    pair.eventually(at + "/a", lambda answer: "deletionTimestamp" in answer.json["metadata"])
    # Nothing new may be made meanwhile.
    assert pair.post(at, instance(given, "b")).status == 403
    pair.patch(at + "/a", [{"op": "remove", "path": "/metadata/finalizers"}], JSON_PATCH)
    pair.eventually(crd_at, lambda answer: answer.status == 404)


def test_watchers_see_the_objects_go_with_their_definition(pair: Pair) -> None:
    given = crd(pair)
    establish(pair, given)
    at = path_of(given)
    start = pair.post(at, instance(given))
    rv = {side: start[side].json["metadata"]["resourceVersion"] for side in SIDES}
    pair.watch_both(lambda side: f"{at}?watch=1&resourceVersion={rv[side]}", lambda: remove(pair, given), 1)


def test_delete_a_definition_and_make_it_again(pair: Pair) -> None:
    given = crd(pair)
    with defined(pair, given):
        pair.post(path_of(given), instance(given))
    with defined(pair, given):
        assert pair.get(path_of(given)).json["items"] == []


def test_printer_columns(pair: Pair) -> None:
    properties = {
        "text": {"type": "string"},
        "count": {"type": "integer"},
        "ratio": {"type": "number"},
        "on": {"type": "boolean"},
        "when": {"type": "string", "format": "date-time"},
        "list": {"type": "array", "items": {"type": "object", "properties": {"n": {"type": "string"}}}},
        "map": {"type": "object", "additionalProperties": {"type": "string"}},
    }
    shown = [
        {"name": "Text", "type": "string", "jsonPath": ".spec.text", "description": "words"},
        {"name": "Count", "type": "integer", "jsonPath": ".spec.count", "format": "int32", "priority": 1},
        {"name": "Ratio", "type": "number", "jsonPath": ".spec.ratio"},
        {"name": "On", "type": "boolean", "jsonPath": ".spec.on"},
        {"name": "When", "type": "date", "jsonPath": ".spec.when"},
        {"name": "Names", "type": "string", "jsonPath": ".spec.list[*].n"},
        {"name": "Second", "type": "string", "jsonPath": ".spec.list[1].n"},
        {"name": "Chosen", "type": "string", "jsonPath": '.spec.list[?(@.n=="b")].n'},
        {"name": "Map", "type": "string", "jsonPath": ".spec.map"},
        {"name": "Label", "type": "string", "jsonPath": ".metadata.labels.a\\.b"},
        {"name": "Wrong", "type": "integer", "jsonPath": ".spec.text"},
    ]
    with defined(pair, crd(pair, version(schema=spec_schema(**properties), additionalPrinterColumns=shown))) as given:
        at, table = path_of(given), {"Accept": "application/json;as=Table;v=v1;g=meta.k8s.io"}
        spec = {
            "text": "x",
            "count": 3,
            "ratio": 1.5,
            "on": True,
            "when": "2020-01-02T03:04:05Z",
            "list": [{"n": "a"}, {"n": "b"}],
            "map": {"k": "v"},
        }
        pair.post(at, {**instance(given, "full", spec=spec), "metadata": {"name": "full", "labels": {"a.b": "l"}}})
        pair.post(at, instance(given, "none"))
        pair.post(at, instance(given, "some", spec={"list": [], "ratio": 2, "when": "2999-01-02T03:04:05Z"}))

        def without_ages(body: Any) -> Any:
            for row in body["rows"]:
                row["cells"][5] = "<age>" if "y" in str(row["cells"][5]) else row["cells"][5]
            return body

        pair.get(at, headers=table, ignore=without_ages)
        pair.get(at + "/full", headers=table, ignore=without_ages)


def test_the_table_without_columns_shows_name_and_age(pair: Pair) -> None:
    with defined(pair, crd(pair)) as given:
        pair.post(path_of(given), instance(given))
        for shown in ("None", "Metadata", "Object"):
            pair.get(
                path_of(given) + f"?includeObject={shown}", headers={"Accept": "application/json;as=Table;v=v1;g=meta.k8s.io"}
            )


def test_partial_metadata_of_custom_resources(pair: Pair) -> None:
    with defined(pair, crd(pair)) as given:
        pair.post(path_of(given), instance(given))
        pair.get(path_of(given) + "/a", headers={"Accept": "application/json;as=PartialObjectMetadata;v=v1;g=meta.k8s.io"})
        pair.get(path_of(given), headers={"Accept": "application/json;as=PartialObjectMetadataList;v=v1;g=meta.k8s.io"})


def test_selectable_fields_select(pair: Pair) -> None:
    one = version(
        schema=spec_schema(colour={"type": "string"}, size={"type": "integer"}, on={"type": "boolean"}),
        selectableFields=[{"jsonPath": ".spec.colour"}, {"jsonPath": ".spec.size"}, {"jsonPath": ".spec.on"}],
    )
    with defined(pair, crd(pair, one)) as given:
        at = path_of(given)
        pair.post(at, instance(given, "a", spec={"colour": "red", "size": 1, "on": True}))
        pair.post(at, instance(given, "b", spec={"colour": "blue", "size": 1}))
        pair.post(at, instance(given, "c"))
        for selector in (
            "spec.colour=red",
            "spec.colour!=red",
            "spec.size=1",
            "spec.size=1,spec.colour=blue",
            "spec.colour=",
            "spec.on=true",
            "spec.on=false",
            "metadata.name=a",
            "spec.other=1",
            "spec.colour==red",
        ):
            pair.get(f"{at}?fieldSelector={selector}")


def test_a_watch_with_a_selectable_field_synthesizes_events(pair: Pair) -> None:
    one = version(schema=spec_schema(colour={"type": "string"}), selectableFields=[{"jsonPath": ".spec.colour"}])
    with defined(pair, crd(pair, one)) as given:
        at = path_of(given)
        start = pair.get(at, compare=False)
        rv = {side: start[side].json["metadata"]["resourceVersion"] for side in SIDES}

        def act() -> None:
            pair.post(at, instance(given, "a", spec={"colour": "red"}))
            pair.patch(at + "/a", {"spec": {"colour": "blue"}})
            pair.patch(at + "/a", {"spec": {"colour": "red"}})
            pair.delete(at + "/a")

        pair.watch_both(lambda side: f"{at}?watch=1&fieldSelector=spec.colour=red&resourceVersion={rv[side]}", act, 4)


def test_a_deprecated_version_warns(pair: Pair) -> None:
    versions = (
        version("v1"),
        version("v1beta1", storage=False, deprecated=True),
        version("v1alpha1", storage=False, deprecated=True, deprecationWarning="go away"),
    )
    with defined(pair, crd(pair, *versions)) as given:
        for name in ("v1", "v1beta1", "v1alpha1"):
            pair.get(path_of(given, name))
            pair.post(path_of(given, name), instance(given, f"x-{name}", name))
            pair.delete(path_of(given, name) + f"/x-{name}")
            pair.get(path_of(given, name) + "/none")


BODIES: dict[str, Any] = {
    "no kind": {"apiVersion": "{group}/v1", "metadata": {"name": "a"}},
    "no version": {"kind": "Widget", "metadata": {"name": "a"}},
    "nothing": {},
    "another kind": {"apiVersion": "{group}/v1", "kind": "Gadget", "metadata": {"name": "a"}},
    "another version": {"apiVersion": "{group}/v2", "kind": "Widget", "metadata": {"name": "a"}},
    "another group": {"apiVersion": "example.org/v1", "kind": "Widget", "metadata": {"name": "a"}},
    "too many slashes": {"apiVersion": "a/b/c", "kind": "Widget", "metadata": {"name": "a"}},
    "kind of the wrong type": {"apiVersion": "{group}/v1", "kind": 1, "metadata": {"name": "a"}},
    "no name": {"apiVersion": "{group}/v1", "kind": "Widget", "metadata": {}},
    "no metadata": {"apiVersion": "{group}/v1", "kind": "Widget"},
    "bad name": {"apiVersion": "{group}/v1", "kind": "Widget", "metadata": {"name": "A_b"}},
    "another namespace": {"apiVersion": "{group}/v1", "kind": "Widget", "metadata": {"name": "a", "namespace": "other"}},
    "bad label": {"apiVersion": "{group}/v1", "kind": "Widget", "metadata": {"name": "a", "labels": {"a b": "!"}}},
    "label of the wrong type": {"apiVersion": "{group}/v1", "kind": "Widget", "metadata": {"name": "a", "labels": {"a": 1}}},
    "labels that are a list": {"apiVersion": "{group}/v1", "kind": "Widget", "metadata": {"name": "a", "labels": []}},
    "bad annotation": {"apiVersion": "{group}/v1", "kind": "Widget", "metadata": {"name": "a", "annotations": {"a b": "x"}}},
    "bad finalizer": {"apiVersion": "{group}/v1", "kind": "Widget", "metadata": {"name": "a", "finalizers": ["a b"]}},
    "finalizer without a domain": {
        "apiVersion": "{group}/v1",
        "kind": "Widget",
        "metadata": {"name": "a", "finalizers": ["mine"]},
    },
    "owner without uid": {
        "apiVersion": "{group}/v1",
        "kind": "Widget",
        "metadata": {"name": "a", "ownerReferences": [{"apiVersion": "v1", "kind": "Pod", "name": "x", "uid": ""}]},
    },
    "metadata is a string": {"apiVersion": "{group}/v1", "kind": "Widget", "metadata": "a"},
    "unknown metadata": {"apiVersion": "{group}/v1", "kind": "Widget", "metadata": {"name": "a", "colour": "red"}},
    "name is a number": {"apiVersion": "{group}/v1", "kind": "Widget", "metadata": {"name": 1}},
    "a list": [],
    "a number": 1,
}


@pytest.fixture(scope="module")
def widgets(endpoints: Any) -> Any:
    pair = Pair(endpoints, ns="default")
    pair.log.append("widgets")
    definition = crd(pair, version(schema=spec_schema(f={"type": "string"})))
    with defined(pair, definition):
        yield definition


@pytest.mark.parametrize("what", BODIES)
def test_a_body_that_is_not_quite_a_resource(pair: Pair, widgets: Obj, what: str) -> None:
    body = BODIES[what]
    if isinstance(body, dict) and "apiVersion" in body:
        body = {**body, "apiVersion": body["apiVersion"].format(group=widgets["spec"]["group"])}
    pair.post(path_of(widgets) + "?dryRun=All", body)


RAW: dict[str, tuple[str, bytes]] = {
    "empty": ("application/json", b""),
    "broken json": ("application/json", b"{"),
    "broken yaml": ("application/yaml", b"a: [1"),
    "yaml of two documents": ("application/yaml", b"a: 1\n---\nb: 2\n"),
    "wrong content type": ("text/plain", b"{}"),
    "duplicate keys": ("application/json", b'{"kind":"Widget","kind":"Widget"}'),
}


@pytest.mark.parametrize("what", RAW)
def test_a_body_that_is_no_object(pair: Pair, widgets: Obj, what: str) -> None:
    kind, raw = RAW[what]
    pair.post(path_of(widgets), raw=raw, content_type=kind)


def test_a_resource_in_yaml(pair: Pair, widgets: Obj) -> None:
    text = f"apiVersion: {widgets['spec']['group']}/v1\nkind: Widget\nmetadata: {{name: a}}\nspec:\n  f: yes\n  f: no\n"
    for mode in ("Strict", "Warn", "Ignore"):
        pair.post(path_of(widgets) + f"?dryRun=All&fieldValidation={mode}", raw=text.encode(), content_type="application/yaml")


def test_generation_of_a_custom_resource(pair: Pair) -> None:
    one = version(schema={"type": "object", "x-kubernetes-preserve-unknown-fields": True}, subresources={"status": {}})
    with defined(pair, crd(pair, one)) as given:
        at = path_of(given)
        pair.post(at, instance(given, spec={"a": 1}, status={"s": 1}, other=1))
        pair.patch(at + "/a", {"metadata": {"labels": {"x": "y"}}})
        pair.patch(at + "/a", {"spec": {"a": 2}})
        pair.patch(at + "/a", {"other": 2})
        pair.patch(at + "/a", {"status": {"s": 2}})
        pair.patch(at + "/a/status", {"status": {"s": 3}, "spec": {"a": 9}, "metadata": {"labels": {"z": "z"}}})
        pair.get(at + "/a/status")
        now = pair.get(at + "/a")
        pair.put(at + "/a/status", lambda side: {**now[side].json, "status": {"s": 4}, "spec": {"a": 9}})
        pair.put(at + "/a", lambda side: {**instance(given, spec={"a": 3}), "status": {"s": 9}})


def test_without_the_status_subresource_status_is_a_field(pair: Pair) -> None:
    with defined(pair, crd(pair, version(schema={"type": "object", "x-kubernetes-preserve-unknown-fields": True}))) as given:
        at = path_of(given)
        pair.post(at, instance(given, status={"s": 1}))
        pair.patch(at + "/a", {"status": {"s": 2}})
        assert pair.get(at + "/a/status").status == 404
        assert pair.get(at + "/a/scale").status == 404
        pair.patch(at + "/a", {"metadata": {"annotations": {"x": "y"}}})


def test_patch_types_on_a_definition(pair: Pair) -> None:
    with defined(pair, crd(pair)) as given:
        at = f"{CRDS}/{given['metadata']['name']}?dryRun=All"
        pair.patch(at, {"metadata": {"labels": {"a": "b"}}}, MERGE)
        pair.patch(at, {"metadata": {"labels": {"a": "b"}}}, STRATEGIC)
        pair.patch(at, [{"op": "add", "path": "/spec/names/shortNames", "value": ["q"]}], JSON_PATCH)
        pair.send("PATCH", at + "&fieldManager=me", crd(pair), content_type=APPLY)
        pair.send("PATCH", at + "&fieldManager=me&force=true", crd(pair), content_type=APPLY)


def test_apply_makes_a_definition(pair: Pair) -> None:
    given = crd(pair, names={"shortNames": ["ww"]})
    at = f"{CRDS}/{given['metadata']['name']}"
    try:
        pair.apply(at, given, "one")
        pair.eventually(at, lambda answer: condition(answer, "Established") == "True")
        changed = copy.deepcopy(given)
        changed["spec"]["names"]["shortNames"] = ["vv"]
        pair.apply(at, changed, "two")
        pair.apply(at, changed, "one", compare=False)
        pair.eventually(at, lambda answer: answer.json["status"]["acceptedNames"].get("shortNames") == ["vv"])
    finally:
        remove(pair, given)


def test_list_and_table_of_definitions(pair: Pair) -> None:
    with defined(pair, crd(pair)) as given:
        name = given["metadata"]["name"]
        pair.get(f"{CRDS}?fieldSelector=metadata.name={name}")
        pair.get(f"{CRDS}?fieldSelector=metadata.name={name}", headers={"Accept": "application/json;as=Table;v=v1;g=meta.k8s.io"})
        pair.get(f"{CRDS}?fieldSelector=spec.group=x")
