"""The strategy of CustomResourceDefinitions themselves; :mod:`.strategy` makes those of the resources they define."""

from __future__ import annotations

from remuda.kube import names
from remuda.kube.jsonio import Obj

from ..strategy import Column, Strategy
from . import defaults, validation


def _name_problems(name: str, prefix: bool) -> list[str]:
    return names.dns_subdomain_problems(name.removesuffix("-") + "a" if prefix and name.endswith("-") else name)


def _created(obj: Obj) -> object:
    return obj["metadata"].get("creationTimestamp")


DEFINITION = Strategy(
    default=defaults.set_defaults,
    prepare_for_create=defaults.prepare_for_create,
    validate=validation.validate,
    prepare_for_update=defaults.prepare_for_update,
    validate_update=validation.validate_update,
    prepare_for_status_update=defaults.prepare_for_status_update,
    validate_status_update=validation.validate_status_update,
    warnings=validation.warnings,
    name_problems=_name_problems,
    columns=(
        Column("Name", "string", "The plural name and the group.", lambda obj: obj["metadata"].get("name"), format="name"),
        Column("Created At", "date", "When the definition was created.", _created),
    ),
    allow_unconditional_update=False,
    generation=True,
)
