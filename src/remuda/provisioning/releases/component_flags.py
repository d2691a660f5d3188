"""The flags of Kubernetes' components, by minor version: what `kubelet-arg` and its like may hold.

A component ends at a flag that it does not know, or whose value is none of its type, and the host with it. The data is what the
sources say (`component_flags.json`, written by `tests/real/describe_component_flags.py`). It has every flag, and some words that
are none, so that an entry is only called fatal if it is. Not judged: versions that the data does not have, etcd and cloud
controllers, and values that are texts, such as names of feature gates.
"""

from __future__ import annotations

import importlib.resources
import re
from collections.abc import Mapping
from functools import cache
from typing import Any

from remuda.kube import duration
from remuda.kube.encoding import jsonio

_FILE = "component_flags.json"
_SUFFIX = "-arg"
_TRUTHS = frozenset(("1", "t", "T", "TRUE", "true", "True", "0", "f", "F", "FALSE", "false", "False"))
_NUMBER = re.compile(r"[+-]?(0[xX][0-9a-fA-F_]+|0[bB][01_]+|0[oO][0-7_]+|[0-9]+)", re.ASCII)
_EXAMPLES = {"bool": "true or false", "int": "a whole number", "duration": "a duration such as 10s"}


def why_fatal(argument: str, entry: str, minor: str) -> str:
    """The reason why a component would not start with this entry of an argument such as `kubelet-arg`; "" if it would, or if that
    is not known."""
    component = argument.removesuffix(_SUFFIX)
    known = _flags(minor).get(component) if argument.endswith(_SUFFIX) else None
    # The distributions take `--name=value` too, and `name+=value` for one more value beside their own.
    written, equals, value = entry.removeprefix("--").partition("=")
    name = written.rstrip("+-").replace("_", "-")
    if not known or not name:
        return ""
    if name not in known:
        return f"{component} {minor} has no flag {name}"
    kind = known[name]
    if _is_of(kind, value if equals else "true"):
        return ""
    return f"{component} takes {_EXAMPLES[kind]} for {name}"


def _is_of(kind: str, value: str) -> bool:
    match kind:
        case "bool":
            return value in _TRUTHS
        case "int":
            return _NUMBER.fullmatch(value) is not None
        case "duration":
            return duration.parse_go_duration(value) is not None
    return True


@cache
def _flags(minor: str) -> Mapping[str, Mapping[str, str]]:
    """By component, its flags and their types; empty for versions that the data does not have."""
    data: dict[str, Any] = jsonio.loads((importlib.resources.files(__package__) / _FILE).read_bytes())
    every = data["minors"]
    if minor not in every:
        return {}
    return {
        component: {name: said.get("type", "") for name, said in flags.items() if minor in said.get("minors", every)}
        for component, flags in data["components"].items()
    }
