"""The DynamicSchemas that node drivers make: of each driver its own, and three that say which drivers there are
(protocols.md §6.3)."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Final

from remuda.api.management_cattle_io import API_VERSION
from remuda.kube.objects import dig
from remuda.kube.owners import reference

Obj = dict[str, Any]

DRIVER_LABEL: Final = "io.cattle.node_driver.name"
NODE: Final = "nodeconfig"
NODE_TEMPLATE: Final = "nodetemplateconfig"
CREDENTIAL: Final = "credentialconfig"
# Of the schemas that say which drivers there are: what they are embedded in.
EMBEDDED: Final[Mapping[str, str]] = {NODE: "node", NODE_TEMPLATE: "nodeTemplate", CREDENTIAL: "cloudCredential"}


def driver_of(obj: Obj) -> str:
    """The driver's own name: what a NodeDriver displays, or is called."""
    return str(dig(obj, "spec", "displayName") or dig(obj, "metadata", "name") or "")


def config_name(driver: str) -> str:
    return f"{driver}config".lower()


def credential_name(driver: str) -> str:
    return f"{driver}credentialconfig".lower()


def is_active(obj: Obj) -> bool:
    return dig(obj, "spec", "active") is True


def has_credentials(obj: Obj) -> bool:
    return is_active(obj) or dig(obj, "spec", "addCloudCredential") is True


def driver_schema(obj: Obj, name: str, fields: Mapping[str, Obj]) -> Obj:
    """A schema that goes with its NodeDriver."""
    metadata = {
        "name": name,
        "labels": {DRIVER_LABEL: driver_of(obj)},
        "ownerReferences": [reference({**obj, "apiVersion": API_VERSION, "kind": "NodeDriver"})],
    }
    return _schema(metadata, {"resourceFields": dict(fields)})


def embedding_schemas(drivers: Iterable[Obj], known: Iterable[str]) -> list[Obj]:
    """Which drivers there are; `known` are the names of DynamicSchemas that exist, since a field of a schema that is not there
    yet would be of no type."""
    there = set(known)
    listed = sorted(drivers, key=driver_of)
    configs = [driver_of(each) for each in listed if is_active(each) and config_name(driver_of(each)) in there]
    credentials = [driver_of(each) for each in listed if has_credentials(each) and credential_name(driver_of(each)) in there]
    by_name: dict[str, Obj] = {
        NODE: {f"{name}Config": _embedded(config_name(name)) for name in configs},
        NODE_TEMPLATE: {f"{name}Config": _embedded(config_name(name)) for name in configs},
        CREDENTIAL: {f"{name}credentialConfig": _embedded(credential_name(name)) for name in credentials},
    }
    return [
        _schema({"name": name}, {"embed": True, "embedType": EMBEDDED[name], "resourceFields": fields})
        for name, fields in by_name.items()
    ]


def active_driver(templates: Obj | None, schema: str) -> str:
    """The driver whose machine configs a DynamicSchema of this name is for, if pools may use it; else nothing.

    `templates` is the schema `nodetemplateconfig`.
    """
    for field in dig(templates, "spec", "resourceFields") or {}:
        if field.lower() == schema:
            return str(field).removesuffix("Config")
    return ""


def _embedded(type_: str) -> Obj:
    return {"type": type_, "create": True, "update": True, "nullable": True}


def _schema(metadata: Obj, spec: Obj) -> Obj:
    return {"apiVersion": API_VERSION, "kind": "DynamicSchema", "metadata": metadata, "spec": spec}
