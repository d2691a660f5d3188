"""The environment of a container: what the pod says, with what it takes from Secrets, ConfigMaps and the pod itself."""

from __future__ import annotations

import re
from typing import Any

from remuda.kube.objects import Key, dig, namespace_of

from .pod_volumes import Sources, VolumeError, pod_field

Obj = dict[str, Any]

# `$(NAME)`; `$$(NAME)` is `$(NAME)` itself.
_REFERENCE = re.compile(r"\$(\$|\(([-._a-zA-Z][-._a-zA-Z0-9]*)\))")


def expanded(text: str, known: dict[str, str]) -> str:
    def replaced(found: re.Match[str]) -> str:
        if found[1] == "$":
            return "$"
        return known.get(found[2], found[0])

    return _REFERENCE.sub(replaced, text)


async def environment(pod: Obj, container: Obj, sources: Sources, node: Obj, given: dict[str, str]) -> dict[str, str]:
    """All variables; later ones may refer to earlier ones. Raises VolumeError."""
    namespace = namespace_of(pod)
    found = dict(given)
    for source in container.get("envFrom") or ():
        found |= await _from(source, namespace, sources)
    for variable in container.get("env") or ():
        if (origin := variable.get("valueFrom")) is None:
            found[variable["name"]] = expanded(variable.get("value") or "", found)
        elif (value := await _value(pod, origin, sources, node)) is not None:
            found[variable["name"]] = value
    return found


async def _from(source: Obj, namespace: str, sources: Sources) -> dict[str, str]:
    prefix = source.get("prefix") or ""
    values: dict[str, bytes] = {}
    if (reference := source.get("secretRef")) is not None:
        values = await sources.secret(Key(namespace, reference.get("name") or ""), bool(reference.get("optional")))
    elif (reference := source.get("configMapRef")) is not None:
        values = await sources.config_map(Key(namespace, reference.get("name") or ""), bool(reference.get("optional")))
    return {prefix + name: value.decode(errors="replace") for name, value in values.items()}


async def _value(pod: Obj, origin: Obj, sources: Sources, node: Obj) -> str | None:
    if (field := dig(origin, "fieldRef", "fieldPath")) is not None:
        return pod_field(pod, field, node)
    for kind, read in (("secretKeyRef", sources.secret), ("configMapKeyRef", sources.config_map)):
        if (reference := origin.get(kind)) is None:
            continue
        optional = bool(reference.get("optional"))
        values = await read(Key(namespace_of(pod), reference.get("name") or ""), optional)
        if reference["key"] in values:
            return values[reference["key"]].decode(errors="replace")
        if not optional:
            raise VolumeError(f"couldn't find key {reference['key']} in {reference.get('name')}")
    return None
