"""Machine configs as users of Rancher have them: `common`, `type` and `spec`, which nothing uses, and numbers for texts.

All integers of drivers are texts, as in Rancher, where older versions took numbers as well. Fields that nothing uses are removed
with a warning before the object is stored: `spec` may hold secrets that only fields at the top are sealed for. The definitions
(:mod:`.nodedrivers.machine_crds`) have these fields, or a strict client would be refused before.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec

from remuda.api.management_cattle_io import DYNAMIC_SCHEMAS
from remuda.kube.admission_attributes import Attributes
from remuda.kube.objects import ObjectSource, dig

from .nodedrivers.driver_schemas import PASSWORD, STRING, STRINGS
from .nodedrivers.machine_crds import WITHOUT_EFFECT
from .secretfields.markers import last_applied, with_last_applied

Obj = dict[str, Any]


class ConfigCompatibility:
    def __init__(self, source: ObjectSource) -> None:
        """`source` knows DynamicSchemas."""
        self._source = source

    def default(self, attributes: Attributes) -> Obj | None:
        """The config as it is stored; None when nothing changes."""
        obj = attributes.obj
        schema = self._source.get(DYNAMIC_SCHEMAS.group, DYNAMIC_SCHEMAS.resource, "", attributes.kind.lower())
        fields = dig(schema, "spec", "resourceFields")
        if obj is None or not isinstance(fields, dict):
            return None
        for name, why in WITHOUT_EFFECT.items():
            warning = f"{name} has no effect: {why}"
            if obj.get(name) and name not in fields and warning not in attributes.warnings:
                attributes.warnings.append(warning)
        changed = understood(obj, fields)
        applied = last_applied(changed)
        if applied is not None and (kept := understood(applied, fields)) != applied:
            changed = with_last_applied(changed, kept)
        return None if changed == obj else changed


def understood(config: Obj, fields: Mapping[str, Obj]) -> Obj:
    """A config without what has no effect, and with texts for numbers where `fields`, those of its driver, are texts."""
    kept = {name: value for name, value in config.items() if name in fields or name not in WITHOUT_EFFECT}
    return kept | {name: _as_type(kept[name], str(said.get("type") or STRING)) for name, said in fields.items() if name in kept}


def _as_type(value: Any, type_: str) -> Any:
    if type_ in (STRING, PASSWORD):
        return _text(value)
    if type_ == STRINGS and isinstance(value, list):
        return [_text(each) for each in value]
    return value


def _text(value: Any) -> Any:
    return msgspec.json.encode(value).decode() if isinstance(value, (bool, int, float)) else value
