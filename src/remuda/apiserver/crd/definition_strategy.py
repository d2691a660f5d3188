"""The strategy of CustomResourceDefinitions themselves; :mod:`.custom_resource_strategy` makes those of the resources they
define.
"""

from __future__ import annotations

from remuda.kube import names
from remuda.kube.encoding.jsonio import Obj
from remuda.kube.errors import FieldError

from ..registry.strategy import Column, Strategy
from . import defaults

# Validation is imported late, with the first definition that is written: see :mod:`remuda.apiserver.crd`.


def _validate(obj: Obj) -> list[FieldError]:
    from . import validation

    return validation.validate(obj)


def _validate_update(obj: Obj, old: Obj) -> list[FieldError]:
    from . import validation

    return validation.validate_update(obj, old)


def _validate_status_update(obj: Obj, old: Obj) -> list[FieldError]:
    from . import validation

    return validation.validate_status_update(obj, old)


def _warnings(obj: Obj, old: Obj | None) -> list[str]:
    from . import validation

    return validation.warnings(obj, old)


def _name_problems(name: str, prefix: bool) -> list[str]:
    return names.dns_subdomain_problems(name.removesuffix("-") + "a" if prefix and name.endswith("-") else name)


def _created(obj: Obj) -> object:
    return obj["metadata"].get("creationTimestamp")


DEFINITION = Strategy(
    default=defaults.set_defaults,
    prepare_for_create=defaults.prepare_for_create,
    validate=_validate,
    prepare_for_update=defaults.prepare_for_update,
    validate_update=_validate_update,
    prepare_for_status_update=defaults.prepare_for_status_update,
    validate_status_update=_validate_status_update,
    warnings=_warnings,
    name_problems=_name_problems,
    columns=(
        Column("Name", "string", "The plural name and the group.", lambda obj: obj["metadata"].get("name"), format="name"),
        Column("Created At", "date", "When the definition was created.", _created),
    ),
    allow_unconditional_update=False,
    generation=True,
)
