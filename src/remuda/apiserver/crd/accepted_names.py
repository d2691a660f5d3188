"""Who may have which names: of several CRDs in a group that want the same, the first to be accepted has it."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from remuda.kube.errors import aggregate_text, go_quote

from .internal_version import Obj, dict_of, list_of

_CONFLICTS = (
    ("plural", "PluralConflict"),
    ("singular", "SingularConflict"),
    ("shortNames", "ShortNamesConflict"),
    ("kind", "KindConflict"),
    ("listKind", "ListKindConflict"),
)


def accepted_names(crd: Obj) -> Obj:
    return dict_of(dict_of(crd.get("status")).get("acceptedNames"))


def taken_names(crds: Iterable[Obj], group: str) -> tuple[set[str], set[str]]:
    """The resource names and the kinds that the CRDs of a group have been given."""
    resources: set[str] = set()
    kinds: set[str] = set()
    for crd in crds:
        if dict_of(crd.get("spec")).get("group") != group:
            continue
        names = accepted_names(crd)
        resources.update((names.get("plural") or "", names.get("singular") or "", *list_of(names.get("shortNames"))))
        kinds.update((names.get("kind") or "", names.get("listKind") or ""))
    return resources, kinds


def decide_names(crd: Obj, crds: Iterable[Obj]) -> tuple[Obj, str, str]:
    """The names that `crd` has from now on, with a reason and a message.

    `crds` are all CRDs, this one included, with what each was given so far. The reason is `NoConflicts` when everything
    that was asked for is granted.
    """
    spec = dict_of(crd.get("spec"))
    wanted, had = dict_of(spec.get("names")), accepted_names(crd)
    resources, kinds = taken_names(crds, spec.get("group") or "")
    granted = dict(had)
    reason, message = "NoConflicts", "no conflicts found"
    for field, conflict in _CONFLICTS:
        used = kinds if field in ("kind", "listKind") else resources
        problems = _problems(wanted.get(field), had.get(field), used)
        if problems:
            # The last conflict is the one that is told, as in kube-apiserver.
            reason, message = conflict, aggregate_text(problems)
        else:
            _put(granted, field, wanted.get(field))
    _put(granted, "categories", wanted.get("categories"))
    return granted, reason, message


def _put(names: Obj, field: str, value: Any) -> None:
    if value:
        names[field] = value
    else:
        names.pop(field, None)


def _problems(wanted: Any, had: Any, used: set[str]) -> list[str]:
    if isinstance(wanted, list):
        kept = list_of(had)
        return [f"{go_quote(name)} is already in use" for name in wanted if name not in kept and name in used]
    name = wanted or ""
    if name == (had or "") or name not in used:
        return []
    return [f"{go_quote(name)} is already in use"]
