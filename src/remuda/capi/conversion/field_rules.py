"""The ways a field can differ between v1beta1 and v1beta2, each as one rule that works in both directions.

Rules work on structs in plain form (:mod:`.go_structs`) and name fields by dotted paths: first v1beta1's, then v1beta2's. In
comments and names "up" is to v1beta2 and "down" is to v1beta1. :mod:`.kind_rules` puts the rules together.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any, Protocol

from remuda.kube.duration import parse_go_duration
from remuda.kube.errors import ConversionError

from .go_structs import Obj

_MAX_INT32, _MIN_INT32 = 2**31 - 1, -(2**31)


class ContractVersions(Protocol):
    def api_version(self, group: str, kind: str) -> str | None:
        """The apiVersion ("group/version") for this kind by the contract labels of its CRD; None if unknown."""


@dataclass(frozen=True, slots=True)
class ConversionContext:
    """A rule's inputs besides the struct. `restored` is the same struct as v1beta2 last had it, if that is known."""

    namespace: str
    versions: ContractVersions
    restored: Obj | None = None

    def within(self, path: tuple[str, ...]) -> ConversionContext:
        if self.restored is None:
            return self
        found = _get(self.restored, path)
        return replace(self, restored=found if isinstance(found, dict) else {})


# A step reads from the first struct and writes into the second.
_Step = Callable[[Obj, Obj, ConversionContext], None]


@dataclass(frozen=True, slots=True)
class FieldRule:
    up: _Step
    down: _Step


class Pair:
    """The rules that together convert one struct."""

    __slots__ = ("_downs", "_ups", "rules")

    def __init__(self, *rules: FieldRule) -> None:
        self.rules = rules
        self._ups = tuple(rule.up for rule in rules)
        self._downs = tuple(rule.down for rule in rules)

    def up(self, old: Obj, scope: ConversionContext) -> Obj:
        new: Obj = {}
        for step in self._ups:
            step(old, new, scope)
        return new

    def down(self, new: Obj, scope: ConversionContext) -> Obj:
        old: Obj = {}
        for step in self._downs:
            step(new, old, scope)
        return old


def _get(struct: Any, path: tuple[str, ...]) -> Any:
    for part in path:
        if not isinstance(struct, dict):
            return None
        struct = struct.get(part)
    return struct


def _put(struct: Obj, path: tuple[str, ...], value: Any) -> None:
    for part in path[:-1]:
        struct = struct.setdefault(part, {})
    struct[path[-1]] = value


def _path(dotted: str) -> tuple[str, ...]:
    return tuple(dotted.split("."))


def _carry(source: tuple[str, ...], target: tuple[str, ...], change: Callable[[Any], Any] | None = None) -> _Step:
    """Copies a value that is set, through `change`; a change to None leaves it out."""

    def step(source_struct: Obj, target_struct: Obj, scope: ConversionContext) -> None:
        value = _get(source_struct, source)
        if value is not None and change is not None:
            value = change(value)
        if value is not None:
            _put(target_struct, target, value)

    return step


def nothing(source: Obj, target: Obj, scope: ConversionContext) -> None:
    """The step of a rule that works in one direction only."""


def same(*names: str) -> FieldRule:
    """Fields that have the same name and form in both versions."""

    def step(source: Obj, target: Obj, scope: ConversionContext) -> None:
        for name in names:
            if name in source:
                target[name] = source[name]

    return FieldRule(step, step)


def moved(old: str, new: str) -> FieldRule:
    """A field at another path, with the same form."""
    return FieldRule(_carry(_path(old), _path(new)), _carry(_path(new), _path(old)))


def unless_zero(old: str, new: str) -> FieldRule:
    """A pointer on one side, a plain value on the other; zero and absent are the same."""

    def change(value: Any) -> Any:
        return value or None

    return FieldRule(_carry(_path(old), _path(new), change), _carry(_path(new), _path(old), change))


def always(old: str, new: str) -> FieldRule:
    """A plain number of v1beta1 that v1beta2 points to, and that is set there even if it is zero."""
    source, target = _path(old), _path(new)

    def up(struct: Obj, out: Obj, scope: ConversionContext) -> None:
        _put(out, target, _get(struct, source) or 0)

    return FieldRule(up, unless_zero(old, new).down)


def intended(old: str, new: str) -> FieldRule:
    """A plain value of v1beta1 that is a pointer in v1beta2: its zero means "not set" unless v1beta2 last had that zero."""
    source, target = _path(old), _path(new)

    def up(struct: Obj, out: Obj, scope: ConversionContext) -> None:
        value = _get(struct, source)
        if not value:
            value = _get(scope.restored, target)
            if value or not isinstance(value, int):
                return
        _put(out, target, value)

    return FieldRule(up, unless_zero(old, new).down)


def kept(*names: str) -> FieldRule:
    """Fields that v1beta1 lacks or may not set: they stay as v1beta2 last had them, if that is known."""

    def up(struct: Obj, out: Obj, scope: ConversionContext) -> None:
        if scope.restored is None:
            return
        for name in names:
            out.pop(name, None)
            # An empty string counts as nothing, but zero seconds don't.
            if (value := scope.restored.get(name)) not in (None, ""):
                out[name] = value

    return FieldRule(up, nothing)


def seconds(old: str, new: str) -> FieldRule:
    """A Go duration in v1beta1, whole seconds as a number in v1beta2."""
    return FieldRule(_carry(_path(old), _path(new), to_seconds), _carry(_path(new), _path(old), to_duration))


def seconds_always(old: str, new: str) -> FieldRule:
    """The same for a duration that is no pointer in v1beta1: not set is zero seconds."""
    source, target = _path(old), _path(new)

    def up(struct: Obj, out: Obj, scope: ConversionContext) -> None:
        _put(out, target, to_seconds(_get(struct, source) or "0s"))

    return FieldRule(up, seconds(old, new).down)


@lru_cache(maxsize=1024)
def to_seconds(duration: str) -> int:
    """Cut to whole seconds towards zero, and to what 32 bits hold."""
    found = parse_go_duration(duration)
    if found is None:
        raise ConversionError(f'time: invalid duration "{duration}"')
    whole = abs(found) // 10**9
    return max(_MIN_INT32, min(_MAX_INT32, whole if found >= 0 else -whole))


@lru_cache(maxsize=1024)
def to_duration(whole: int) -> str:
    """A duration as Go prints it: the largest unit that is needed, and every smaller one."""
    sign, rest = ("-", -whole) if whole < 0 else ("", whole)
    minutes, second = divmod(rest, 60)
    hours, minute = divmod(minutes, 60)
    if hours:
        return f"{sign}{hours}h{minute}m{second}s"
    return f"{sign}{minute}m{second}s" if minute else f"{sign}{second}s"


def nested(old: str, new: str, pair: Pair) -> FieldRule:
    """A struct with rules of its own. An empty result counts as none in v1beta2, but not in v1beta1."""
    source, target = _path(old), _path(new)

    def up(struct: Obj, out: Obj, scope: ConversionContext) -> None:
        value = _get(struct, source)
        if value and (converted := pair.up(value, scope.within(target))):
            _put(out, target, converted)

    def down(struct: Obj, out: Obj, scope: ConversionContext) -> None:
        if value := _get(struct, target):
            _put(out, source, pair.down(value, scope))

    return FieldRule(up, down)


def each(old: str, new: str, pair: Pair, keep_empty: bool = True) -> FieldRule:
    """A list of structs with rules of their own."""
    source, target = _path(old), _path(new)

    def up(struct: Obj, out: Obj, scope: ConversionContext) -> None:
        items = _get(struct, source)
        if items or (keep_empty and items is not None):
            _put(out, target, [pair.up(item, scope) for item in items])

    def down(struct: Obj, out: Obj, scope: ConversionContext) -> None:
        items = _get(struct, target)
        if items or (keep_empty and items is not None):
            _put(out, source, [pair.down(item, scope) for item in items])

    return FieldRule(up, down)


def contract_reference(old: str, new: str) -> FieldRule:
    """A full reference in v1beta1, group, kind and name in v1beta2."""
    source, target = _path(old), _path(new)

    def up(struct: Obj, out: Obj, scope: ConversionContext) -> None:
        reference = _get(struct, source) or {}
        found = _set(kind=reference.get("kind"), name=reference.get("name"), apiGroup=_group(reference.get("apiVersion") or ""))
        if found:
            _put(out, target, found)

    def down(struct: Obj, out: Obj, scope: ConversionContext) -> None:
        if reference := _get(struct, target):
            group, kind = reference.get("apiGroup") or "", reference.get("kind") or ""
            found = _set(
                apiVersion=scope.versions.api_version(group, kind) or _fallback(group),
                kind=kind,
                namespace=scope.namespace,
                name=reference.get("name"),
            )
            _put(out, source, found)

    return FieldRule(up, down)


def _group(api_version: str) -> str:
    group, slash, version = api_version.partition("/")
    if "/" in version:
        raise ConversionError(
            f"failed to convert object: failed to parse apiVersion: unexpected GroupVersion string: {api_version}"
        )
    return group if slash else ""


def _fallback(group: str) -> str:
    """An apiVersion for a kind without a CRD (or without contract labels on it).

    Upstream fails the conversion then, so that one Cluster with an uninstalled provider makes every list of Clusters in
    v1beta1 unreadable. Here the reference gets the version that v1beta1's contract is named after. Nothing is lost by
    that: on the way back only group, kind and name count.
    """
    return f"{group}/v1beta1" if group else "v1"


def template_reference(old: str, new: str) -> FieldRule:
    """A reference that keeps its apiVersion in v1beta2 too, but not its namespace, which is the object's own."""
    source, target = _path(old), _path(new)

    def pick(reference: Obj) -> Obj:
        return _set(kind=reference.get("kind"), name=reference.get("name"), apiVersion=reference.get("apiVersion"))

    def up(struct: Obj, out: Obj, scope: ConversionContext) -> None:
        if found := pick(_get(struct, source) or {}):
            _put(out, target, found)

    def down(struct: Obj, out: Obj, scope: ConversionContext) -> None:
        if reference := _get(struct, target):
            _put(out, source, {**pick(reference), **_set(namespace=scope.namespace)})

    return FieldRule(up, down)


def _set(**fields: Any) -> Obj:
    return {name: value for name, value in fields.items() if value}
