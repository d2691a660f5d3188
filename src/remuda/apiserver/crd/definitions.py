"""The strategy of CustomResourceDefinitions themselves."""

from __future__ import annotations

from .. import objectmeta
from ..builtin.columns import DEFAULT
from ..strategy import Strategy
from . import defaults, validation

STRATEGY = Strategy(
    default=defaults.set_defaults,
    prepare_for_create=defaults.prepare_for_create,
    validate=validation.validate,
    prepare_for_update=defaults.prepare_for_update,
    validate_update=validation.validate_update,
    prepare_for_status_update=defaults.prepare_for_status_update,
    validate_status_update=validation.validate_status_update,
    warnings=validation.warnings,
    name_problems=objectmeta.subdomain_name,
    columns=DEFAULT,
    allow_unconditional_update=False,
    generation=True,
)
