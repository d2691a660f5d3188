"""Parts of an object as the rules need them.

Defaults are set before the schema is checked, so anything may be missing or of the wrong type. What can't be read counts as not
set: the schema refuses it right afterwards, with the field's name.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from remuda.kube.errors import Verbatim
from remuda.kube.objects import dig

Obj = dict[str, Any]


def section(obj: Obj | None, *path: str) -> Obj:
    found = dig(obj, *path)
    return found if isinstance(found, dict) else {}


def items(obj: Obj | None, *path: str) -> list[Any]:
    found = dig(obj, *path)
    return found if isinstance(found, list) else []


def text(obj: Obj | None, *path: str) -> str:
    found = dig(obj, *path)
    return found if isinstance(found, str) else ""


def whole_number(obj: Obj | None, *path: str) -> int | None:
    found = dig(obj, *path)
    return found if isinstance(found, int) and not isinstance(found, bool) else None


def is_reference(value: Any) -> bool:
    """Whether a reference names anything at all."""
    return any(text(value, field) for field in ("kind", "name", "apiGroup"))


_ESCAPED = {ord(char): f"\\u{ord(char):04x}" for char in "<>&\u2028\u2029"}


def shown(value: Any) -> Verbatim:
    """A bad value that is no plain number or string, as errors print it: JSON, with what HTML might mistake escaped."""
    return Verbatim(json.dumps(value, separators=(",", ":"), ensure_ascii=False).translate(_ESCAPED))


def shown_labels(labels: Mapping[str, str] | None) -> Verbatim:
    return shown(None if labels is None else dict(sorted(labels.items())))


def shown_selector(selector: Obj) -> Verbatim:
    ordered: Obj = {}
    if labels := selector.get("matchLabels"):
        ordered["matchLabels"] = dict(sorted(labels.items()))
    if expressions := selector.get("matchExpressions"):
        ordered["matchExpressions"] = [_shown_expression(expression) for expression in expressions]
    return shown(ordered)


def _shown_expression(expression: Obj) -> Obj:
    ordered: Obj = {"key": text(expression, "key"), "operator": text(expression, "operator")}
    if values := expression.get("values"):
        ordered["values"] = values
    return ordered
