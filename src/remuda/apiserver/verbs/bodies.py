"""The conversion of a body to a typed object: kind and version checks, unknown and duplicate fields, defaults."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from remuda.kube import errors
from remuda.kube.encoding.jsonio import dumps_text
from remuda.kube.errors import go_quote, invalid_value
from remuda.kube.objects import GroupVersionKind, GroupVersionResource, dig

from ..admission.webhook_matching import ServedKind
from ..registry.resources import Registry, Version
from ..scheme import builtin_types
from .context import IGNORE, STRICT, Call

Obj = dict[str, Any]


def decode(call: Call, raw: Any, duplicates: list[str] | None = None) -> Obj:
    """A private object of the call's version with defaults filled in. `raw` must not be used afterwards.

    `duplicates` are the messages of strict validation about repeated keys in the text.
    """
    version = call.version
    if raw is None and version.resource.builtin:
        raw = {}
    if raw is None:
        raise unrecognized(call, "Object 'Kind' is missing in 'null'")
    if not isinstance(raw, dict):
        raise unrecognized(call, not_an_object(raw))
    if raw.get("apiVersion") == version.api_version and raw.get("kind") == version.kind:
        obj, unknown = version.decode(raw)
        report_strict(call, unknown, duplicates or [])
    else:
        obj = _decode_other(call, raw, duplicates or [])
    obj["apiVersion"], obj["kind"] = version.api_version, version.kind
    if dig(raw, "metadata", "managedFields") == []:
        # An empty list differs from an absent one: it means to drop all ownership.
        obj["metadata"]["managedFields"] = []
    version.strategy.default(obj)
    return obj


def _decode_other(call: Call, raw: Obj, duplicates: list[str]) -> Obj:
    """The object of a body that does not state the call's version and kind: a built-in may leave them to the path."""
    version = call.version
    given = _check_kind(call, raw)
    obj, unknown = version.decode(raw) if version.resource.builtin else (raw, [])
    report_strict(call, unknown, duplicates)
    if not version.resource.builtin:
        raise _another_kind(version, given, raw)
    return obj


# Go reports so many at most.
_MOST_COMPLAINTS = 100


class Repeated(list[str]):
    """Messages about repeated keys of a JSON document that is read into a struct: Go reports them and unknown fields in the order
    of the document, and nothing inside an unknown field."""

    def __init__(self, paths: list[str], places: dict[str, list[int]]) -> None:
        super().__init__(f'duplicate field "{path}"' for path in paths)
        self._paths = paths
        self._places = places

    def among(self, unknown: list[str]) -> list[str]:
        unknown = unknown[:_MOST_COMPLAINTS]
        found = [(self._place(path, 0), _unknown(path)) for path in unknown]
        for path, message in list(zip(self._paths, self, strict=True))[:_MOST_COMPLAINTS]:
            if not any(path == each or path.startswith((f"{each}.", f"{each}[")) for each in unknown):
                found.append((self._place(path, 1), message))
        return [message for _, message in sorted(found, key=lambda each: each[0])][:_MOST_COMPLAINTS]

    def _place(self, path: str, time: int) -> int:
        """The path of the key when it is met for the first time, or again."""
        met = self._places.get(path, [])
        return met[time] if time < len(met) else 0


def _unknown(path: str) -> str:
    return f'unknown field "{path}"'


def report_strict(call: Call, unknown: list[str], duplicates: list[str]) -> None:
    if (not unknown and not duplicates) or call.field_validation == IGNORE:
        return
    found = duplicates.among(unknown) if isinstance(duplicates, Repeated) else [*duplicates, *map(_unknown, unknown)]
    if call.field_validation == STRICT:
        version = call.version
        text = f"strict decoding error: {', '.join(found)}"
        # The result of a strategic patch has no key order of its own.
        restoring = f"strict decoding error: {', '.join(sorted(found))}"
        raise errors.Unreadable(version.kind, version.name, version.kind, text, restoring)
    for each in found:
        # YAML's errors come as one text with a line each.
        call.warnings.extend(line.strip() for line in each.removeprefix("yaml: unmarshal errors:\n").split("\n"))


_SHOWN = 30


def unrecognized(call: Call, why: str) -> errors.ApiError:
    """The error for a body without kind or version; the message quotes its beginning."""
    data = call.sent
    shown = data[:_SHOWN].decode(errors="replace") if data.startswith(b"{") else data[:_SHOWN].hex()
    summary = f"{shown} ..." if len(data) > _SHOWN else shown or "<empty>"
    return errors.bad_request(f"the object provided is unrecognized (must be of type {call.version.kind}): {why} ({summary})")


def not_an_object(raw: Any) -> str:
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


def kind_problem(raw: Obj) -> str:
    """The reason why the body's kind and version can't be parsed; empty when they can."""
    for name in ("apiVersion", "kind"):
        if raw.get(name) is not None and not isinstance(raw[name], str):
            found = "object" if isinstance(raw[name], dict) else _json_type(raw[name])
            return (
                f"couldn't get version/kind; json parse error: json: cannot unmarshal {found} into Go struct field "
                f".{name} of type string"
            )
    if (raw.get("apiVersion") or "").count("/") > 1:
        return f"unexpected GroupVersion string: {raw['apiVersion']}"
    return ""


def _check_kind(call: Call, raw: Obj) -> GroupVersionKind:
    """The body's kind and version, refused when unreadable, or impossible for a built-in."""
    version = call.version
    if problem := kind_problem(raw):
        raise unrecognized(call, problem)
    given = GroupVersionKind.of(raw)
    if version.resource.builtin:
        check_builtin_kind(version, given)
    elif not given.kind:
        raise unrecognized(call, f"Object 'Kind' is missing in '{_as_sent(call, raw)}'")
    return given


def check_builtin_kind(version: Version, given: GroupVersionKind) -> None:
    """Parts missing from the body follow from the path; those given must match the path's kind."""
    kind = given.kind or version.kind
    where = (given.group, given.version) if given.version else (version.group, version.name)
    if (kind, *where) == (version.kind, version.group, version.name):
        return
    if where[1] not in _INTERNAL and not is_known(*where, kind):
        shown = f"{where[0]}/{where[1]}" if where[0] else where[1]
        why = not_registered(kind, shown)
    else:
        why = f"converting ({where[1]}.{kind}) to ({version.internal_type}): unknown conversion"
    raise errors.Unreadable(kind, where[1], version.kind, why)


def not_registered(kind: str, api_version: str) -> str:
    return f'no kind {go_quote(kind)} is registered for version {go_quote(api_version)} in scheme "pkg/runtime/scheme.go:111"'


_INTERNAL = frozenset(("__internal",))
# Kinds that every Kubernetes group and version has besides its own.
_EVERYWHERE = frozenset(
    ("CreateOptions", "DeleteOptions", "GetOptions", "ListOptions", "PatchOptions", "UpdateOptions", "WatchEvent")
)
_CORE = frozenset(("APIGroup", "APIGroupList", "APIResourceList", "APIVersions", "List", "Status"))


def is_known(group: str, version: str, kind: str) -> bool:
    """True if a kube-apiserver has a Go type of this name."""
    if builtin_types.type_of(group, version, kind) is not None:
        return True
    if kind in _EVERYWHERE:
        return any((each.group, each.version) == (group, version) for each in builtin_types.kinds())
    return (group, version) == ("", "v1") and kind in _CORE


def _another_kind(version: Version, given: GroupVersionKind, raw: Obj) -> errors.ApiError:
    """A custom resource whose body is readable but of another kind than the path's."""
    if given.api_version != version.api_version:
        return errors.bad_request(
            f"the API version in the data ({given.api_version}) does not match the expected API version ({version.api_version})"
        )
    problem = invalid_value("kind", given.kind, f"must be {version.kind}")
    return errors.invalid(version.group, given.kind, str(dig(raw, "metadata", "name") or ""), [problem])


def _as_sent(call: Call, raw: Obj) -> str:
    return call.sent.decode(errors="replace") if call.sent else dumps_text(raw)


# --- objects for admission webhooks ---------------------------------------------------------------------------------------


class RegistryKinds:
    """The registry as admission webhooks need it: equivalent versions, conversion, defaulting."""

    def __init__(self, registry: Registry) -> None:
        self._registry = registry

    @property
    def revision(self) -> int:
        return self._registry.generation

    def equivalents(self, resource: GroupVersionResource, subresource: str) -> Sequence[ServedKind]:
        found = self._registry.find(*resource)
        if found is None:
            return []
        shown = []
        for version in self._registry.versions():
            if version.resource.bucket is not found.resource.bucket or version.resource.virtual:
                continue
            where = GroupVersionResource(version.group, version.name, version.resource.name)
            sub = version.subresources.get(subresource) if subresource else None
            if subresource and sub is None:
                continue
            kind = (
                GroupVersionKind(sub.group, sub.version, sub.kind)
                if sub is not None
                else GroupVersionKind(version.group, version.name, version.kind)
            )
            shown.append(ServedKind(where, kind))
        return shown

    async def convert(self, obj: Obj, to: GroupVersionKind) -> Obj:
        if obj.get("apiVersion") == to.api_version:
            return obj
        version = self._registry.by_kind(to.group, to.version, to.kind)
        if version is None:
            raise errors.internal(f"{to.kind} is not served in {to.api_version}")
        if version.resource.convert is None:
            return {**obj, "apiVersion": to.api_version, "kind": to.kind}
        (converted,) = await version.resource.convert([obj], to.version)
        return converted

    def default(self, obj: Obj, resource: GroupVersionResource, subresource: str) -> Obj:
        version = self._registry.find(*resource)
        if version is None or (subresource and subresource != "status"):
            return obj
        try:
            if version.resource.builtin:
                check_builtin_kind(version, GroupVersionKind.of(obj))
            decoded, _ = version.decode(obj)
        except errors.ApiError as error:
            # Only the decoder's own message, without the prefix for a client's body.
            _, found, why = error.message.partition(f" cannot be handled as a {version.kind}: ")
            if why.startswith("converting"):
                raise errors.ApiError(500, "", why) from None
            raise errors.internal(why if found else error.message) from None
        decoded["apiVersion"], decoded["kind"] = version.api_version, version.kind
        version.strategy.default(decoded)
        return decoded
