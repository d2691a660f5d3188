"""scheduling.k8s.io: PriorityClasses."""

from __future__ import annotations

from remuda.kube.errors import forbidden_field

from ..registry import object_meta
from ..registry.strategy import AGE, NAME, Strategy, at, column, number
from . import checks
from .checks import Errors, Obj, sub

_HIGHEST = 1_000_000_000
_SYSTEM = {"system-node-critical": 2 * _HIGHEST + 1000, "system-cluster-critical": 2 * _HIGHEST}


def _default(obj: Obj) -> None:
    if obj.get("preemptionPolicy") is None:
        obj["preemptionPolicy"] = "PreemptLowerPriority"


def _system_problem(name: str, obj: Obj) -> str:
    value = obj.get("value") or 0
    if name not in _SYSTEM:
        return f"{name} is not a known system priority class"
    if value != _SYSTEM[name]:
        return f"value of {name} PriorityClass must be {_SYSTEM[name]}"
    return f"globalDefault of {name} PriorityClass must be false" if obj.get("globalDefault") else ""


def _validate(obj: Obj) -> Errors:
    errors = checks.meta_errors(obj, False, object_meta.subdomain_name)
    name = sub(obj, "metadata").get("name") or ""
    if name.startswith("system-"):
        problem = _system_problem(name, obj)
        if problem:
            why = f"priority class names with 'system-' prefix are reserved for system use only. error: {problem}"
            errors.append(forbidden_field("metadata.name", why))
    elif (obj.get("value") or 0) > _HIGHEST:
        errors.append(forbidden_field("value", f"maximum allowed value of a user defined priority is {_HIGHEST}"))
    if obj.get("preemptionPolicy") is not None:
        errors += checks.supported(obj["preemptionPolicy"], ("PreemptLowerPriority", "Never"), "preemptionPolicy")
    return errors


def _validate_update(obj: Obj, old: Obj) -> Errors:
    errors = checks.meta_update_errors(obj, old)
    if (obj.get("value") or 0) != (old.get("value") or 0):
        errors.append(forbidden_field("value", "may not be changed in an update."))
    return errors + checks.immutable(obj.get("preemptionPolicy"), old.get("preemptionPolicy"), "preemptionPolicy")


def _prepare_for_create(obj: Obj) -> None:
    # The generation is always 1.
    obj.setdefault("metadata", {})["generation"] = 1


PRIORITY_CLASS = Strategy(
    default=_default,
    prepare_for_create=_prepare_for_create,
    validate=_validate,
    validate_update=_validate_update,
    name_problems=object_meta.subdomain_name,
    columns=(
        NAME,
        number("Value", at("value", default=0), "The priority itself."),
        number("Global-Default", at("globalDefault", default=False), "Whether pods without a class get it.", "boolean"),
        AGE,
        column("PreemptionPolicy", at("preemptionPolicy"), "Whether such pods push others off."),
    ),
)
