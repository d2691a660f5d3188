"""What two cores left behind, made comparable: chance and time taken out, everything else kept.

Generated names become `<owner>-#1`, `#2`, … in order of creation, wherever they stand: in names, references, messages. Times,
uids, revisions and addresses of test servers go. What is left must be equal, field by field.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Any

Obj = dict[str, Any]

_TIME = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(?:\.\d+)?Z")
_ADDRESS = re.compile(r"127\.0\.0\.1:\d+")
_SUFFIX = "[bcdfghjklmnpqrstvwxz2456789]{5}"
_DROPPED = ("uid", "resourceVersion", "creationTimestamp", "managedFields", "selfLink", "deletionTimestamp", "namespace")
# "* Machines a, b, c: …": which of the machines comes first is chance.
_LISTED = re.compile(r"(\* \w+s )([^:\n]*)(:)")


class Names:
    """Generated names and what they are called here."""

    def __init__(self, objects: Iterable[Obj]) -> None:
        self._known: dict[str, str] = {}
        counts: dict[str, int] = {}
        ordered = sorted(objects, key=lambda obj: (_generation_depth(obj), obj["metadata"]["creationTimestamp"], _rank(obj)))
        for obj in ordered:
            name = obj["metadata"]["name"]
            match = re.fullmatch(rf"(.+)-({_SUFFIX})", name)
            if match is None or name in self._known:
                continue
            prefix = self._known.get(match.group(1), match.group(1))
            counts[prefix] = counts.get(prefix, 0) + 1
            self._known[name] = f"{prefix}-#{counts[prefix]}"

    def plain(self, text: str) -> str:
        for name in sorted(self._known, key=len, reverse=True):
            text = text.replace(name, self._known[name])
        return text


def _generation_depth(obj: Obj) -> int:
    return int(obj["metadata"]["name"].count("-"))


def _rank(obj: Obj) -> tuple[str, str]:
    """Objects of one second in an order that does not depend on their names: by what they became."""
    status = obj.get("status") or {}
    return str(status.get("phase")), str(status.get("nodeRef") is None)


def reduced(obj: Obj, names: Names) -> Obj:
    """One object, comparable."""
    meta = {key: value for key, value in obj["metadata"].items() if key not in _DROPPED}
    meta["deleting"] = "deletionTimestamp" in obj["metadata"]
    meta["ownerReferences"] = sorted(
        ({key: value for key, value in ref.items() if key != "uid"} for ref in meta.get("ownerReferences") or ()),
        key=lambda ref: (ref["kind"], ref["name"]),
    )
    meta.pop("generation", None)
    whole = {**obj, "metadata": meta}
    found = _value(whole, names)
    assert isinstance(found, dict)
    return found


def _value(value: Any, names: Names) -> Any:
    if isinstance(value, dict):
        return {names.plain(key): _value(child, names) for key, child in value.items() if key not in _VOLATILE}
    if isinstance(value, list):
        return [_value(child, names) for child in value]
    if isinstance(value, str):
        return _text(value, names)
    return value


# Times and what follows from how often somebody wrote.
_VOLATILE = ("lastTransitionTime", "lastUpdated", "observedGeneration", "lastHeartbeatTime", "resourceVersion")


def _text(text: str, names: Names) -> str:
    text = names.plain(_TIME.sub("<time>", _ADDRESS.sub("<address>", text)))
    text = re.sub(rf"\b\d{{6,10}}-{_SUFFIX}\b", "<hash>", text)
    return _LISTED.sub(lambda match: match.group(1) + ", ".join(sorted(match.group(2).split(", "))) + match.group(3), text)


def differences(ours: Any, theirs: Any, path: str = "") -> list[str]:
    """Where two reductions differ, one line each."""
    if isinstance(ours, dict) and isinstance(theirs, dict):
        found: list[str] = []
        for key in sorted({*ours, *theirs}, key=str):
            if key not in ours:
                found.append(f"{path}.{key}: absent, upstream has {_short(theirs[key])}")
            elif key not in theirs:
                found.append(f"{path}.{key}: {_short(ours[key])}, upstream has nothing")
            else:
                found += differences(ours[key], theirs[key], f"{path}.{key}")
        return found
    if isinstance(ours, list) and isinstance(theirs, list) and len(ours) == len(theirs):
        return [
            line for index, pair in enumerate(zip(ours, theirs, strict=True)) for line in differences(*pair, f"{path}[{index}]")
        ]
    return [] if ours == theirs else [f"{path}:\n      ours {_short(ours)}\n  upstream {_short(theirs)}"]


def _short(value: Any) -> str:
    text = repr(value)
    return text if len(text) < 600 else text[:600] + "…"
