"""The scale subresource: one number of an object, read and written as a Scale.

A write turns the live object into its Scale, makes the new Scale like any update or patch, and puts the number back.
Admission sees the Scale; validation and the store see the object.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import replace
from typing import Any

from remuda.kube import errors
from remuda.kube.encoding import jsonio
from remuda.kube.errors import go_quote, invalid_value
from remuda.kube.objects import dig, with_path
from remuda.kube.selectors import from_structure

from ..apply.managed_fields import ScalePaths
from ..registry.object_meta import subdomain_name, validate_object_meta
from . import bodies, metadata, patch, update
from .context import Api, Call
from .subresource_types import SCALE, SubresourceKinds

Obj = dict[str, Any]
# From the current Scale to the wanted one.
Change = Callable[[Obj], Awaitable[Obj]]

_RETRIES = 5


class ScaleSubresource:
    def __init__(self, api: Api, kinds: SubresourceKinds) -> None:
        self._api = api
        self._kinds = kinds

    async def get(self, call: Call) -> Obj:
        await self._api.cache.consistent()
        entry = self._api.entry(call.version.resource, call.namespace, call.name)
        if entry is None:
            raise call.version.resource.not_found(call.name)
        obj = await call.version.load(entry)
        given = call.version.scale_paths
        if given is not None and dig(obj, *paths_of(call)[0]) is None:
            raise errors.internal(f"the spec replicas field {go_quote(given[0])} does not exist")
        return scale_of(call, obj)

    async def put(self, call: Call, raw: Any, duplicates: list[str] | None) -> Obj:
        inner = self._kinds.call(call, SCALE)
        wanted = bodies.decode(inner, raw, duplicates)
        meta = metadata.own_metadata(wanted)
        metadata.settle_namespace(inner, meta)
        update.check_name(inner, meta)

        async def change(current: Obj) -> Obj:
            fresh = {**wanted, "metadata": dict(meta)}
            return inner.version.field_manager.on_update(current, fresh, call.manager, "scale")

        return await self._write(call, change, uid=meta.get("uid") or "")

    async def patch(self, call: Call, body: Any, patch_type: str, duplicates: list[str] | None) -> Obj:
        inner = self._kinds.call(call, SCALE)
        fields = inner.version.field_manager
        if patch_type == patch.APPLY_PATCH:
            patch.check_config(inner, body)

        async def change(current: Obj) -> Obj:
            if patch_type == patch.APPLY_PATCH:
                merged = fields.on_apply(current, body, call.manager, bool(call.force), "scale")
                return patch.read_applied(inner, current, merged, duplicates or [])
            wanted = patch.read_patched(inner, current, body, patch_type, duplicates)
            return fields.on_update(current, wanted, call.manager, "scale")

        return await self._write(call, change, retries=_RETRIES)

    async def _write(self, call: Call, change: Change, *, uid: str = "", retries: int = 1_000_000) -> Obj:
        parent = replace(call, subresource="")
        spec_path = paths_of(call)[0]
        owners = _owners(call, spec_path)
        door = update.SubresourceView("Scale", "scale", lambda obj: scale_of(call, obj))

        async def compute(live: Obj | None) -> Obj:
            assert live is not None
            current = scale_of(call, live)
            current["metadata"]["managedFields"] = owners.to_scale(live["metadata"].get("managedFields"))
            attributes = update.attributes_through(door, parent, await change(current), current)
            await self._api.admission.admit(attributes)
            assert attributes.obj is not None
            wanted = attributes.obj
            self._check(call, wanted, live)
            obj: Obj = jsonio.copy(live)
            meta = obj["metadata"]
            meta["resourceVersion"] = wanted["metadata"].get("resourceVersion") or ""
            entries = owners.to_parent(live["metadata"].get("managedFields"), wanted["metadata"].get("managedFields"))
            if entries:
                meta["managedFields"] = entries
            else:
                meta.pop("managedFields", None)
            return with_path(obj, spec_path, dig(wanted, "spec", "replicas", default=0) or 0)

        outcome = await update.guaranteed_update(self._api, parent, compute, uid=uid, retries=retries, door=door)
        return scale_of(call, await call.version.load(outcome.entry))

    @staticmethod
    def _check(call: Call, wanted: Obj, live: Obj) -> None:
        meta = wanted["metadata"]
        found = validate_object_meta(meta, call.version.resource.namespaced, subdomain_name)
        replicas = dig(wanted, "spec", "replicas", default=0) or 0
        # The values allowed for a custom resource are checked by its own validation.
        if replicas < 0 and call.version.resource.builtin:
            found.append(invalid_value("spec.replicas", replicas, "must be greater than or equal to 0"))
        if found:
            raise errors.invalid(SCALE.group, SCALE.kind, call.name, found)
        uid, current = meta.get("uid") or "", live["metadata"].get("uid") or ""
        if uid and uid != current:
            resource = call.version.resource
            why = f"Precondition failed: UID in precondition: {uid}, UID in object meta: {current}"
            raise errors.conflict(resource.group, f"{resource.name}/scale", call.name, why)


def paths_of(call: Call) -> tuple[list[str], list[str], list[str]]:
    """The paths of the wanted number, the actual number and (for custom resources) the selector."""
    given = call.version.scale_paths
    if given is None:
        return ["spec", "replicas"], ["status", "replicas"], []
    spec, status, selector = given
    return spec.strip(".").split("."), status.strip(".").split("."), selector.strip(".").split(".") if selector else []


def _owners(call: Call, spec_path: list[str]) -> ScalePaths:
    known: dict[str, list[str] | None] = {}
    for version in call.version.resource.versions.values():
        inner = replace(call, version=version)
        known[version.api_version] = paths_of(inner)[0] if "scale" in version.subresources else None
    known[call.version.api_version] = spec_path
    return ScalePaths(call.version.api_version, known)


def scale_of(call: Call, obj: Obj) -> Obj:
    """The Scale of `obj`."""
    spec_path, status_path, selector_path = paths_of(call)
    meta = obj["metadata"]
    shown = ("name", "namespace", "uid", "resourceVersion", "creationTimestamp")
    status: Obj = {"replicas": dig(obj, *status_path, default=0) or 0}
    selector = dig(obj, *selector_path, default="") if selector_path else _selector_text(dig(obj, "spec", "selector"))
    if selector:
        status["selector"] = selector
    replicas = dig(obj, *spec_path)
    return {
        "kind": "Scale",
        "apiVersion": SCALE.api_version,
        "metadata": {name: meta[name] for name in shown if meta.get(name)},
        "spec": {"replicas": replicas} if replicas else {},
        "status": status,
    }


def _selector_text(selector: Any) -> str:
    if not isinstance(selector, dict):
        return ""
    if "matchLabels" in selector or "matchExpressions" in selector:
        return ",".join(
            str(requirement)
            if len(requirement.values) != 1 or requirement.operator != "in"
            else f"{requirement.key}={requirement.values[0]}"
            for requirement in sorted(from_structure(selector).requirements, key=lambda requirement: requirement.key)
        )
    return ",".join(f"{key}={value}" for key, value in sorted(selector.items()))
