"""The conditions of a CRD, computed from the CRD itself and the others: pure; the caller only writes them.

`NamesAccepted` and `Established` tell whether it serves, `NonStructuralSchema` and `KubernetesAPIApprovalPolicyConformant`
appear only when there is a problem to report.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any
from urllib.parse import urlsplit

from remuda.kube.errors import FieldError, aggregate_text, go_quote, invalid_value

from .internal_version import Obj, dict_of, list_of, schema_of

ESTABLISHED = "Established"
NAMES_ACCEPTED = "NamesAccepted"
NON_STRUCTURAL = "NonStructuralSchema"
APPROVAL = "KubernetesAPIApprovalPolicyConformant"
APPROVED_ANNOTATION = "api-approved.kubernetes.io"
_POLICY = "see https://github.com/kubernetes/enhancements/pull/1111"


def find(crd: Obj, kind: str) -> Obj | None:
    for condition in list_of(dict_of(crd.get("status")).get("conditions")):
        if isinstance(condition, dict) and condition.get("type") == kind:
            return condition
    return None


def is_true(crd: Obj, kind: str) -> bool:
    condition = find(crd, kind)
    return condition is not None and condition.get("status") == "True"


def is_established(crd: Obj) -> bool:
    return is_true(crd, ESTABLISHED)


def condition(kind: str, status: str, reason: str, message: str) -> Obj:
    return {"type": kind, "status": status, "reason": reason, "message": message}


def with_condition(conditions: list[Obj], new: Obj, now: str) -> list[Obj]:
    """The conditions with `new` among them; its time moves only when the status does."""
    for index, old in enumerate(conditions):
        if old.get("type") != new["type"]:
            continue
        moved = old.get("status") != new["status"] or not old.get("lastTransitionTime")
        since = now if moved else old["lastTransitionTime"]
        return [*conditions[:index], _timed(new, since), *conditions[index + 1 :]]
    return [*conditions, _timed(new, now)]


def _timed(new: Obj, since: str) -> Obj:
    return {
        "lastTransitionTime": since,
        "message": new.get("message", ""),
        "reason": new.get("reason", ""),
        "status": new["status"],
        "type": new["type"],
    }


def is_protected_group(group: str) -> bool:
    return group in ("k8s.io", "kubernetes.io") or group.endswith((".k8s.io", ".kubernetes.io"))


def approval_state(crd: Obj) -> tuple[str, str]:
    """`missing`, `bypassed`, `approved` or `invalid`, and its message."""
    text = dict_of(dict_of(crd.get("metadata")).get("annotations")).get(APPROVED_ANNOTATION) or ""
    wanted = f"protected groups must have approval annotation {go_quote(APPROVED_ANNOTATION)}"
    if not text:
        return "missing", f"{wanted}, {_POLICY}"
    if text.startswith("unapproved"):
        return "bypassed", f"not approved: {go_quote(text)}"
    try:
        parts = urlsplit(text)
        if parts.scheme and parts.netloc and " " not in text:
            return "approved", f"approved in {text}"
    except ValueError:
        pass
    return "invalid", f'{wanted} with either a URL or a reason starting with "unapproved", {_POLICY}'


_APPROVALS = {
    "invalid": ("False", "InvalidAnnotation"),
    "missing": ("False", "MissingAnnotation"),
    "approved": ("True", "ApprovedAnnotation"),
    "bypassed": ("False", "UnapprovedAnnotation"),
}


def approval_condition(crd: Obj) -> Obj | None:
    if not is_protected_group(dict_of(crd.get("spec")).get("group") or ""):
        return None
    state, message = approval_state(crd)
    return condition(APPROVAL, *_APPROVALS[state], message)


def structural_condition(crd: Obj) -> Obj | None:
    """Only CRDs from before structural schemas were required can have it."""
    # Late, with the first definition: see :mod:`remuda.apiserver.crd`.
    from .structural import conversion_problem, structural_errors

    spec = dict_of(crd.get("spec"))
    errors: list[FieldError] = []
    if spec.get("preserveUnknownFields"):
        errors.append(invalid_value("spec.preserveUnknownFields", True, "must be false"))
    for index, version in enumerate(list_of(spec.get("versions"))):
        schema = schema_of(dict_of(version).get("schema"))
        if schema is None:
            continue
        problem = conversion_problem(schema)
        if problem:
            message = f"failed to check validation schema for version {version.get('name')}: {problem}"
            return condition(NON_STRUCTURAL, "Unknown", "StructuralError", message)
        errors += structural_errors(schema, f"spec.versions[{index}].schema.openAPIV3Schema")
    if not errors:
        return None
    unique = list(dict.fromkeys(str(error) for error in errors))
    return condition(NON_STRUCTURAL, "True", "Violations", aggregate_text(unique))


def naming_conditions(crd: Obj, crds: Iterable[Obj]) -> tuple[Obj, Obj, Obj]:
    """The accepted names, and the NamesAccepted and Established conditions that follow from them."""
    names, reason, message = decide_names(crd, crds)
    accepted = condition(NAMES_ACCEPTED, "True" if reason == "NoConflicts" else "False", reason, message)
    established = find(crd, ESTABLISHED) or condition(ESTABLISHED, "False", "NotAccepted", "not all names are accepted")
    if established.get("status") != "True" and accepted["status"] == "True":
        established = condition(ESTABLISHED, "False", "Installing", "the initial names have been accepted")
    return names, accepted, established


def established_condition(crd: Obj, broken_ca_bundle: bool = False) -> Obj | None:
    """The Established condition after the names are accepted; None when nothing changes."""
    if not is_true(crd, NAMES_ACCEPTED) or is_established(crd):
        return None
    if broken_ca_bundle:
        return condition(ESTABLISHED, "False", "InvalidCABundle", "The conversion webhook CABundle is invalid")
    return condition(ESTABLISHED, "True", "InitialNamesAccepted", "the initial names have been accepted")


def next_status(crd: Obj, crds: Iterable[Obj], now: str, broken_ca_bundle: bool = False) -> Obj | None:
    """The status that the CRD should have, with all conditions settled at once; None when it already has it.

    kube-apiserver's controllers get there in several writes; the outcome is the same. `now` is an RFC 3339 time.
    """
    status = dict(dict_of(crd.get("status")))
    conditions: list[Obj] = list_of(status.get("conditions"))
    wanted = dict_of(dict_of(crd.get("spec")).get("names"))
    if wanted != accepted_names(crd):
        names, accepted, established = naming_conditions(crd, crds)
        status["acceptedNames"] = names
        conditions = with_condition(with_condition(conditions, accepted, now), established, now)
    established_now = established_condition({"status": {"conditions": conditions}}, broken_ca_bundle)
    if established_now is not None:
        conditions = with_condition(conditions, established_now, now)
    conditions = _settle(conditions, NON_STRUCTURAL, structural_condition(crd), now, removable=True)
    conditions = _settle(conditions, APPROVAL, approval_condition(crd), now, removable=False)
    status["conditions"] = conditions
    unchanged = status.get("acceptedNames") == dict_of(crd.get("status")).get("acceptedNames")
    if unchanged and conditions == list_of(dict_of(crd.get("status")).get("conditions")):
        return None
    return status


def _settle(conditions: list[Obj], kind: str, new: Obj | None, now: str, removable: bool) -> list[Obj]:
    if new is not None:
        return with_condition(conditions, new, now)
    return [each for each in conditions if each.get("type") != kind] if removable else conditions


def served_versions(crd: Obj) -> list[Any]:
    return [each for each in list_of(dict_of(crd.get("spec")).get("versions")) if dict_of(each).get("served")]


# --- accepted names -------------------------------------------------------------------------------------------------------
#
# Name ownership: if several CRDs in a group want the same name, the first CRD to be accepted gets it.

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

    `crds` are all CRDs, this one included, with their accepted names. The reason is `NoConflicts` when all
    requested names are granted.
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
            # The last conflict is the one reported, as in kube-apiserver.
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
