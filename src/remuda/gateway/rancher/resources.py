"""One object as Rancher's clients read it, and back: with id, type, links, state, relationships and columns. Pure.

Fields of the object that have the name of one of these get an underscore in front (`_type` of a Secret).
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from remuda.apiserver.registry.strategy import cell
from remuda.kube.errors import bad_request
from remuda.kube.objects import name_of, namespace_of, without_path

from . import kind_details
from .collections import Derived
from .kinds import Kind, Kinds
from .query import Path, Query, Step
from .relationships import relationships_of
from .resource_state import State, shown_conditions, state_of
from .schemas import Permissions

Obj = dict[str, Any]

_OURS: Final = ("id", "type", "links", "actions")
_OURS_IN_METADATA: Final = ("fields", "relationships", "state")
_OURS_IN_CONDITIONS: Final = ("error", "transitioning")
_STATES: Final = 50_000
_LINKS: Final = (("update", "update"), ("patch", "patch"), ("delete", "remove"))


def id_of(obj: Mapping[str, Any]) -> str:
    metadata = obj.get("metadata") or {}
    namespace, name = metadata.get("namespace"), metadata.get("name") or ""
    return f"{namespace}/{name}" if namespace else name


class States:
    """The states of objects, computed once for each version of an object."""

    def __init__(self) -> None:
        self._known: OrderedDict[tuple[Any, Any], State] = OrderedDict()

    def of(self, obj: Obj, now: float) -> State:
        metadata = obj.get("metadata") or {}
        key = (metadata.get("uid"), metadata.get("resourceVersion"))
        found = self._known.get(key)
        if found is None:
            found = state_of(obj, now)
            # A removal becomes an error with time.
            if key[0] and not metadata.get("removed"):
                self._known[key] = found
                if len(self._known) > _STATES:
                    self._known.popitem(last=False)
        return found


@dataclass(frozen=True, slots=True)
class Shape:
    """The form of objects in one answer; `base` is the URL of this API, `more` has further links of a type's objects."""

    base: str
    kinds: Kinds
    permissions: Permissions
    states: States
    now: float
    exclude: tuple[Path, ...] = ()
    include: tuple[Path, ...] = ()
    more: Mapping[str, Iterable[str]] = field(default_factory=dict)

    def derived(self, kind: Kind) -> Derived:
        """The fields that :mod:`.collections` can't read from the object itself."""
        return {
            ("id",): id_of,
            ("type",): lambda obj: kind.id,
            ("metadata", "state"): lambda obj: self.states.of(obj, self.now).shown(),
            ("metadata", "state", "name"): lambda obj: self.states.of(obj, self.now).name,
            ("metadata", "fields"): lambda obj: self.cells(kind, obj),
            ("metadata", "relationships"): lambda obj: relationships_of(kind.group, kind.kind, obj, self.kinds),
        }

    def cells(self, kind: Kind, obj: Obj) -> list[Any]:
        return [cell(column, obj, self.now) for column in kind.columns]

    def shown(self, kind: Kind, obj: Obj) -> Obj:
        obj = kind_details.shown(kind.id, obj)
        links = self.links(kind, obj)
        actions = {name: f"{links['self']}?action={name}" for name in kind_details.ACTIONS.get(kind.id, ())}
        found: Obj = {"id": id_of(obj), "type": kind.id, "links": links, "actions": actions}
        found.update((f"_{key}" if key in _OURS else key, value) for key, value in obj.items())
        found.setdefault("apiVersion", kind.api_version)
        found.setdefault("kind", kind.kind)
        found["metadata"] = {
            **(obj.get("metadata") or {}),
            "fields": self.cells(kind, obj),
            "relationships": relationships_of(kind.group, kind.kind, obj, self.kinds),
            "state": self.states.of(obj, self.now).shown(),
        }
        status = obj.get("status")
        if isinstance(status, dict) and isinstance(status.get("conditions"), list):
            conditions = [each for each in status["conditions"] if isinstance(each, dict)]
            found["status"] = {**status, "conditions": shown_conditions(conditions)}
        return projected(found, self.exclude, self.include)

    def links(self, kind: Kind, obj: Obj) -> dict[str, str]:
        namespace, name = namespace_of(obj), name_of(obj)
        itself = f"{self.base}/{kind.plural}/{id_of(obj)}"
        links = {"self": itself, "view": itself}
        for verb, link in _LINKS:
            if self.permissions.may(kind, verb, namespace, name):
                links[link] = itself
        links |= {link: f"{itself}?link={link}" for link in self.more.get(id_of(obj), ())}
        return links


def projected(found: Obj, exclude: Iterable[Path], include: Iterable[Path]) -> Obj:
    """Only the wanted fields; what identifies the object always stays."""
    for path in exclude:
        if all(isinstance(step, str) for step in path) and path[0] not in _OURS:
            found = without_path(found, [str(step) for step in path])
    wanted = list(include)
    if not wanted:
        return found
    kept: Obj = {key: found[key] for key in _OURS if key in found}
    for path in (*wanted, ("metadata", "name"), ("metadata", "namespace"), ("metadata", "resourceVersion")):
        _keep(kept, found, path)
    return kept


def _keep(kept: Obj, found: Any, path: Iterable[Step]) -> None:
    *before, last = path
    for step in before:
        if not isinstance(found, dict) or step not in found:
            return
        found = found[step]
        kept = kept.setdefault(str(step), {})
    if isinstance(found, dict) and last in found and isinstance(kept, dict):
        kept[str(last)] = found[last]


def shape_of(
    query: Query, base: str, kinds: Kinds, permissions: Permissions, states: States, now: float, more: Mapping[str, Iterable[str]]
) -> Shape:
    return Shape(base, kinds, permissions, states, now, query.exclude, query.include, more)


# --- back to Kubernetes ---------------------------------------------------------------------------------------------------


def stored_form(kind: Kind, body: Any) -> Obj:
    """The object that a client sends, without what :meth:`Shape.shown` adds. Raises ApiError (400)."""
    if not isinstance(body, dict):
        raise bad_request("the body must be an object")
    found = {key: value for key, value in body.items() if key not in ("id", "links", "actions")}
    if found.get("type") == kind.id or "_type" in found:
        found.pop("type", None)
    for key in _OURS:
        if f"_{key}" in found:
            found[key] = found.pop(f"_{key}")
    found["apiVersion"] = found.get("apiVersion") or kind.api_version
    found["kind"] = found.get("kind") or kind.kind
    metadata = {} if found.get("metadata") is None else found["metadata"]
    if not isinstance(metadata, dict):
        raise bad_request("metadata must be an object")
    found["metadata"] = {key: value for key, value in metadata.items() if key not in _OURS_IN_METADATA}
    status = found.get("status")
    if isinstance(status, dict) and isinstance(status.get("conditions"), list):
        found["status"] = {**status, "conditions": [_stored_condition(each) for each in status["conditions"]]}
    return found


def _stored_condition(condition: Any) -> Any:
    if not isinstance(condition, dict):
        return condition
    return {key: value for key, value in condition.items() if key not in _OURS_IN_CONDITIONS}
