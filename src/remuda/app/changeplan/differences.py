"""What differs between two versions of an object or of a machine's plan, field by field, for people to read. Pure.

Values that may be secret are not shown: the content of files, the values of variables, and fields named like credentials.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from remuda.kube.encoding import jsonio
from remuda.kube.redaction import redacted
from remuda.provisioning.plans.plan import INSTALL, Plan, instruction

from .result import FieldChange

Obj = dict[str, Any]

_SECRET = re.compile(r"token|secret|password|credential|private|key$", re.IGNORECASE)
_STAMPS = ("RESTART_STAMP", "DRAIN_HASH")
_CONFIG = "/config.yaml.d/50-rancher.yaml"
_WIDEST = 120
_HIDDEN = "(not shown)"
# Written by the server, or by programs for themselves.
_METADATA = ("labels", "annotations", "ownerReferences", "finalizers", "deletionTimestamp")
_OWN = ("kubectl.kubernetes.io/last-applied-configuration", "objectset.rio.cattle.io/applied", "rke.cattle.io/cluster-spec")


def of_objects(before: Obj, after: Obj) -> tuple[FieldChange, ...]:
    """The fields of an object that changed, without its status and what the server itself writes into it."""
    return tuple(_fields(_shown(before), _shown(after), ""))


def _shown(obj: Obj) -> Obj:
    metadata = obj.get("metadata") or {}
    kept: Obj = {name: metadata[name] for name in _METADATA if metadata.get(name)}
    if "annotations" in kept:
        kept["annotations"] = {name: text for name, text in kept["annotations"].items() if name not in _OWN}
    rest = {name: value for name, value in obj.items() if name not in ("metadata", "status", "kind", "apiVersion")}
    return {"metadata": kept, **rest}


def of_values(before: Any, after: Any, path: str) -> tuple[FieldChange, ...]:
    """The fields below `path` that differ."""
    return tuple(_fields(before, after, path))


def _fields(before: Any, after: Any, path: str) -> Iterator[FieldChange]:
    if _same(before, after):
        return
    if isinstance(before, dict | None) and isinstance(after, dict | None) and (before or after):
        before, after = before or {}, after or {}
        for name in sorted({*before, *after}):
            yield from _fields(before.get(name), after.get(name), f"{path}.{name}" if path else str(name))
        return
    if _listed_by_name(before) and _listed_by_name(after):
        yield from _fields(_by_name(before), _by_name(after), path)
        return
    yield FieldChange(path, shown(path, before), shown(path, after))


def _same(before: Any, after: Any) -> bool:
    """Absent, null and empty are the same."""
    return bool(before == after) or (before in (None, {}, [], "") and after in (None, {}, [], ""))


def _listed_by_name(value: Any) -> bool:
    return (
        isinstance(value, list)
        and bool(value)
        and all(isinstance(each, dict) and isinstance(each.get("name"), str) for each in value)
    )


def _by_name(value: list[Obj]) -> Obj:
    return {f"[{each['name']}]": each for each in value}


def shown(path: str, value: Any) -> str:
    """A value in one line; not if its field is named like a credential."""
    if value in (None, "", {}, []):
        return ""
    if _SECRET.search(path.rpartition(".")[2]):
        return _HIDDEN
    text = redacted(value if isinstance(value, str) else jsonio.dumps(value).decode())
    text = " ".join(text.split())
    return text if len(text) <= _WIDEST else f"{text[: _WIDEST - 1]}…"


# --- plans of machines ------------------------------------------------------------------------------------------------------


def of_plans(before: Plan | None, after: Plan | None) -> tuple[FieldChange, ...]:
    """What is different for a machine: version, configuration, files by path, variables and probes by name."""
    old, new = before or Plan(), after or Plan()
    found = [*_installs(old, new), *_files(old, new), *_names("instruction", _tasks(old), _tasks(new))]
    found += _names("periodic instruction", _repeated(old), _repeated(new))
    found += _names("probe", old.probes, new.probes)
    return tuple(found)


def _installs(old: Plan, new: Plan) -> Iterator[FieldChange]:
    before, after = instruction(old, INSTALL), instruction(new, INSTALL)
    if before is None or after is None:
        return
    names, versions = zip(*(each.image.rpartition(":")[::2] for each in (before, after)), strict=True)
    if versions[0] != versions[1]:
        yield FieldChange("version", *(text.replace("-", "+") for text in versions))
    if names[0] != names[1]:
        yield FieldChange("installer image", *names)
    yield from _names("variable", _variables(before.env), _variables(after.env))


def _variables(env: Iterable[str]) -> dict[str, str]:
    pairs = (each.partition("=") for each in env)
    return {name: value for name, _, value in pairs if name not in _STAMPS}


def _files(old: Plan, new: Plan) -> Iterator[FieldChange]:
    before, after = ({file.path: file for file in plan.files} for plan in (old, new))
    for path in sorted({*before, *after}):
        if before.get(path) == after.get(path):
            continue
        if path.endswith(_CONFIG) and path in before and path in after:
            yield from _fields(jsonio.loads(before[path].data), jsonio.loads(after[path].data), "config")
        else:
            yield FieldChange(f"file {path}", *_states(path in before, path in after))


def _tasks(plan: Plan) -> dict[str, Any]:
    return {each.name: each for each in plan.instructions if each.name != INSTALL}


def _repeated(plan: Plan) -> dict[str, Any]:
    return {each.name: each for each in plan.periodicInstructions}


def _names(what: str, before: Mapping[str, Any], after: Mapping[str, Any]) -> Iterator[FieldChange]:
    for name in sorted({*before, *after}):
        if before.get(name) != after.get(name):
            yield FieldChange(f"{what} {name}", *_states(name in before, name in after))


def _states(was: bool, is_now: bool) -> tuple[str, str]:
    if was and is_now:
        return "as before", "changed"
    return ("present", "") if was else ("", "present")
