"""The strategy of CustomResourceDefinitions themselves; :mod:`.custom_resource_strategy` makes those of the resources they
define.
"""

from __future__ import annotations

from remuda.kube import names
from remuda.kube.errors import FieldError

from ..registry.strategy import Column, Strategy
from .internal_version import Obj, dict_of, list_of

# --- defaults -------------------------------------------------------------------------------------------------------------
#
# Defaults of a CRD: names derived from the kind, no conversion, the webhook's port.


WEBHOOK_PORT = 443


def set_defaults(crd: Obj) -> None:
    """Fill in a private CRD object, as its decoder does."""
    spec = crd.get("spec")
    if not isinstance(spec, dict):
        crd["spec"] = spec = {}
    _name_defaults(spec)
    if spec.get("conversion") is None:
        spec["conversion"] = {"strategy": "None"}
    service = dict_of(dict_of(dict_of(spec["conversion"]).get("webhook")).get("clientConfig")).get("service")
    if isinstance(service, dict) and service.get("port") is None:
        service["port"] = WEBHOOK_PORT
    status = crd.get("status")
    if not list_of(dict_of(status).get("storedVersions")):
        storage = storage_version(crd)
        if storage:
            crd["status"] = {**dict_of(status), "storedVersions": [storage]}


def _name_defaults(spec: Obj) -> None:
    names = spec.get("names")
    if not isinstance(names, dict):
        spec["names"] = names = {}
    kind = names.get("kind") or ""
    if not names.get("singular") and kind:
        names["singular"] = kind.lower()
    if not names.get("listKind") and kind:
        names["listKind"] = f"{kind}List"


def storage_version(crd: Obj) -> str:
    """The version in which objects are stored; empty when none is marked."""
    for version in list_of(dict_of(crd.get("spec")).get("versions")):
        if isinstance(version, dict) and version.get("storage"):
            return str(version.get("name") or "")
    return ""


def prepare_for_create(crd: Obj) -> None:
    """A new CRD has an empty status except for its storage version, with empty fields as Go prints them."""
    storage = storage_version(crd)
    stored = [storage] if storage else None
    crd["status"] = {"conditions": None, "acceptedNames": {"plural": "", "kind": ""}, "storedVersions": stored}


def prepare_for_update(crd: Obj, old: Obj) -> None:
    """The status stays as it was, but a new storage version is added to the stored versions."""
    status = dict(dict_of(old.get("status")))
    storage = storage_version(crd)
    stored = list_of(status.get("storedVersions"))
    if storage and storage not in stored:
        status["storedVersions"] = [*stored, storage]
    crd["status"] = status


def prepare_for_status_update(crd: Obj, old: Obj) -> None:
    """Only the status may change; the metadata was handled before."""
    crd["spec"] = old.get("spec", {})


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
    default=set_defaults,
    prepare_for_create=prepare_for_create,
    validate=_validate,
    prepare_for_update=prepare_for_update,
    validate_update=_validate_update,
    prepare_for_status_update=prepare_for_status_update,
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
