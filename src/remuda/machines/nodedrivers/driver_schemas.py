"""The DynamicSchemas that node drivers make: of each driver its own, and three that say which drivers there are
(docs/reference/machines.md#fields-of-a-driver)."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from remuda.api.management_cattle_io import API_VERSION
from remuda.kube.objects import annotations_of, dig
from remuda.kube.owners import reference

from ..options import Flag, FlagKind, field_of

DRIVER_LABEL: Final = "io.cattle.node_driver.name"
NODE: Final = "nodeconfig"
NODE_TEMPLATE: Final = "nodetemplateconfig"
CREDENTIAL: Final = "credentialconfig"
# The schemas that list the drivers, each with the type in which it is embedded.
EMBEDDED: Final[Mapping[str, str]] = {NODE: "node", NODE_TEMPLATE: "nodeTemplate", CREDENTIAL: "cloudCredential"}


def driver_of(obj: Obj) -> str:
    """The driver's own name: a NodeDriver's display name, or its name."""
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
    """A schema that its NodeDriver owns."""
    metadata = {
        "name": name,
        "labels": {DRIVER_LABEL: driver_of(obj)},
        "ownerReferences": [reference({**obj, "apiVersion": API_VERSION, "kind": "NodeDriver"})],
    }
    return _schema(metadata, {"resourceFields": dict(fields)})


def embedding_schemas(drivers: Iterable[Obj], known: Iterable[str]) -> list[Obj]:
    """The schemas that list the drivers. `known` are the names of DynamicSchemas that exist, since a field that refers to a
    missing schema would have no type."""
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
    """The driver whose machine configs a DynamicSchema of this name describes, if pools may use it; else empty. `templates` is
    the schema `nodetemplateconfig`.
    """
    for name in dig(templates, "spec", "resourceFields") or {}:
        if name.lower() == schema:
            return str(name).removesuffix("Config")
    return ""


def _embedded(type_: str) -> Obj:
    return {"type": type_, "create": True, "update": True, "nullable": True}


def _schema(metadata: Obj, spec: Obj) -> Obj:
    return {"apiVersion": API_VERSION, "kind": "DynamicSchema", "metadata": metadata, "spec": spec}


# --- schema fields --------------------------------------------------------------------------------------------------------
#
# The fields of a driver's schemas, from its flags (docs/reference/machines.md#fields-of-a-driver).
#
# Integers are strings, as in Rancher; a flag that takes a file's path becomes a field with the file's content where the driver's
# annotations say so; a secret is a `password`.

STRING: Final = "string"
PASSWORD: Final = "password"
BOOLEAN: Final = "boolean"
STRINGS: Final = "array[string]"
# Of any driver: a private key.
KEYS: Final = frozenset({"sshKeyContents", "sshKey", "privateKeyFile"})
# Fields of credentials that are no flags of their own there.
_BESIDES: Final[Mapping[str, tuple[str, ...]]] = {"amazonec2": ("defaultRegion",)}


class UnusableFlag(Exception):
    """A flag that no field can be made of."""


def resource_fields(flags: Iterable[Flag], shape: SchemaFields) -> dict[str, Obj]:
    """The fields of a machine config, by name. Raises UnusableFlag."""
    made: dict[str, Obj] = {}
    for flag in flags:
        if "-" not in flag.name:
            raise UnusableFlag(f"the flag {flag.name} does not begin with the driver's name and a dash")
        own = field_of(flag.name)
        name = shape.renamed(own)
        field = _field(flag)
        if name in shape.aliases:
            field["description"] = f"File contents for {name}"
        if field["type"] == STRING and (name in (*shape.private, *shape.passwords) or name in KEYS):
            field["type"] = PASSWORD
        made[name] = field
    return dict(sorted(made.items()))


def credential_fields(driver: str, fields: Mapping[str, Obj], shape: SchemaFields) -> dict[str, Obj]:
    """The fields of a cloud credential, by name; a field that the driver has no flag for is a plain one."""
    made: dict[str, Obj] = {}
    for name in (*shape.public, *shape.private):
        known = fields.get(name) or _plain()
        field: Obj = {**known, "default": _values(), "type": PASSWORD if name in shape.private else known["type"]}
        if name not in shape.optional:
            field["required"] = True
        if name in shape.defaults:
            field["default"] = _values(text=shape.defaults[name])
        made[name] = field
    for name in _BESIDES.get(driver, ()):
        made[name] = _plain("A place to read the choices from")
    return dict(sorted(made.items()))


def hints(shape: SchemaFields) -> dict[str, Obj]:
    """Hints for a page: a field with a whole file needs more than one line."""
    return {name: {"type": "multiline"} for name in sorted(shape.aliases)}


def _field(flag: Flag) -> Obj:
    made: Obj = {"create": True, "update": True, "description": flag.usage}
    initial = flag.initial
    match flag.kind:
        case FlagKind.BOOL:
            # Given although it is the empty value: it is part of the machines' definition.
            return {"type": BOOLEAN, "default": _values(), **made}
        case FlagKind.STRINGS:
            assert isinstance(initial, tuple)
            return {"type": STRINGS, "nullable": True, "default": _values(texts=initial), **made}
        case _:
            return {"type": STRING, "default": _values(text=str(initial)), **made}


def _plain(description: str = "") -> Obj:
    return {"type": STRING, "default": _values(), "create": True, "update": True, "description": description}


def _values(text: str = "", texts: Iterable[str] | None = None) -> Obj:
    """All four are always present, as Go writes them."""
    return {"stringValue": text, "intValue": 0, "boolValue": False, "stringSliceValue": list(texts) if texts else None}


# --- driver annotations ----------------------------------------------------------------------------------------------------
#
# A NodeDriver's annotations about its fields: which make up its credential, which hold secrets or whole files
# (docs/reference/machines.md#annotations-of-a-driver).

Obj = dict[str, Any]

PUBLIC: Final = "publicCredentialFields"
PRIVATE: Final = "privateCredentialFields"
PASSWORDS: Final = "passwordFields"
OPTIONAL: Final = "optionalCredentialFields"
DEFAULTS: Final = "defaults"
ALIASES: Final = "nodedriver.cattle.io/file-to-field-aliases"
HINTS: Final = "io.cattle.nodedriver/ui-field-hints"


@dataclass(frozen=True, slots=True)
class SchemaFields:
    """Names of fields. `aliases` are fields that hold a file's content, with the driver's own field that takes a path to it."""

    public: tuple[str, ...] = ()
    private: tuple[str, ...] = ()
    passwords: tuple[str, ...] = ()
    optional: tuple[str, ...] = ()
    defaults: Mapping[str, str] = field(default_factory=dict)
    aliases: Mapping[str, str] = field(default_factory=dict)

    @classmethod
    def of(cls, driver: Obj) -> SchemaFields:
        said = annotations_of(driver)
        public, private, passwords, optional = (_listed(said.get(name) or "") for name in (PUBLIC, PRIVATE, PASSWORDS, OPTIONAL))
        return cls(public, private, passwords, optional, _mapped(said.get(DEFAULTS) or ""), _mapped(said.get(ALIASES) or ""))

    def annotations(self) -> dict[str, str]:
        lists = {PUBLIC: self.public, PRIVATE: self.private, PASSWORDS: self.passwords, OPTIONAL: self.optional}
        maps = {DEFAULTS: self.defaults, ALIASES: self.aliases}
        made = {name: ",".join(values) for name, values in lists.items()}
        made |= {name: _joined(values.items()) for name, values in maps.items()}
        return {name: value for name, value in made.items() if value}

    def renamed(self, own: str) -> str:
        """The name of a driver's own field in a machine config. Aliases may be spelled like a flag (`cloud-config`)."""
        return next((alias for alias, theirs in self.aliases.items() if _without_dashes(theirs) == _without_dashes(own)), own)


def _listed(text: str) -> tuple[str, ...]:
    return tuple(part.strip() for part in text.split(",") if part.strip())


def _mapped(text: str) -> dict[str, str]:
    pairs = (part.partition(":") for part in _listed(text))
    return {name.strip(): value.strip() for name, _, value in pairs if name.strip()}


def _joined(pairs: Iterable[tuple[str, str]]) -> str:
    return ",".join(f"{name}:{value}" for name, value in pairs)


def _without_dashes(name: str) -> str:
    return name.replace("-", "").lower()
