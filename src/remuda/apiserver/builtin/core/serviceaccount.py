"""ServiceAccounts: references to secrets are names only."""

from __future__ import annotations

from ...registry import object_meta
from ...registry.strategy import AGE, NAME, Strategy
from .. import checks
from ..checks import Errors, Obj, sub

_ENFORCE = "kubernetes.io/enforce-mountable-secrets"


def _names_only(obj: Obj) -> None:
    if obj.get("secrets"):
        obj["secrets"] = [{"name": each["name"]} if each.get("name") else {} for each in obj["secrets"]]


def _validate(obj: Obj) -> Errors:
    return checks.meta_errors(obj, True, object_meta.subdomain_name)


def _warnings(obj: Obj, old: Obj | None) -> list[str]:
    if old is not None and _ENFORCE in (sub(old, "metadata").get("annotations") or {}):
        return []
    if _ENFORCE not in (sub(obj, "metadata").get("annotations") or {}):
        return []
    advice = "deprecated in v1.32+; prefer separate namespaces to isolate access to mounted secrets"
    return [f"metadata.annotations[{_ENFORCE}]: {advice}"]


STRATEGY = Strategy(
    prepare_for_create=_names_only,
    validate=_validate,
    prepare_for_update=lambda obj, old: _names_only(obj),
    validate_update=lambda obj, old: checks.meta_update_errors(obj, old) + _validate(obj),
    warnings=_warnings,
    name_problems=object_meta.subdomain_name,
    columns=(NAME, AGE),
)
