"""The arguments of a Job's program, `remuda provision` (rancher-machine's), made from the typed spec of a machine. Pure.

The same arguments are in a pod's Job and given to a local process; only the places of files differ. They are never read back from
a Job (docs/reference/machines.md#the-program, docs/reference/machines.md#arguments).
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from typing import Any

from remuda.kube.objects import annotations_of, dig, name_of, namespace_of
from remuda.kube.wrangler import safe_concat, safe_concat_within
from remuda.provisioning.well_known import HOSTNAME_LIMIT

from ..nodedrivers.secrecy import variable_of
from ..options import flag_of
from .well_known import FILE_ALIASES, state_name

Obj = dict[str, Any]

_SHORTEST_HOSTNAME, _LONGEST_HOSTNAME = 10, 63
_KEY_FIELDS = frozenset({"sshKeyContents", "sshKey", "privateKeyFile"})
KEY_FILE = "id_rsa"
_NOT_FLAGS = frozenset({"providerID", "common"})
_BUILT_IN = "local://"
_CLUSTER_TAG = "kubernetes.io/cluster/"


@dataclass(frozen=True, slots=True)
class Places:
    """The paths of the bootstrap script, and of the directory of the files that flags name."""

    script: str = "/run/secrets/machine/value"
    files: str = "/path/to/machine/files"


IN_A_POD = Places()


@dataclass(frozen=True, slots=True)
class DriverFacts:
    """The fields of a NodeDriver that matter to a Job. `aliases`: fields that hold a file's content, and the fields for its
    path."""

    name: str
    url: str = ""
    hash: str = ""
    aliases: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class OwningCluster:
    """The cluster that a machine is for: `id` as management knows it, and its name."""

    id: str = ""
    cluster: str = ""


def driver_of(kind: str) -> str:
    """`Amazonec2Machine` → `amazonec2`."""
    return kind.removesuffix("Machine").lower()


def driver_facts(name: str, node_driver: Obj | None, status: Obj | None = None) -> DriverFacts:
    """The facts from the NodeDriver, or from the machine's status when the NodeDriver is deleted."""
    if node_driver is None:
        return DriverFacts(name, str(dig(status, "driverUrl") or ""), str(dig(status, "driverHash") or ""))
    url = str(dig(node_driver, "spec", "url") or "")
    aliases = _pairs(annotations_of(node_driver).get(FILE_ALIASES) or "")
    if not url or url.startswith(_BUILT_IN):
        return DriverFacts(name, aliases=aliases)
    return DriverFacts(name, url, str(dig(node_driver, "spec", "checksum") or ""), aliases)


def _pairs(text: str) -> dict[str, str]:
    found = (part.partition(":") for part in text.split(",") if part.strip())
    return {left.strip(): right.strip() for left, colon, right in found if colon and left.strip() and right.strip()}


def instance_name(infra: Obj) -> str:
    return safe_concat(name_of(infra).replace(".", "-"))


def hostname(infra: Obj, machine: Obj | None) -> str:
    limit = annotations_of(infra).get(HOSTNAME_LIMIT) or annotations_of(machine or {}).get(HOSTNAME_LIMIT) or ""
    most = int(limit) if limit.isdecimal() and _SHORTEST_HOSTNAME <= int(limit) <= _LONGEST_HOSTNAME else _LONGEST_HOSTNAME
    return safe_concat_within(most, name_of(infra).replace(".", "-"))


def with_files(spec: Obj, facts: DriverFacts, places: Places) -> tuple[Obj, dict[str, str]]:
    """A spec in which paths are where the contents of files were, and the files by name."""
    fields, files = dict(spec), dict[str, str]()
    for schema_field, driver_field in facts.aliases.items():
        content = fields.pop(schema_field, None)
        if not isinstance(content, str) or not content:
            continue
        name = KEY_FILE if schema_field in _KEY_FIELDS else driver_field
        files[name] = content if content.endswith("\n") else f"{content}\n"
        fields[driver_field] = f"{places.files}/{name}"
    return fields, files


def variables(facts: DriverFacts, secrets: Mapping[str, str]) -> dict[str, str]:
    """The environment variables, by name, that hold the secret fields other than files. Their values are in no argument:
    arguments are shown to all readers of the Job, and to all processes of the machine."""
    return {_variable(facts.name, name): value for name, value in secrets.items() if name not in facts.aliases}


def _variable(driver: str, field: str) -> str:
    return variable_of(driver, field) or f"SEALED_{flag_of(driver, field).upper().replace('-', '_')}"


def flags(driver: str, spec: Obj, belonging: OwningCluster, secrets: Collection[str] = (), *, shown: bool = True) -> list[str]:
    """The driver's flags, sorted as bytes.

    Of `secrets` those that the program looks for in its environment are left out. Where the arguments are `shown`, in a Job, the
    others name their variable, and nothing else does: a kubelet puts a variable's value wherever an argument names it.
    """
    made: list[str] = []
    for name, value in _completed(driver, spec, belonging).items():
        if name in _NOT_FLAGS or (name in secrets and variable_of(driver, name)):
            continue
        flag = f"--{flag_of(driver, name)}"
        if name in secrets and shown:
            made.append(f"{flag}=$({_variable(driver, name)})")
        elif isinstance(value, bool):
            made += [flag] if value else []
        elif isinstance(value, str):
            made += [f"{flag}={_literal(value, shown)}"] if value else []
        elif isinstance(value, int | float):
            made.append(f"{flag}={value:g}" if isinstance(value, float) else f"{flag}={value}")
        elif isinstance(value, list):
            made += [f"{flag}={_literal(each, shown)}" for each in value if isinstance(each, str)]
    if driver == "harvester" and belonging.cluster:
        made.append(f"--harvester-cluster-name={belonging.cluster}")
    return sorted(made, key=str.encode)


def _literal(value: str, shown: bool) -> str:
    return value.replace("$(", "$$(") if shown else value


def _completed(driver: str, spec: Obj, belonging: OwningCluster) -> Obj:
    """The spec with what Amazon's machines need to be found by their cluster, and to leave foreign security groups alone."""
    if driver != "amazonec2":
        return spec
    made, tags = dict(spec), str(spec.get("tags") or "")
    if belonging.id and _CLUSTER_TAG not in tags:
        made["tags"] = ",".join(filter(None, (tags, f"{_CLUSTER_TAG}{belonging.id},owned")))
    groups = spec.get("securityGroup")
    if isinstance(groups, list) and groups and groups[0] != "rancher-nodes" and spec.get("securityGroupReadonly") is None:
        made["securityGroupReadonly"] = True
    return made


def arguments(
    infra: Obj,
    machine: Obj | None,
    facts: DriverFacts,
    belonging: OwningCluster,
    *,
    removing: bool,
    places: Places = IN_A_POD,
    secrets: Mapping[str, str] | None = None,
    shown: bool = True,
) -> tuple[list[str], dict[str, str]]:
    """The program's arguments, and the files that they name (by name, in the directory of `places`).

    `secrets` are the values of the machine's secret fields. `shown` arguments, those of a Job, have none of them."""
    made = [
        f"--driver-download-url={facts.url}",
        f"--driver-hash={facts.hash}",
        f"--secret-namespace={namespace_of(infra)}",
        f"--secret-name={state_name(name_of(infra))}",
    ]
    instance = instance_name(infra)
    values = secrets or {}
    spec, files = with_files({**(infra.get("spec") or {}), **values}, facts, places)
    if removing:
        return [*made, "rm", "-y", "--update-config", instance], files
    made += ["create", f"--driver={facts.name}", f"--custom-install-script={places.script}"]
    called = hostname(infra, machine)
    if called != instance:
        made.append(f"--hostname-override={called}")
    named = {name for name in values if name not in facts.aliases}
    return [*made, *flags(facts.name, spec, belonging, named, shown=shown), instance], files
