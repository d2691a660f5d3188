"""Values as kube-apiserver's internal Go structs are printed, for the few errors that end in one or in a diff of two.

The layout of the structs is generated (`internal_types.json`: Go name, JSON name and type of every field, in Go's order).
"""

from __future__ import annotations

import difflib
import json
from functools import cache
from importlib import resources
from typing import Any

from .checks import Obj, Verbatim, shown_selector, sub

_HOST_FIELDS = ("hostNetwork", "hostPID", "hostIPC", "shareProcessNamespace", "hostUsers")
_META_FIELDS = ("name", "generateName", "namespace", "labels", "annotations", "ownerReferences", "finalizers")
_ZEROES: dict[str, Any] = {"string": "", "bool": False, "int32": 0, "int64": 0, "intstr.IntOrString": 0}


@cache
def _layouts() -> dict[str, list[tuple[str, str, str]]]:
    text = resources.files(__package__).joinpath("internal_types.json").read_text()
    return {name: [(row[0], row[1], row[2]) for row in rows] for name, rows in json.loads(text).items()}


def _rendered(kind: str, value: Any) -> Any:
    if kind.startswith("*"):
        return None if value is None else _rendered(kind[1:], value)
    if kind.startswith("[]"):
        return None if value is None else [_rendered(kind[2:], item) for item in value]
    if kind == "ResourceList" or kind.startswith("map["):
        return None if value is None else dict(sorted(value.items()))
    if kind in _layouts():
        return {go: _rendered(inner, (value or {}).get(name)) for go, name, inner in _layouts()[kind]}
    if kind == "metav1.LabelSelector":
        return json.loads(shown_selector(value))
    if kind == "resource.Quantity":
        return "0" if value is None else value
    return _ZEROES.get(kind) if value is None else value


def _internal(kind: str, value: Obj) -> Any:
    if kind == "PodSpec":
        # The pod's host flags live in its security context there.
        flags = {field: value[field] for field in _HOST_FIELDS if field in value}
        value = {**value, "securityContext": {**sub(value, "securityContext"), **flags}}
    if kind == "PodTemplateSpec":
        meta = sub(value, "metadata")
        inlined = {field: meta[field] for field in _META_FIELDS if meta.get(field)}
        for field in ("labels", "annotations"):
            if field in inlined:
                inlined[field] = dict(sorted(inlined[field].items()))
        return {**inlined, "Spec": _internal("PodSpec", sub(value, "spec"))}
    return _rendered(kind, value)


def _escaped(text: str) -> str:
    return text.replace("&", "\\u0026").replace("<", "\\u003c").replace(">", "\\u003e")


def shown(kind: str, value: Obj) -> Verbatim:
    """`value` on one line."""
    return Verbatim(_escaped(json.dumps(_internal(kind, value), ensure_ascii=False, separators=(",", ":"))))


def _lines(kind: str, value: Obj) -> list[str]:
    text = _escaped(json.dumps(_internal(kind, value), ensure_ascii=False, indent=1))
    return [f"{line}\n" for line in text.split("\n")]


def diff(kind: str, old: Obj, new: Obj) -> str:
    """A diff of two values, with three lines of context."""
    changes = difflib.unified_diff(_lines(kind, old), _lines(kind, new), n=3)
    return "".join(line for line in changes if not line.startswith(("--- ", "+++ ")))
