"""PodSecurity: the Pod Security Standards that a namespace's labels demand of the pods in it.

`pod-security.kubernetes.io/enforce` refuses pods, `warn` adds a warning, `audit` an annotation for the audit log. Workloads with
a pod template are never refused, only warned of. Wrong labels are refused, and a stricter level names the pods that violate it
already. The rules are in :mod:`.pod_security_standards`.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from remuda.kube.admission_attributes import CREATE, UPDATE, Attributes
from remuda.kube.errors import FieldError, aggregate_text, go_quote, invalid, invalid_value
from remuda.kube.objects import ObjectSource, dig, labels_of, name_of
from remuda.kube.owners import controller_of

from . import pod_security_standards as standards
from .pod_security_standards import LATEST, LEVELS, PRIVILEGED, RESTRICTED

Obj = dict[str, Any]

_PREFIX = "pod-security.kubernetes.io/"
_VERSION = re.compile(r"v1\.([0-9]|[1-9][0-9]*)")
# Writes to these change nothing that a rule looks at.
_OTHER_SUBRESOURCES = frozenset(("attach", "binding", "eviction", "exec", "log", "portforward", "proxy", "status"))
# The most pods that a change of a namespace's level is checked against.
_MOST_PODS = 3000
_TEMPLATES = {
    ("", "podtemplates"): ("template",),
    ("", "replicationcontrollers"): ("spec", "template"),
    ("apps", "daemonsets"): ("spec", "template"),
    ("apps", "deployments"): ("spec", "template"),
    ("apps", "replicasets"): ("spec", "template"),
    ("apps", "statefulsets"): ("spec", "template"),
    ("batch", "cronjobs"): ("spec", "jobTemplate", "spec", "template"),
    ("batch", "jobs"): ("spec", "template"),
}


@dataclass(frozen=True, slots=True)
class _Standard:
    level: str = PRIVILEGED
    minor: int = LATEST

    def __str__(self) -> str:
        return f"{self.level}:{'latest' if self.minor == LATEST else f'v1.{self.minor}'}"

    def is_stricter_than(self, other: _Standard) -> bool:
        return LEVELS.index(self.level) > LEVELS.index(other.level)

    def violations_of(self, pod: Obj) -> str:
        return ", ".join(map(str, standards.violations(self.level, self.minor, pod)))


@dataclass(frozen=True, slots=True)
class _Policy:
    """The levels that a namespace requires, and the errors of its labels."""

    enforce: _Standard
    audit: _Standard
    warn: _Standard
    errors: list[FieldError]


def _policy(labels: dict[str, str]) -> _Policy:
    """A label that can't be read fails closed for `enforce`, and open for the others."""
    errors: list[FieldError] = []

    def level(mode: str, otherwise: str) -> str:
        given = labels.get(_PREFIX + mode)
        if given is None or given in LEVELS:
            return given or PRIVILEGED
        errors.append(invalid_value(f"metadata.labels[{_PREFIX}{mode}]", given, f"must be one of {', '.join(LEVELS)}"))
        return otherwise

    def minor(mode: str) -> int:
        key = f"{_PREFIX}{mode}-version"
        given = labels.get(key, "latest")
        if given == "latest":
            return LATEST
        if (match := _VERSION.fullmatch(given)) is not None:
            return int(match[1])
        errors.append(invalid_value(f"metadata.labels[{key}]", given, 'must be "latest" or "v1.x"'))
        return LATEST

    # In this order, which is that of the errors.
    enforce = _Standard(level("enforce", RESTRICTED), minor("enforce"))
    audit = _Standard(level("audit", PRIVILEGED), minor("audit"))
    warn = _Standard(level("warn", PRIVILEGED), minor("warn"))
    if _PREFIX + "warn" not in labels and labels.get(_PREFIX + "enforce") in LEVELS and enforce.is_stricter_than(warn):
        warn = _Standard(enforce.level, warn.minor if f"{_PREFIX}warn-version" in labels else enforce.minor)
    return _Policy(enforce, audit, warn, errors)


class PodSecurity:
    name = "PodSecurity"
    resources = frozenset((("", "namespaces"), ("", "pods"), *_TEMPLATES))

    def __init__(self, source: ObjectSource) -> None:
        self._source = source

    async def admit(self, attributes: Attributes) -> None:
        pass

    async def validate(self, attributes: Attributes) -> None:
        if attributes.operation not in (CREATE, UPDATE) or attributes.obj is None:
            return
        if attributes.resource == "namespaces":
            if not attributes.subresource:
                self._validate_namespace(attributes, attributes.obj)
        elif attributes.resource == "pods":
            self._validate_pod(attributes, attributes.obj)
        elif not attributes.subresource:
            self._validate_template(attributes, attributes.obj)

    def _policy_of(self, namespace: str) -> _Policy | None:
        """None: nothing is demanded."""
        found = self._source.get("", "namespaces", "", namespace)
        labels = labels_of(found) if found is not None else {}
        return _policy(labels) if any(key.startswith(_PREFIX) for key in labels) else None

    # --- pods and templates ---------------------------------------------------------------------------------------------

    def _validate_pod(self, attributes: Attributes, pod: Obj) -> None:
        if attributes.subresource in _OTHER_SUBRESOURCES:
            return
        if attributes.old is not None and attributes.operation == UPDATE and _images(pod) == _images(attributes.old):
            return
        policy = self._policy_of(attributes.namespace)
        if policy is None:
            attributes.annotations[f"{_PREFIX}enforce-policy"] = str(_Standard())
            return
        attributes.annotations[f"{_PREFIX}enforce-policy"] = str(policy.enforce)
        _audit(attributes, policy, pod)
        if found := policy.enforce.violations_of(pod):
            raise attributes.forbidden(f"violates PodSecurity {go_quote(str(policy.enforce))}: {found}")
        _warn(attributes, policy, pod)

    def _validate_template(self, attributes: Attributes, workload: Obj) -> None:
        policy = self._policy_of(attributes.namespace)
        template = dig(workload, *_TEMPLATES[attributes.group, attributes.resource])
        if policy is not None and template is not None:
            _audit(attributes, policy, template)
            _warn(attributes, policy, template)

    # --- namespaces -----------------------------------------------------------------------------------------------------

    def _validate_namespace(self, attributes: Attributes, namespace: Obj) -> None:
        new = _policy(labels_of(namespace))
        old = _policy(labels_of(attributes.old)) if attributes.old is not None else None
        if new.errors and (old is None or new.errors != old.errors):
            raise invalid(attributes.group, attributes.kind, attributes.display_name, new.errors)
        if old is None or new.enforce == old.enforce or new.enforce.level == PRIVILEGED:
            return
        if new.enforce.minor == old.enforce.minor and not new.enforce.is_stricter_than(old.enforce):
            return
        pods = _one_of_each_controller_first(self._source.list("", "pods", name_of(namespace)))
        attributes.warnings.extend(_warnings_of(name_of(namespace), new.enforce, pods))


def _audit(attributes: Attributes, policy: _Policy, pod: Obj) -> None:
    if policy.errors:
        why = aggregate_text([str(error) for error in policy.errors])
        attributes.annotations[f"{_PREFIX}error"] = f"Failed to parse policy: {why}"
    if found := policy.audit.violations_of(pod):
        why = f"would violate PodSecurity {go_quote(str(policy.audit))}: {found}"
        attributes.annotations[f"{_PREFIX}audit-violations"] = why


def _warn(attributes: Attributes, policy: _Policy, pod: Obj) -> None:
    if found := policy.warn.violations_of(pod):
        attributes.warnings.append(f"would violate PodSecurity {go_quote(str(policy.warn))}: {found}")


def _images(pod: Obj) -> list[object]:
    """The fields of a pod that can be changed and are checked."""
    spec = pod.get("spec") or {}
    named = [(each.get("name"), each.get("image")) for each in spec.get("ephemeralContainers") or ()]
    return [[each.get("image") for each in spec.get(name) or ()] for name in ("initContainers", "containers")] + [named]


def _one_of_each_controller_first(pods: Iterable[Obj]) -> list[Obj]:
    """The pods of one controller are mostly alike."""
    first: list[Obj] = []
    others: list[Obj] = []
    seen: set[str] = set()
    for pod in pods:
        owner = (controller_of(pod) or {}).get("uid") or ""
        (others if owner in seen else first).append(pod)
        if owner:
            seen.add(owner)
    return first + others


def _warnings_of(namespace: str, standard: _Standard, pods: list[Obj]) -> list[str]:
    """The pods that violate a namespace's new level, grouped by the rules that they violate."""
    groups: dict[str, list[str]] = {}
    for pod in pods[:_MOST_PODS]:
        reasons = ", ".join(found.reason for found in standards.violations(standard.level, standard.minor, pod))
        if reasons:
            groups.setdefault(reasons, []).append(name_of(pod))
    found: list[str] = []
    if len(pods) > _MOST_PODS:
        only = f"only checked against the first {_MOST_PODS} of {len(pods)} existing pods"
        found.append(f"new PodSecurity enforce level {only}")
    if groups:
        level = go_quote(str(standard))
        found.append(f"existing pods in namespace {go_quote(namespace)} violate the new PodSecurity enforce level {level}")
    return found + sorted(f"{_some(names)}: {reasons}" for reasons, names in groups.items())


def _some(names: list[str]) -> str:
    others = len(names) - 1
    if not others:
        return names[0]
    return f"{min(names)} (and {others} other {'pod' if others == 1 else 'pods'})"
