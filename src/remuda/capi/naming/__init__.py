"""Names of machines from `spec.machineNaming.template`, a template in the language of Go's text/template.

It has the part of that language that names need: text, fields, if and else, and functions that cut and compare strings. Loops,
variables and nested templates are refused. :mod:`.lexing` and :mod:`.parsing` read a template, :mod:`.rendering` fills it in;
their errors have Go's words, since admission shows them. Read :mod:`.parsing` first.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache

from .parsing import NameTemplateError, Node, parse
from .rendering import render

__all__ = ["NameTemplateError", "machine_name"]

_MAX = 63
_RANDOM = 5


def machine_name(template: str, cluster: str, machine_set: str, suffix: Callable[[int], str]) -> str:
    """A name for one more machine; `suffix` gives the requested number of random letters."""
    data = {"cluster": {"name": cluster}, "machineSet": {"name": machine_set}, "random": suffix(_RANDOM)}
    name = render(_parsed(template), template, data)
    return name if len(name.encode()) <= _MAX else name[: _MAX - _RANDOM] + suffix(_RANDOM)


@lru_cache(maxsize=256)
def _parsed(template: str) -> tuple[Node, ...]:
    return parse(template)
