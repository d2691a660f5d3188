"""coordination.k8s.io: leases."""

from __future__ import annotations

from remuda.kube.errors import forbidden_field, invalid_value, not_supported

from ..registry import object_meta
from ..registry.strategy import AGE, NAME, Strategy, at, column
from . import checks
from .checks import Errors, Obj, sub


def _spec_errors(obj: Obj) -> Errors:
    spec = sub(obj, "spec")
    errors: Errors = []
    seconds, transitions, strategy = (spec.get(f) for f in ("leaseDurationSeconds", "leaseTransitions", "strategy"))
    if seconds is not None and seconds <= 0:
        errors.append(invalid_value("spec.leaseDurationSeconds", seconds, "must be greater than 0"))
    errors += checks.nonnegative(transitions, "spec.leaseTransitions")
    if strategy is not None:
        path = "spec.strategy.strategy"
        if "/" in strategy:
            errors += checks.qualified(strategy, path)
        elif strategy != "OldestEmulationVersion":
            errors.append(not_supported(path, strategy, ("OldestEmulationVersion",)))
    if spec.get("preferredHolder") and not strategy:
        errors.append(forbidden_field("spec.preferredHolder", "may only be specified if `strategy` is defined"))
    return errors


LEASE = Strategy(
    validate=lambda obj: (
        object_meta.validate_object_meta(sub(obj, "metadata"), True, object_meta.subdomain_name) + _spec_errors(obj)
    ),
    validate_update=lambda obj, old: (
        object_meta.validate_object_meta_update(sub(obj, "metadata"), sub(old, "metadata")) + _spec_errors(obj)
    ),
    name_problems=object_meta.subdomain_name,
    columns=(NAME, column("Holder", at("spec", "holderIdentity"), "The holder of the lease."), AGE),
    allow_create_on_update=True,
    allow_unconditional_update=False,
)
