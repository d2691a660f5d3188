"""What a patch leaves, read as the kind it must be; or refused with the patched text, as kube-apiserver shows it.

Go applies JSON and merge patches to text: what a patch touches is written anew with its keys in order, the rest stays as
it was. Strategic patches work on untyped values and have words of their own. :mod:`.patch` makes what is read here.
"""

from __future__ import annotations

from typing import Any

from remuda.kube import errors
from remuda.kube.encoding import jsonio
from remuda.kube.encoding.go_format import shown
from remuda.kube.errors import invalid_value
from remuda.kube.objects import GroupVersionKind

from . import bodies, metadata
from .call import STRICT, Call

Obj = dict[str, Any]


def read(call: Call, changed: Any, duplicates: list[str], live: Obj | None = None, patch: Any = None) -> Obj:
    """The typed object that a patch leaves. For errors: `live` is what was patched, `patch` the patch if it is strategic."""
    everything = patch is not None or not call.version.resource.builtin
    try:
        if not isinstance(changed, dict):
            raise _unreadable(call, bodies.not_an_object(changed))
        _check_custom_kind(call, changed)
        # Decoding changes what it is given; what is all in order has been made anew.
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
    """The typed object that an apply leaves. The merge has checked it against the schema, so that a custom one is complete:
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
    """What an apply did not change is still the very same."""
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
    """A custom resource that says it is something else is read, and refused by validation."""
    version = call.version
    if version.resource.builtin or not all(isinstance(changed.get(name) or "", str) for name in ("apiVersion", "kind")):
        # What is no text is told by who reads it.
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
    """`changed` with the keys of what differs from `live` in order; or of everything, and then all of it is a copy, but for
    managedFields, which nobody changes in place and which are often the larger part."""
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
