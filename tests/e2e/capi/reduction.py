"""What two cores left behind, made comparable: chance and time taken out, everything else kept.

Generated names become `<owner>-#1`, `#2`, … wherever they stand: in names, references, messages. Times,
uids, revisions and addresses of test servers go. What is left must be equal, field by field.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Any

Obj = dict[str, Any]

_TIME = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(?:\.\d+)?Z")
_ADDRESS = re.compile(r"127\.0\.0\.1:\d+|198\.1[89]\.\d+\.\d+")
_UUID = re.compile(r"[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}")
_SUFFIX = "[bcdfghjklmnpqrstvwxz2456789]{5}"
_DROPPED = ("uid", "resourceVersion", "creationTimestamp", "managedFields", "selfLink", "deletionTimestamp", "namespace")
# A touch of the Cluster, so that a core looks at it once more; see Side.settled.
POKE = "test.remuda.dev/poke"
# "* Machines a, b, c: …": which of the machines comes first is chance.
# After a minute of draining we say when it will be given up, or that it won't (docs/cluster-api.md); upstream never does.
_OUTLOOK = re.compile(r"\n(?:This is given up at|There is no timeout:).*")
# The others tell of a call that failed and was tried again, as calls do on a busy machine.
PASSING_EVENTS = (
    *("NodeDrainSlow", "VolumeDetachSlow", "FailedUpdate", "FailedDrainNode", "FailedDeleteNode", "FailedCreate"),
    *("FailedWaitForVolumeDetach", "Failed to retrieve Node by ProviderID"),
)
_LISTED = re.compile(r"(\* \w+s )([^:\n]*)(:)")


class Names:
    """Generated names and what they are called here."""

    def __init__(self, objects: Iterable[Obj]) -> None:
        self._known: dict[str, str] = {}
        counts: dict[str, int] = {}
        ordered = sorted(objects, key=_rank)
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

    def gone(self, name: str) -> str:
        """The name of an object that may not exist any more: which of its siblings it was can't be said."""
        return re.sub(rf"-({_SUFFIX}|#\d+)(?=-|$)", "-#", name)


def _rank(obj: Obj) -> tuple[int, str, str]:
    """Owners first; sets in the order of their creation; machines by name, since that is how lists of them are ordered."""
    meta = obj["metadata"]
    return meta["name"].count("-"), meta["creationTimestamp"] if obj["kind"] == "MachineSet" else "", meta["name"]


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
        if set(value) == {"host", "port"}:
            return {"host": value["host"], "port": "<port>"}
        found = {names.plain(key): _value(child, names) for key, child in value.items() if key not in _VOLATILE}
        if "targets" in found:
            # By name, which is chance.
            found["targets"] = sorted(found["targets"])
        return found
    if isinstance(value, list):
        return [_value(child, names) for child in value]
    if isinstance(value, str):
        return _text(value, names)
    return value


# Times and what follows from how often somebody wrote.
_VOLATILE = (POKE, "lastTransitionTime", "lastUpdated", "observedGeneration", "lastHeartbeatTime", "resourceVersion")


def _text(text: str, names: Names) -> str:
    text = _OUTLOOK.sub("", text)
    text = names.plain(_TIME.sub("<time>", _ADDRESS.sub("<address>", _UUID.sub("<uuid>", text))))
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
