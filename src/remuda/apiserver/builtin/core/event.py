"""Events, which are one kind in two groups: core/v1 and events.k8s.io/v1. Both are stored in core's shape.

Old-style events are hardly checked; events created through events.k8s.io must be complete, and only their series may change
later.
"""

from __future__ import annotations

from remuda.kube import names
from remuda.kube.encoding.jsonio import dumps_text
from remuda.kube.errors import FieldError, invalid_value, required

from ...registry import object_meta
from ...registry.strategy import UNKNOWN, Column, Elapsed, Strategy, at, column
from .. import checks
from ..checks import Errors, Obj, sub

_TO_CORE = {
    "regarding": "involvedObject",
    "note": "message",
    "deprecatedSource": "source",
    "deprecatedFirstTimestamp": "firstTimestamp",
    "deprecatedLastTimestamp": "lastTimestamp",
    "deprecatedCount": "count",
    "reportingController": "reportingComponent",
}
_FROM_CORE = {core: new for new, core in _TO_CORE.items()}
_REFERENCE = ("kind", "namespace", "name", "uid", "apiVersion", "resourceVersion", "fieldPath")
_GO_REFERENCE = ("Kind", "Namespace", "Name", "UID", "APIVersion", "ResourceVersion", "FieldPath")
TTL_SECONDS = 3600


def to_core(obj: Obj) -> Obj:
    """An events.k8s.io/v1 event in core/v1's shape."""
    return {_TO_CORE.get(key, key): value for key, value in obj.items()} | {"apiVersion": "v1"}


def from_core(obj: Obj) -> Obj:
    """A core/v1 event in events.k8s.io/v1's shape."""
    return {_FROM_CORE.get(key, key): value for key, value in obj.items()} | {"apiVersion": "events.k8s.io/v1"}


def _legacy_errors(obj: Obj, reporting: str) -> Errors:
    namespace = sub(obj, "metadata").get("namespace") or ""
    involved = sub(obj, "involvedObject").get("namespace") or ""
    mismatch = invalid_value("involvedObject.namespace", involved, "does not match event.namespace")
    errors: Errors = []
    if not obj.get("eventTime"):
        if namespace != involved if involved else namespace not in ("", "default"):
            errors.append(mismatch)
    else:
        if not involved and namespace not in ("default", "kube-system"):
            errors.append(mismatch)
        errors += _complete_errors(obj, reporting)
    return errors + [invalid_value("namespace", namespace, why) for why in names.dns_subdomain_problems(namespace)]


def _complete_errors(obj: Obj, reporting: str) -> Errors:
    errors: Errors = []
    controller = obj.get("reportingComponent") or ""
    if not controller:
        errors.append(required(reporting))
    errors += checks.qualified(controller, reporting)
    for field in ("reportingInstance", "action", "reason"):
        text = obj.get(field) or ""
        if not text:
            errors.append(required(field))
        errors += _short(text, field, 128)
    return errors + _short(obj.get("message") or "", "message", 1024)


def _short(text: str, path: str, limit: int) -> Errors:
    return [invalid_value(path, "", f"can have at most {limit} characters")] if len(text.encode()) > limit else []


def _series_errors(obj: Obj) -> Errors:
    series = obj.get("series")
    if series is None:
        return []
    errors: Errors = []
    if (series.get("count") or 0) < 2:
        errors.append(invalid_value("series.count", "", "should be at least 2"))
    if not series.get("lastObservedTime"):
        errors.append(required("series.lastObservedTime"))
    return errors


def _strict_errors(obj: Obj) -> Errors:
    errors = _legacy_errors(obj, "reportingController")
    errors += checks.meta_errors(obj, True, object_meta.subdomain_name) + _series_errors(obj)
    if not obj.get("eventTime"):
        errors.append(required("eventTime"))
    kind = obj.get("type") or ""
    if kind not in ("Normal", "Warning"):
        errors.append(invalid_value("type", "", f"has invalid value: {kind}"))
    for field in ("firstTimestamp", "lastTimestamp", "count"):
        if obj.get(field):
            errors.append(invalid_value(field, "", "needs to be unset"))
    source = sub(obj, "source")
    if source.get("component") or source.get("host"):
        errors.append(invalid_value("source", "", "needs to be unset"))
    return errors


def _strict_update_errors(obj: Obj, old: Obj) -> Errors:
    errors = _legacy_errors(obj, "reportingController") + checks.meta_update_errors(obj, old)
    if obj.get("series") != old.get("series"):
        errors += _series_errors(obj)
    errors += _immutable_reference(obj, old, "involvedObject")
    for field in ("reason", "message"):
        errors += _immutable_text(obj, old, field)
    if sub(obj, "source") != sub(old, "source"):
        source = sub(obj, "source")
        shown = checks.Verbatim(dumps_text({"Component": source.get("component", ""), "Host": source.get("host", "")}))
        errors.append(invalid_value("source", shown, object_meta.IMMUTABLE))
    for field in ("firstTimestamp", "lastTimestamp"):
        errors += checks.immutable(obj.get(field), old.get(field), field)
    if (obj.get("count") or 0) != (old.get("count") or 0):
        errors.append(invalid_value("count", obj.get("count") or 0, object_meta.IMMUTABLE))
    for field in ("reason", "type"):
        errors += _immutable_text(obj, old, field)
    errors += checks.immutable(obj.get("eventTime"), old.get("eventTime"), "eventTime")
    errors += _immutable_text(obj, old, "action")
    errors += _immutable_reference(obj, old, "related")
    errors += _immutable_text(obj, old, "reportingComponent", "reportingController")
    return errors + _immutable_text(obj, old, "reportingInstance")


def _immutable_text(obj: Obj, old: Obj, field: str, path: str = "") -> Errors:
    new = obj.get(field) or ""
    return [] if new == (old.get(field) or "") else [invalid_value(path or field, new, object_meta.IMMUTABLE)]


def _immutable_reference(obj: Obj, old: Obj, field: str) -> Errors:
    new = obj.get(field)
    if (new or {}) == (old.get(field) or {}):
        return []
    shown = {go: (new or {}).get(name, "") for name, go in zip(_REFERENCE, _GO_REFERENCE, strict=True)}
    text = "null" if new is None and field == "related" else dumps_text(shown)
    return [invalid_value(field, checks.Verbatim(text), object_meta.IMMUTABLE)]


def _fields(obj: Obj) -> dict[str, str]:
    reporting = obj.get("reportingComponent") or ""
    found = {f"involvedObject.{field}": sub(obj, "involvedObject").get(field) or "" for field in _REFERENCE}
    found["reason"] = obj.get("reason") or ""
    found["reportingComponent"] = reporting
    found["source"] = sub(obj, "source").get("component") or reporting
    found["type"] = obj.get("type") or ""
    return found


def _regarding_fields(obj: Obj) -> dict[str, str]:
    found = {f"regarding.{field}": sub(obj, "regarding").get(field) or "" for field in _REFERENCE}
    for field in ("reason", "reportingController", "type"):
        found[field] = obj.get(field) or ""
    return found


# ---------------------------------------------------------------------------------------------------------------------
# Columns


def _moment(timestamp: str | None) -> Elapsed | str:
    return Elapsed(timestamp) if timestamp else UNKNOWN


def _first_seen(obj: Obj) -> Elapsed | str:
    return _moment(obj.get("firstTimestamp") or obj.get("eventTime"))


def _last_seen(obj: Obj) -> Elapsed | str:
    if obj.get("series") is not None:
        return _moment(sub(obj, "series").get("lastObservedTime"))
    return _moment(obj["lastTimestamp"]) if obj.get("lastTimestamp") else _first_seen(obj)


def _count(obj: Obj) -> int:
    if obj.get("series") is not None:
        return int(sub(obj, "series").get("count") or 0)
    return int(obj.get("count") or 1)


def _target(obj: Obj) -> str:
    involved = sub(obj, "involvedObject")
    kind = (involved.get("kind") or "").lower()
    return f"{kind}/{involved['name']}" if involved.get("name") else kind


def _source(obj: Obj) -> str:
    source = sub(obj, "source")
    component = source.get("component") or obj.get("reportingComponent") or ""
    instance = source.get("host") or obj.get("reportingInstance") or ""
    return f"{component}, {instance}" if instance else component


_COLUMNS = (
    column("Last Seen", _last_seen, "When this last happened."),
    column("Type", at("type"), "Normal or Warning."),
    column("Reason", at("reason"), "The reason, in one word."),
    column("Object", _target, "The object of the event."),
    column("Subobject", at("involvedObject", "fieldPath"), "The part of the object that this is about.", wide=True),
    column("Source", _source, "The reporter of the event.", wide=True),
    column("Message", lambda obj: (obj.get("message") or "").strip(), "A description of the event."),
    column("First Seen", _first_seen, "When this first happened.", wide=True),
    column("Count", _count, "The number of occurrences.", wide=True),
    Column("Name", "string", "The event's own name.", at("metadata", "name"), "name", 1),
)


def _on_core(each: Column) -> Column:
    return Column(each.name, each.type, each.description, lambda obj: each.value(to_core(obj)), each.format, each.priority)


def _core_errors(obj: Obj, old: Obj | None = None) -> list[FieldError]:
    return _legacy_errors(obj, "reportingComponent")


STRATEGY = Strategy(
    validate=_core_errors,
    validate_update=_core_errors,
    fields=_fields,
    field_names=frozenset(_fields({})),
    columns=_COLUMNS,
    allow_create_on_update=True,
    ttl=TTL_SECONDS,
)

# The same kind in events.k8s.io/v1; objects are in that version's shape.
EVENTS_STRATEGY = Strategy(
    validate=lambda obj: _strict_errors(to_core(obj)),
    validate_update=lambda obj, old: _strict_update_errors(to_core(obj), to_core(old)),
    fields=_regarding_fields,
    field_names=frozenset(_regarding_fields({})),
    columns=tuple(_on_core(each) for each in _COLUMNS),
    allow_create_on_update=True,
    ttl=TTL_SECONDS,
)
