"""Common checks of all kinds that create pods from a template: ReplicationControllers, apps, and jobs."""

from __future__ import annotations

from collections.abc import Callable

from remuda.kube import selectors
from remuda.kube.errors import forbidden_field, invalid_value, not_supported, required

from . import checks
from .checks import Errors, Obj, shown_selector, sub
from .pods.spec import template_errors
from .pods.warnings import hostname_warnings as hostname_warnings
from .pods.warnings import template_warnings as template_warnings

HOSTNAMES = "Pod names and hostnames"


def selector_errors(spec: Obj, what: str, path: str = "spec") -> Errors:
    selector = spec.get("selector")
    if selector is None:
        return [required(f"{path}.selector")]
    errors = selectors.structure_errors(selector, f"{path}.selector")
    if not selector.get("matchLabels") and not selector.get("matchExpressions"):
        why = f"empty selector is invalid for {what}"
        errors.append(invalid_value(f"{path}.selector", shown_selector(selector), why))
    return errors


def parsed_selector(selector: Obj | None) -> selectors.LabelSelector | None:
    """The parsed selector; None when it is invalid."""
    if selectors.structure_errors(selector, ""):
        return None
    return selectors.from_structure(selector)


def mismatch_errors(selector: selectors.LabelSelector | None, template: Obj, path: str) -> Errors:
    labels = sub(template, "metadata").get("labels")
    if selector is None or selector.matches(labels):
        return []
    why = "`selector` does not match template `labels`"
    return [invalid_value(f"{path}.metadata.labels", labels, why)]


def running_template_errors(template: Obj, what: str, path: str) -> Errors:
    """Errors of a template whose pods are always restarted."""
    errors = template_errors(template, path)
    return errors + always_restarted_errors(template, what, path)


def always_restarted_errors(template: Obj, what: str, path: str) -> Errors:
    spec = sub(template, "spec")
    errors: Errors = []
    if spec.get("restartPolicy") != "Always":
        errors.append(not_supported(f"{path}.spec.restartPolicy", spec.get("restartPolicy") or "", ("Always",)))
    if spec.get("activeDeadlineSeconds") is not None:
        why = f"activeDeadlineSeconds in {what} is not Supported"
        errors.append(forbidden_field(f"{path}.spec.activeDeadlineSeconds", why))
    return errors


def at_most_replicas(status: Obj, fields: tuple[str, ...], ready: str = "readyReplicas") -> Errors:
    """Errors when a count is greater than `replicas`, or more replicas are available than ready."""
    errors: Errors = []
    total = status.get("replicas") or 0
    for field in fields:
        part = status.get(field) or 0
        if part > total:
            errors.append(invalid_value(f"status.{field}", part, "cannot be greater than status.replicas"))
    available = status.get("availableReplicas") or 0
    if available > (status.get("readyReplicas") or 0):
        errors.append(invalid_value("status.availableReplicas", available, f"cannot be greater than {ready}"))
    return errors


def replica_status_errors(counts: tuple[str, ...]) -> Callable[[Obj, Obj], Errors]:
    """The status check of a kind with `counts`: the total first, then three parts of it, then others."""

    def errors(obj: Obj, old: Obj) -> Errors:
        status = sub(obj, "status")
        found = checks.meta_update_errors(obj, old) + checks.all_nonnegative(status, counts, "status")
        return found + at_most_replicas(status, counts[1:4])

    return errors


def collision_errors(status: Obj, before: Obj) -> Errors:
    new, old = status.get("collisionCount"), before.get("collisionCount")
    if old is not None and (new is None or new < old):
        return [invalid_value("status.collisionCount", new or 0, "cannot be decremented")]
    return []


def immutable_selector(spec: Obj, before: Obj) -> Errors:
    shown = shown_selector(spec.get("selector"))
    return checks.immutable(spec.get("selector"), before.get("selector"), "spec.selector", shown)


def warnings(obj: Obj, old: Obj | None, path: str = "spec.template", hostnames: bool = True) -> list[str]:
    found = hostname_warnings(obj, HOSTNAMES) if hostnames and old is None else []
    if old is not None and sub(obj, "metadata").get("generation") == sub(old, "metadata").get("generation"):
        return found
    return found + template_warnings(sub(obj, *path.split(".")), path)
