"""Parts of an object as the rules need them.

Defaults are set before the schema is checked, so anything may be missing or of the wrong type. What can't be read counts as not
set: the schema refuses it right afterwards, with the field's name.
"""

from __future__ import annotations

from typing import Any

from remuda.kube.errors import Verbatim, show_value
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


def shown_selector(selector: Obj) -> Verbatim:
    """A selector as errors print it: labels first, and nothing that is empty."""
    parts: list[str] = []
    if labels := selector.get("matchLabels"):
        parts.append(f'"matchLabels":{show_value(labels)}')
    if expressions := selector.get("matchExpressions"):
        parts.append(f'"matchExpressions":{show_value([_shown_expression(expression) for expression in expressions])}')
    return Verbatim(f"{{{','.join(parts)}}}")


def _shown_expression(expression: Obj) -> Obj:
    ordered: Obj = {"key": text(expression, "key"), "operator": text(expression, "operator")}
    if values := expression.get("values"):
        ordered["values"] = values
    return ordered
