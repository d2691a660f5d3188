"""The definitions of a driver's three kinds, made from its schema (docs/reference/machines.md#kinds-of-a-driver), and their
changes while objects exist.

A config has the fields at its top, with defaults; machines and templates have them in their spec, without. :func:`compatible`
changes a definition when its driver's flags have changed: existing fields stay readable, so no machine is replaced because a
field was dropped.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Annotated, Any, Final, TypedDict

from remuda.api.cattle import CLUSTER_INDEXED, Condition
from remuda.api.schema import Doc, Length, schema_of
from remuda.kube.objects import annotations_of, dig, labels_of, name_of, with_path
from remuda.provisioning.well_known import CONFIG_GROUP, MACHINE_GROUP

from .driver_schemas import BOOLEAN, PASSWORD, STRING
from .secrecy import is_secret

Obj = dict[str, Any]

VERSION: Final = "v1"
# On a definition: the schema that it was made from.
SCHEMA: Final = "remuda.dev/dynamic-schema"
_LABELS: Final = {"cluster.x-k8s.io/v1beta1": VERSION, "cluster.x-k8s.io/v1beta2": VERSION, **CLUSTER_INDEXED}
_TEXTS: Final = frozenset({STRING, PASSWORD, "date", "enum", "base64", "hostname", "reference"})
_NESTED: Final = re.compile(r"^(array|map)\[(.+)\]$")
# Drivers whose machines may run Windows.
_WITH_OS: Final = frozenset({"vmwarevsphere"})
_ENVELOPE: Final = frozenset({"apiVersion", "kind", "metadata", "spec", "status"})
# The fields of a config that have no effect, with the reason; a driver's own field of this name is its own.
WITHOUT_EFFECT: Final[Mapping[str, str]] = {
    "common": "write labels, taints and cloudCredentialSecretName in the machine pool of the cluster",
    "spec": "write its fields at the top of the object, beside metadata",
    "type": "the kind says it",
}
_SEALED: Final = "Write the value itself; it is kept in a Secret, and a marker is shown in its place."


class Taint(TypedDict, total=False):
    """A taint, which pods have to tolerate."""

    effect: Annotated[str, Doc("NoSchedule, PreferNoSchedule or NoExecute.")]
    key: Annotated[str, Doc("Its name.")]
    timeAdded: Annotated[str | None, Doc("When it was added.")]
    value: Annotated[str, Doc("Its value.")]


class Common(TypedDict, total=False):
    """Fields that are not the driver's, and may change while a machine stays."""

    cloudCredentialSecretName: Annotated[str, Doc("The Secret to make machines with, as namespace:name."), Length(most=317)]
    labels: Annotated[dict[str, str], Doc("Labels of the node.")]
    taints: Annotated[list[Taint], Doc("Taints of the node.")]


class Address(TypedDict, total=False):
    """An address of the machine."""

    address: Annotated[str, Doc("A name or an address.")]
    type: Annotated[str, Doc("Hostname, ExternalIP, InternalIP, ExternalDNS or InternalDNS.")]


class Initialization(TypedDict, total=False):
    """Fields of Cluster API's contract."""

    provisioned: Annotated[bool, Doc("The machine is there, and its node is known.")]


class MachineStatus(TypedDict, total=False):
    """The observed state of the machine."""

    addresses: Annotated[list[Address], Doc("Its addresses.")]
    cloudCredentialSecretName: Annotated[str, Doc("The Secret that it was made with.")]
    cloudCredentialUID: Annotated[str, Doc("The uid of that Secret: another one of its name is not used.")]
    conditions: Annotated[list[Condition], Doc("CreateJob, DeleteJob, Ready.")]
    driverHash: Annotated[str, Doc("The checksum of the driver that it was made with.")]
    driverUrl: Annotated[str, Doc("The URL of that driver.")]
    failureMessage: Annotated[str, Doc("The reason why it could not be made or removed.")]
    failureReason: Annotated[str, Doc("The same, as one word.")]
    initialization: Annotated[Initialization, Doc("Fields of Cluster API's contract.")]
    jobName: Annotated[str, Doc("The Job that makes or removes it.")]
    ready: Annotated[bool, Doc("It is there.")]


class UnusableField(Exception):
    """A field that no schema can be made of."""


def kind_names(driver: str) -> tuple[str, str, str]:
    """The kinds of a driver: config, machine, machine template."""
    base = driver[:1].upper() + driver[1:]
    return f"{base}Config", f"{base}Machine", f"{base}MachineTemplate"


def definitions(driver: str, schema: Obj) -> list[Obj]:
    """The definitions of a driver's kinds, from the spec of its DynamicSchema. Raises UnusableField."""
    config, machine, template = kind_names(driver)
    fields: Mapping[str, Obj] = schema.get("resourceFields") or {}
    if taken := sorted(_ENVELOPE & fields.keys()):
        raise UnusableField(f"no field of a driver can be called {taken[0]}")
    plain = {name: _property(name, field, sealed=is_secret(driver, name, fields)) for name, field in sorted(fields.items())}
    spec = {
        "type": "object",
        "description": "The desired state of the machine, from the config of its pool.",
        "properties": {
            **plain,
            "common": schema_of(Common),
            "providerID": {"type": "string", "nullable": True, "description": "The provider's ID, the same as its node's."},
        },
    }
    within = {
        "type": "object",
        "description": "The machines to be made.",
        "properties": {
            "clusterName": {"type": "string", "nullable": True, "description": "The cluster that it was made for."},
            "template": {"type": "object", "description": "One of them.", "properties": {"spec": spec}},
        },
    }
    return [
        _definition(
            CONFIG_GROUP,
            config,
            driver,
            f"{config} says what the machines of a pool are like.",
            {**_without_effect(), **_with_defaults(driver, plain, fields)},
        ),
        _definition(MACHINE_GROUP, template, driver, f"{template} is what machines are made from.", {"spec": within}),
        _definition(
            MACHINE_GROUP,
            machine,
            driver,
            f"{machine} is one machine that Remuda makes and removes.",
            {"spec": spec, "status": schema_of(MachineStatus)},
        ),
    ]


def _definition(group: str, kind: str, driver: str, says: str, properties: Obj) -> Obj:
    plural = f"{kind.lower()}s"
    envelope = {
        "apiVersion": {
            "type": "string",
            "description": "The version of the schema that this object is written in: group/version.",
        },
        "kind": {"type": "string", "description": "The kind of this object."},
        "metadata": {"type": "object"},
    }
    schema = {"type": "object", "description": says, "properties": {**envelope, **properties}}
    version: Obj = {"name": VERSION, "served": True, "storage": True, "schema": {"openAPIV3Schema": schema}}
    if "status" in properties:
        version["subresources"] = {"status": {}}
    names = {"kind": kind, "listKind": f"{kind}List", "plural": plural, "singular": kind.lower()}
    metadata = {"name": f"{plural}.{group}", "labels": dict(_LABELS), "annotations": {SCHEMA: f"{driver}config"}}
    spec = {"group": group, "names": names, "scope": "Namespaced", "versions": [version]}
    return {"apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition", "metadata": metadata, "spec": spec}


# --- types --------------------------------------------------------------------------------------------------------------------


def _property(name: str, field: Obj, *, sealed: bool) -> Obj:
    made = _typed(name, str(field.get("type") or STRING))
    if text := " ".join(filter(None, (_sentence(field.get("description") or "", sealed), _SEALED if sealed else ""))):
        made["description"] = text
    return made


def _sentence(text: str, ended: bool) -> str:
    return f"{text.rstrip()}." if ended and text.strip() and not text.rstrip().endswith((".", ")")) else text


def _typed(name: str, type_: str) -> Obj:
    if type_ in _TEXTS:
        return {"type": "string", "nullable": True} if type_ == STRING else {"type": "string"}
    if type_ == BOOLEAN:
        return {"type": "boolean"}
    if type_ == "int":
        return {"type": "integer"}
    if type_ == "json":
        return {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
    if (nested := _NESTED.match(type_)) is not None:
        inner = _typed(name, nested[2])
        if nested[1] == "array":
            return {"type": "array", "nullable": True, "items": inner}
        return {"type": "object", "nullable": True, "additionalProperties": inner}
    raise UnusableField(f"the field {name} has the type {type_}, which is not known")


def _without_effect() -> Obj:
    """Fields of any shape, whose content is dropped (:mod:`..admission`)."""
    anything = {"x-kubernetes-preserve-unknown-fields": True}
    return {name: {**anything, "description": f"Of no effect: {why}."} for name, why in WITHOUT_EFFECT.items()}


def _with_defaults(driver: str, plain: Mapping[str, Obj], fields: Mapping[str, Obj]) -> Obj:
    made = {}
    for name, schema in plain.items():
        default = _default(fields[name])
        made[name] = schema if default is None else {**schema, "default": default}
    if driver in _WITH_OS and "os" not in made:
        made["os"] = {"type": "string", "nullable": True, "description": "linux or windows."}
    return made


def _default(field: Obj) -> Any:
    values = field.get("default")
    if not isinstance(values, dict):
        return None
    match field.get("type"):
        case "string" | "password":
            return values.get("stringValue") or ""
        case "int":
            return values.get("intValue") or 0
        case "boolean":
            return values.get("boolValue") or False
        case "array[string]":
            return values.get("stringSliceValue")
    return None


# --- changes ------------------------------------------------------------------------------------------------------------------


def compatible(wanted: Obj, existing: Obj) -> Obj:
    """`wanted` as far as objects that were written under `existing` allow: removed fields stay, and so do the former types of
    fields whose type has changed."""
    path = ("spec", "versions")
    before = next((each for each in dig(existing, *path) or () if each.get("name") == VERSION), None)
    if before is None:
        return wanted
    (version,) = dig(wanted, *path)
    schema = _merged(dig(version, "schema", "openAPIV3Schema"), dig(before, "schema", "openAPIV3Schema") or {})
    return with_path(wanted, path, [with_path(version, ("schema", "openAPIV3Schema"), schema)])


def _merged(new: Obj, old: Obj) -> Obj:
    if old.get("type") != new.get("type"):
        return old or new
    made = dict(new)
    if "items" in new and "items" in old:
        made["items"] = _merged(new["items"], old["items"])
    if old.get("nullable") and not new.get("nullable"):
        made["nullable"] = True
    if "properties" in old or "properties" in new:
        here, there = new.get("properties") or {}, old.get("properties") or {}
        kept = {name: _merged(here[name], there[name]) if name in here and name in there else there[name] for name in there}
        made["properties"] = {**here, **kept}
    return made


def is_current(wanted: Obj, existing: Obj) -> bool:
    """True if the server has it already; the server fills in what we leave out."""
    if annotations_of(existing).get(SCHEMA) != annotations_of(wanted).get(SCHEMA) or name_of(wanted) != name_of(existing):
        return False
    if not labels_of(wanted).items() <= labels_of(existing).items():
        return False
    return _holds(wanted["spec"], existing.get("spec") or {})


def _holds(wanted: Any, existing: Any) -> bool:
    if isinstance(wanted, dict) and isinstance(existing, dict):
        # A schema's own maps are compared whole: a property too many is a difference.
        for name, value in wanted.items():
            if name == "properties" and value.keys() != (existing.get(name) or {}).keys():
                return False
            if name not in existing or not _holds(value, existing[name]):
                return False
        return "default" not in existing or "default" in wanted
    if isinstance(wanted, list) and isinstance(existing, list):
        return len(wanted) == len(existing) and all(map(_holds, wanted, existing))
    return bool(wanted == existing)
