"""Patch in its four forms. Each works out a new object from the live one; the update loop does the rest."""

from __future__ import annotations

from typing import Any

from remuda.kube import errors
from remuda.kube.encoding.jsonpatch import apply_patch as apply_json_patch
from remuda.kube.encoding.mergepatch import apply_merge_patch, json_kind
from remuda.kube.errors import FieldError, forbidden_field, required

from ..apply.strategic_merge import apply_strategic_patch
from . import patch_result
from .call import Call
from .context import Api
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
    if STRATEGIC_MERGE_PATCH in accepted:
        # Built-in kinds are refused by the router, before anybody knows what is accepted.
        return errors.ApiError(415, "UnsupportedMediaType", "415: Unsupported Media Type", {})
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
        obj = read_patched(call, live, body, patch_type, duplicates)
        return await call.version.managed(lambda fields: fields.on_update(live, obj, call.manager, call.subresource))

    return await guaranteed_update(api, call, compute, retries=_RETRIES)


def patched(call: Call, live: Obj, body: Any, patch_type: str) -> Any:
    """`live` (not changed) with the patch applied. What comes out need not be an object."""
    version = call.version
    if patch_type == JSON_PATCH:
        return apply_json_patch(live, body)
    if patch_type == MERGE_PATCH:
        return apply_merge_patch(live, body)
    if body is None:
        return live
    if not isinstance(body, dict):
        target = "Go value of type map[string]interface {}"
        raise errors.bad_request(f"json: cannot unmarshal {json_kind(body)} into {target}")
    assert version.schema_name and version.resolve is not None
    # By reference: errors name the type.
    schema = {"$ref": f"#/components/schemas/{version.schema_name}"}
    changed = apply_strategic_patch(live, body, schema, version.resolve)
    # It is patched as what it is, whatever the patch says.
    return {**changed, **{name: live[name] for name in ("apiVersion", "kind") if name in live}}


def read_patched(call: Call, live: Obj, body: Any, patch_type: str, duplicates: list[str] | None) -> Obj:
    """`live` with the patch applied, as a typed object of the request's own."""
    changed = patched(call, live, body, patch_type)
    return patch_result.read(call, changed, duplicates or [], live, body if patch_type == STRATEGIC_MERGE_PATCH else None)


def check_config(call: Call, config: Any) -> None:
    """Refuse what can't be applied, whatever the live object is."""
    if not isinstance(config, dict):
        why = f"json: cannot unmarshal {json_kind(config)} into Go value of type map[string]interface {{}}"
        raise errors.bad_request(f"error decoding YAML: error unmarshaling JSON: while decoding JSON: {why}")
    call.version.field_manager.check_config(config)


async def apply(api: Api, call: Call, config: Any, duplicates: list[str] | None = None) -> Outcome:
    version = call.version
    config = {} if config is None else config
    check_config(call, config)

    async def compute(live: Obj | None) -> Obj:
        merged = await version.managed(
            lambda fields: fields.on_apply(live, config, call.manager, bool(call.force), call.subresource)
        )
        obj = patch_result.read_applied(call, live, merged, duplicates or [])
        if live is None:
            _refuse_known(call, obj["metadata"])
            obj["metadata"]["name"] = call.name
        return obj

    return await guaranteed_update(api, call, compute, allow_create=not call.subresource, retries=_RETRIES)


def _refuse_known(call: Call, meta: Obj) -> None:
    """Who names a uid means an object that exists."""
    uid = meta.get("uid")
    if uid:
        why = f"uid mismatch: the provided object specified uid {uid}, and no existing object was found"
        raise call.version.resource.conflict(call.name, why)
