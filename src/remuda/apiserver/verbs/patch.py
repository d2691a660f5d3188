"""Patch in its four forms. Each makes a new object from the live one; the update loop does the rest."""

from __future__ import annotations

from typing import Any

from remuda.kube import errors
from remuda.kube.encoding import jsonio
from remuda.kube.encoding.go_format import shown
from remuda.kube.encoding.jsonpatch import apply_patch as apply_json_patch
from remuda.kube.encoding.mergepatch import apply_merge_patch, json_kind
from remuda.kube.errors import FieldError, forbidden_field, invalid_value, required
from remuda.kube.objects import GroupVersionKind

from ..apply.strategic_merge import apply_strategic_patch
from . import bodies, metadata
from .context import STRICT, Api, Call
from .update import UpdateResult, guaranteed_update

Obj = dict[str, Any]

JSON_PATCH = "application/json-patch+json"
MERGE_PATCH = "application/merge-patch+json"
STRATEGIC_MERGE_PATCH = "application/strategic-merge-patch+json"
APPLY_PATCH = "application/apply-patch+yaml"

# A patch without a resourceVersion is retried after a conflict with another writer.
_RETRIES = 5


def patch_types(call: Call) -> tuple[str, ...]:
    if call.version.resource.builtin:
        return JSON_PATCH, MERGE_PATCH, STRATEGIC_MERGE_PATCH, APPLY_PATCH
    return JSON_PATCH, MERGE_PATCH, APPLY_PATCH


def unsupported_type(accepted: tuple[str, ...]) -> errors.ApiError:
    if STRATEGIC_MERGE_PATCH in accepted:
        # The router refuses these for built-in kinds, before the accepted types are checked.
        return errors.ApiError(415, "UnsupportedMediaType", "415: Unsupported Media Type", {})
    listed = ", ".join(accepted)
    return errors.unsupported_media_type(
        f"the body of the request was in an unknown format - accepted media types include: {listed}"
    )


def option_errors(call: Call, patch_type: str) -> list[FieldError]:
    if patch_type == APPLY_PATCH:
        return [] if call.field_manager else [required("fieldManager", "is required for apply patch")]
    return [] if call.force is None else [forbidden_field("force", "may not be specified for non-apply patch")]


async def patch(api: Api, call: Call, body: Any, patch_type: str, duplicates: list[str] | None = None) -> UpdateResult:
    found = option_errors(call, patch_type)
    if found:
        raise errors.invalid("meta.k8s.io", "PatchOptions", "", found)
    if patch_type == APPLY_PATCH:
        return await apply(api, call, body, duplicates)

    async def compute(live: Obj | None) -> Obj:
        if live is None:
            # Some kinds are created by a PUT to an absent name; a patch needs an existing object.
            raise call.version.resource.not_found(call.name)
        obj = read_patched(call, live, body, patch_type, duplicates)
        return await call.version.managed(lambda fields: fields.on_update(live, obj, call.manager, call.subresource))

    return await guaranteed_update(api, call, compute, retries=_RETRIES)


def patched(call: Call, live: Obj, body: Any, patch_type: str) -> Any:
    """`live` (not changed) with the patch applied. The result need not be an object."""
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
    # It is patched as its own kind, even if the patch names another.
    return {**changed, **{name: live[name] for name in ("apiVersion", "kind") if name in live}}


def read_patched(call: Call, live: Obj, body: Any, patch_type: str, duplicates: list[str] | None) -> Obj:
    """`live` with the patch applied, as a typed object of the request's own."""
    changed = patched(call, live, body, patch_type)
    return read(call, changed, duplicates or [], live, body if patch_type == STRATEGIC_MERGE_PATCH else None)


def check_config(call: Call, config: Any) -> None:
    """Refuse a configuration that can't be applied to any live object."""
    if not isinstance(config, dict):
        why = f"json: cannot unmarshal {json_kind(config)} into Go value of type map[string]interface {{}}"
        raise errors.bad_request(f"error decoding YAML: error unmarshaling JSON: while decoding JSON: {why}")
    call.version.field_manager.check_config(config)


async def apply(api: Api, call: Call, config: Any, duplicates: list[str] | None = None) -> UpdateResult:
    version = call.version
    config = {} if config is None else config
    check_config(call, config)

    async def compute(live: Obj | None) -> Obj:
        merged = await version.managed(
            lambda fields: fields.on_apply(live, config, call.manager, bool(call.force), call.subresource)
        )
        obj = read_applied(call, live, merged, duplicates or [])
        if live is None:
            _refuse_known(call, obj["metadata"])
            obj["metadata"]["name"] = call.name
        return obj

    return await guaranteed_update(api, call, compute, allow_create=not call.subresource, retries=_RETRIES)


def _refuse_known(call: Call, meta: Obj) -> None:
    """A request with a uid means an object that exists."""
    uid = meta.get("uid")
    if uid:
        why = f"uid mismatch: the provided object specified uid {uid}, and no existing object was found"
        raise call.version.resource.conflict(call.name, why)


# --- patch result ---------------------------------------------------------------------------------------------------------
#
# The result of a patch, decoded as its kind; or refused with the patched text, as kube-apiserver shows it.
#
# Go applies JSON and merge patches to text: changed parts are rewritten with their keys in order, the rest stays as it
# was. Strategic patches work on untyped values and have their own messages.


def read(call: Call, changed: Any, duplicates: list[str], live: Obj | None = None, patch: Any = None) -> Obj:
    """The typed object after a patch. For errors: `live` is the original, `patch` the patch if it is strategic."""
    everything = patch is not None or not call.version.resource.builtin
    try:
        if not isinstance(changed, dict):
            raise _unreadable(call, bodies.not_an_object(changed))
        _check_custom_kind(call, changed)
        # Decoding changes its input; a fully ordered object is a copy already.
        own = jsonio.copy(changed) if live is None else in_go_order(live, changed, everything)
        obj = bodies.decode(call, own if live is None or everything else jsonio.copy(own), duplicates)
    except errors.Unreadable as error:
        if live is None:
            raise
        text = shown(patch) if patch is not None else jsonio.dumps_text(in_go_order(live, changed, everything))
        why = error.restoring if patch is not None else error.why
        raise errors.invalid("", "", "", [invalid_value("patch", text, why)]) from None
    return _settled(call, obj)


def read_applied(call: Call, live: Obj | None, merged: Obj, duplicates: list[str]) -> Obj:
    """The typed object after an apply. The merge has checked it against the schema, so that a custom one is complete:
    it is not pruned again, and a null stays for validation to refuse."""
    if duplicates and call.field_validation == STRICT:
        raise errors.bad_request(f"error strict decoding YAML: error converting YAML to JSON: {', '.join(duplicates)}")
    if call.version.resource.builtin:
        return read(call, merged, duplicates)
    bodies.report_strict(call, [], duplicates)
    obj: Obj = jsonio.copy(merged)
    if live is None or not _same_but_metadata(live, merged):
        call.version.strategy.default(obj)
    return _settled(call, obj)


def _same_but_metadata(live: Obj, merged: Obj) -> bool:
    """Everything but the metadata is unchanged by the apply."""
    return live.keys() == merged.keys() and all(merged[name] is live[name] for name in live if name != "metadata")


def _settled(call: Call, obj: Obj) -> Obj:
    meta = metadata.own_metadata(obj)
    metadata.settle_namespace(call, meta)
    _check_name(call, meta)
    metadata.dedupe_owner_references(call, meta)
    return obj


def _unreadable(call: Call, why: str) -> errors.Unreadable:
    version = call.version
    return errors.Unreadable(version.kind, version.name, version.kind, why)


def _check_custom_kind(call: Call, changed: Obj) -> None:
    """A custom resource of another kind is decoded, and refused by validation."""
    version = call.version
    if version.resource.builtin or not all(isinstance(changed.get(name) or "", str) for name in ("apiVersion", "kind")):
        # A value that is not text is reported by its reader.
        return
    found = GroupVersionKind.of(changed)
    problems = []
    if found.kind != version.kind:
        problems.append(invalid_value("kind", found.kind, f"must be {version.kind}"))
    if found.api_version != version.api_version:
        problems.append(invalid_value("apiVersion", found.api_version, f"must be {version.api_version}"))
    if found.kind and problems:
        raise errors.invalid(found.group, found.kind, call.name, problems)


def _check_name(call: Call, meta: Obj) -> None:
    name = meta.get("name") or ""
    if not name:
        raise errors.bad_request(f"the name of the object ({call.name} based on URL) was undeterminable: name must be provided")
    if name != call.name:
        raise errors.bad_request(f"the name of the object ({name}) does not match the name on the URL ({call.name})")


def in_go_order(live: Any, changed: Any, everything: bool = False) -> Any:
    """`changed` with the keys of parts that differ from `live` in order; or of everything: then all of it is a copy, except for
    managedFields, which are never changed in place and which are often the larger part."""
    if everything:
        return _all_in_order(live, changed)
    if changed is live or type(changed) is not dict:
        return changed
    before = live if type(live) is dict else {}
    return {key: in_go_order(before.get(key), changed[key]) for key in sorted(changed)}


def _all_in_order(live: Any, changed: Any) -> Any:
    meta = changed.get("metadata") if type(changed) is dict else None
    owners = meta.get("managedFields") if type(meta) is dict else None
    if meta is None or owners is None or owners is not live["metadata"].get("managedFields"):
        return _in_order(changed)
    copied = _in_order({**changed, "metadata": {**meta, "managedFields": None}})
    copied["metadata"]["managedFields"] = owners
    return copied


def _in_order(value: Any) -> Any:
    if type(value) is dict:
        return {key: _in_order(child) if type(child := value[key]) in (dict, list) else child for key in sorted(value)}
    if type(value) is list:
        return [_in_order(child) if type(child) in (dict, list) else child for child in value]
    return value
