"""From what a caller sent to a typed object: kind and version checks, unknown and duplicate fields, defaults."""

from __future__ import annotations

from typing import Any

from remuda.kube import errors
from remuda.kube.errors import go_quote
from remuda.kube.jsonio import dumps_text
from remuda.kube.objects import GroupVersionKind

from ..calls import IGNORE, STRICT, Call
from ..resources import Version

Obj = dict[str, Any]


def decode(call: Call, raw: Any, duplicates: list[str] | None = None) -> Obj:
    """A private object of the call's version with defaults filled in. `raw` must not be used afterwards."""
    version = call.version
    if not isinstance(raw, dict):
        raise errors.bad_request(_not_an_object(version, raw))
    _check_kind(version, raw)
    resets_ownership = isinstance(raw.get("metadata"), dict) and raw["metadata"].get("managedFields") == []
    obj, unknown = version.decode(raw)
    if resets_ownership:
        # An empty list is a wish (forget who owns what), not just an empty field that decoding may drop.
        obj["metadata"]["managedFields"] = []
    obj["apiVersion"], obj["kind"] = version.api_version, version.kind
    report_strict(call, unknown, duplicates or [])
    version.strategy.default(obj)
    return obj


def report_strict(call: Call, unknown: list[str], duplicates: list[str]) -> None:
    if (not unknown and not duplicates) or call.field_validation == IGNORE:
        return
    found = [f'duplicate field "{path}"' for path in duplicates] + [f'unknown field "{path}"' for path in unknown]
    if call.field_validation == STRICT:
        version = call.version
        text = ", ".join(found)
        raise errors.bad_request(
            f"{version.kind} in version {go_quote(version.name)} cannot be handled as a {version.kind}: "
            f"strict decoding error: {text}"
        )
    call.warnings.extend(found)


def _not_an_object(version: Version, raw: Any) -> str:
    return (
        f"couldn't get version/kind; json parse error: json: cannot unmarshal {_json_type(raw)} into Go value of type "
        'struct { APIVersion string "json:\\"apiVersion,omitempty\\""; Kind string "json:\\"kind,omitempty\\"" }'
    )


def _json_type(raw: Any) -> str:
    if isinstance(raw, bool):
        return "bool"
    if isinstance(raw, (int, float)):
        return "number"
    return "string" if isinstance(raw, str) else "array"


def _check_kind(version: Version, raw: Obj) -> None:
    for name in ("apiVersion", "kind"):
        if raw.get(name) is not None and not isinstance(raw[name], str):
            found = "object" if isinstance(raw[name], dict) else _json_type(raw[name])
            raise errors.bad_request(
                f"couldn't get version/kind; json parse error: json: cannot unmarshal {found} into Go struct field "
                f".{name} of type string"
            )
    given = GroupVersionKind.of(raw)
    expected = version.api_version
    if not version.resource.builtin:
        if not given.kind:
            raise errors.bad_request(f"Object 'Kind' is missing in '{_shown(raw)}'")
        if not given.version:
            raise errors.bad_request(f"Object 'apiVersion' is missing in '{_shown(raw)}'")
    if given.version and given.api_version != expected:
        raise errors.bad_request(
            f"the API version in the data ({given.api_version}) does not match the expected API version ({expected})"
        )
    if given.kind and given.kind != version.kind:
        raise errors.bad_request(_wrong_kind(version, given))


def _wrong_kind(version: Version, found: GroupVersionKind) -> str:
    if not version.resource.builtin:
        return f"{found.kind} in version {go_quote(found.version)} cannot be handled as a {version.kind}: unknown kind"
    given = found.version or version.name
    return (
        f"{found.kind} in version {go_quote(given)} cannot be handled as a {version.kind}: "
        f"converting ({given}.{found.kind}) to ({_internal_package(version)}.{version.kind}): unknown conversion"
    )


def _internal_package(version: Version) -> str:
    return version.group.partition(".")[0] or "core"


def _shown(raw: Obj) -> str:
    return dumps_text(raw)
