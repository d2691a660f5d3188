"""Patch in its four forms. Each works out a new object from the live one; the update loop does the rest."""

from __future__ import annotations

from typing import Any

from remuda.kube import errors, jsonio
from remuda.kube.errors import FieldError, forbidden_field, required
from remuda.kube.jsonpatch import apply_patch as apply_json_patch
from remuda.kube.mergepatch import apply_merge_patch
from remuda.kube.objects import GroupVersionKind

from ..api import Api
from ..apply.strategic import apply_strategic_patch
from ..calls import Call
from . import bodies, metadata
from .update import Outcome, guaranteed_update

Obj = dict[str, Any]

JSON_PATCH = "application/json-patch+json"
MERGE_PATCH = "application/merge-patch+json"
STRATEGIC_MERGE_PATCH = "application/strategic-merge-patch+json"
APPLY_PATCH = "application/apply-patch+yaml"

# A patch that names no resourceVersion is tried again when somebody else was faster.
_RETRIES = 5


def patch_types(call: Call) -> tuple[str, ...]:
    if call.version.resource.builtin:
        return JSON_PATCH, MERGE_PATCH, STRATEGIC_MERGE_PATCH, APPLY_PATCH
    return JSON_PATCH, MERGE_PATCH, APPLY_PATCH


def unsupported_type(accepted: tuple[str, ...]) -> errors.ApiError:
    listed = ", ".join(accepted)
    return errors.unsupported_media_type(
        f"the body of the request was in an unknown format - accepted media types include: {listed}"
    )


def option_errors(call: Call, patch_type: str) -> list[FieldError]:
    if patch_type == APPLY_PATCH:
        return [] if call.field_manager else [required("fieldManager", "is required for apply patch")]
    return [] if call.force is None else [forbidden_field("force", "may not be specified for non-apply patch")]


async def patch(api: Api, call: Call, body: Any, patch_type: str, duplicates: list[str] | None = None) -> Outcome:
    found = option_errors(call, patch_type)
    if found:
        raise errors.invalid("meta.k8s.io", "PatchOptions", "", found)
    if patch_type == APPLY_PATCH:
        return await apply(api, call, body, duplicates)

    async def compute(live: Obj | None) -> Obj:
        if live is None:
            # Some kinds are made by a PUT to nowhere; a patch needs something to change.
            raise call.version.resource.not_found(call.name)
        changed = patched(call, live, body, patch_type)
        obj = decode_result(call, changed, duplicates or [])
        return await call.version.managed(lambda fields: fields.on_update(live, obj, call.manager, call.subresource))

    return await guaranteed_update(api, call, compute, retries=_RETRIES)


def patched(call: Call, live: Obj, body: Any, patch_type: str) -> Obj:
    """`live` (not changed) with the patch applied."""
    version = call.version
    if patch_type == JSON_PATCH:
        return as_object(apply_json_patch(live, body))
    if not isinstance(body, dict):
        raise errors.bad_request("the patch must be an object")
    if patch_type == MERGE_PATCH:
        return as_object(apply_merge_patch(live, body))
    assert version.schema_name and version.resolve is not None
    # By reference: errors name the type.
    schema = {"$ref": f"#/components/schemas/{version.schema_name}"}
    return as_object(apply_strategic_patch(live, body, schema, version.resolve))


def as_object(value: Any) -> Obj:
    if not isinstance(value, dict):
        raise errors.bad_request("the patch does not leave an object")
    return value


def decode_result(call: Call, changed: Obj, duplicates: list[str]) -> Obj:
    obj = bodies.decode(call, jsonio.copy(changed), duplicates)
    meta = metadata.own_metadata(obj)
    metadata.settle_namespace(call, meta)
    _check_identity(call, meta)
    metadata.dedupe_owner_references(call, meta)
    return obj


def _check_identity(call: Call, meta: Obj) -> None:
    name = meta.get("name") or ""
    if name != call.name:
        raise errors.bad_request(f"the name of the object ({name}) does not match the name on the URL ({call.name})")


def check_config(call: Call, config: Any) -> None:
    """Refuse what can't be applied, whatever the live object is."""
    if not isinstance(config, dict):
        raise errors.bad_request("error decoding YAML: the configuration must be an object")
    found = GroupVersionKind.of(config)
    if not found.kind or not found.version:
        missing = "Kind" if not found.kind else "apiVersion"
        raise errors.bad_request(f"error decoding patch: Object '{missing}' is missing in '{jsonio.dumps_text(config)}'")
    call.version.field_manager.check_config(config)


async def apply(api: Api, call: Call, config: Any, duplicates: list[str] | None = None) -> Outcome:
    version = call.version
    check_config(call, config)

    async def compute(live: Obj | None) -> Obj:
        merged = await version.managed(
            lambda fields: fields.on_apply(live, config, call.manager, bool(call.force), call.subresource)
        )
        obj = decode_result(call, merged, duplicates or [])
        if live is None:
            obj["metadata"]["name"] = call.name
        return obj

    return await guaranteed_update(api, call, compute, allow_create=not call.subresource, retries=_RETRIES)
