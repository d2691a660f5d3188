"""The annotation that client-side `kubectl apply` keeps its last configuration in, and how server-side apply treats it.

A user who moves from client-side to server-side apply must not get conflicts on fields that client-side apply had set:
fields that still have the annotation's value may be taken. While the annotation exists, server-side `kubectl apply` keeps
it current, so that moving back works. :mod:`.field_manager` calls both, for the manager named `kubectl` only.
"""

from __future__ import annotations

from typing import Any

from remuda.kube.encoding.jsonio import JsonError, dumps_sorted, loads

from .compare import compare, to_fieldset
from .field_set import Fields, difference
from .typed import Type, TypedError, validate

Obj = dict[str, Any]

ANNOTATION = "kubectl.kubernetes.io/last-applied-configuration"
KUBECTL = "kubectl"
# The maximum size of all annotations of an object together, in bytes.
MAX_ANNOTATIONS = 256 * 1024
_ESCAPES = {b"<": b"\\u003c", b">": b"\\u003e", b"&": b"\\u0026"}


def allowed_conflicts(type_: Type, live: Obj, api_version: str) -> Fields | None:
    """The fields of the last client-side configuration that are unchanged since; None without such a configuration."""
    text = _annotations(live).get(ANNOTATION)
    if not isinstance(text, str) or not text:
        return None
    try:
        last = loads(text)
    except JsonError:
        return None
    if not isinstance(last, dict) or last.get("apiVersion") != api_version or not last.get("kind"):
        return None
    try:
        validate(type_, live)
        validate(type_, last)
        fields = to_fieldset(type_, last)
        change = compare(type_, last, live)
    except TypedError:
        return None
    return difference(difference(difference(fields, change.modified), change.added), change.removed)


def with_annotation_of(obj: Obj, config: Obj) -> Obj:
    """`obj` with its annotation, if it has one, set to `config`; without it when it would be too large."""
    annotations = _annotations(obj)
    if not annotations.get(ANNOTATION):
        return obj
    updated = {**annotations, ANNOTATION: _encoded(config)}
    if sum(len(str(key).encode()) + len(str(value).encode()) for key, value in updated.items()) > MAX_ANNOTATIONS:
        del updated[ANNOTATION]
    return {**obj, "metadata": {**obj["metadata"], "annotations": updated}}


def _encoded(config: Obj) -> str:
    """The configuration without the annotation itself, as Go's encoder writes it."""
    annotations = _annotations(config)
    if annotations:
        rest = {name: value for name, value in annotations.items() if name != ANNOTATION}
        config = {**config, "metadata": {**config["metadata"], "annotations": rest}}
    data = dumps_sorted(config)
    for char, escape in _ESCAPES.items():
        data = data.replace(char, escape)
    return data.decode() + "\n"


def _annotations(obj: Obj) -> dict[str, Any]:
    metadata = obj.get("metadata")
    found = metadata.get("annotations") if isinstance(metadata, dict) else None
    return found if isinstance(found, dict) else {}
