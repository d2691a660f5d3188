"""MachineDrainRules: checks. There are no defaults."""

from __future__ import annotations

from collections.abc import Iterable

from remuda.kube.admission_attributes import Attributes
from remuda.kube.errors import FieldError, invalid_value

from .shared_rules import Errors, Obj, items, section, selector_of, text, whole_number

_WITHOUT_ORDER = ("Skip", "WaitCompleted")
_SELECTORS = (("machines", "selector", "clusterSelector"), ("pods", "selector", "namespaceSelector"))


def validate(attributes: Attributes) -> Iterable[FieldError]:
    obj = attributes.obj or {}
    errors: Errors = []
    order = whole_number(obj, "spec", "drain", "order")
    if order is not None and text(obj, "spec", "drain", "behavior") in _WITHOUT_ORDER:
        why = 'order must not be set if drain behavior is "Skip" or "WaitCompleted"'
        errors.append(invalid_value("spec.drain.order", order, why))
    return errors + selector_errors(obj)


def selector_errors(obj: Obj) -> list[FieldError]:
    """The errors in the rule's selectors; draining asks too, since a rule may be older than this check."""
    errors: Errors = []
    for group, *fields in _SELECTORS:
        for index, item in enumerate(items(obj, "spec", group)):
            for field in fields:
                if isinstance(item, dict) and item.get(field) is not None:
                    selector_of(section(item, field), f"spec.{group}[{index}].{field}", errors)
    return errors
