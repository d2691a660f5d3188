"""Cloud credentials in Norman's form: Secrets with the keys `<driver>credentialConfig-<field>` in `cattle-global-data`. Pure.

Clients write all fields of a driver's credential and read those that are no secrets; a secret value never comes back. A field
that an update leaves out keeps its value.
"""

from __future__ import annotations

import base64
import binascii
from collections.abc import Iterable, Mapping
from typing import Any, Final

from remuda.kube.objects import annotations_of, dig, name_of
from remuda.machines.nodedrivers.driver_schemas import PASSWORD, credential_name
from remuda.provisioning.references.cloud_credentials import GLOBAL, MARK

from ...server import norman
from ..resource_state import State
from .objects import envelope, line_of, with_metadata

Obj = dict[str, Any]

TYPE: Final = "cloudCredential"
PATH: Final = "/v3/cloudcredentials"
PREFIX: Final = "cc-"
CONFIG: Final = MARK.removesuffix("-")
_NAME, _DESCRIPTION = "field.cattle.io/name", "field.cattle.io/description"
# Not a node driver: the storage of snapshots. What is shown of it.
_STORAGE: Final = "s3"
_STORAGE_PUBLIC: Final = frozenset(
    {"defaultBucket", "defaultEndpoint", "defaultEndpointCA", "defaultFolder", "defaultRegion", "defaultSkipSSLVerify"}
)
_LONGEST: Final = 32 << 10


def is_credential(secret: Mapping[str, Any]) -> bool:
    return name_of(dict(secret)).startswith(PREFIX) and any(MARK in key for key in secret.get("data") or {})


def driver_of(secret: Obj) -> str:
    return next((key.partition(MARK)[0] for key in sorted(secret.get("data") or {}) if MARK in key), "")


def public_fields(driver: str, dynamic: Iterable[Obj]) -> frozenset[str]:
    """The fields of a driver's credential that are no secrets; none of a driver that is not known."""
    if driver == _STORAGE:
        return _STORAGE_PUBLIC
    wanted = credential_name(driver)
    fields = next((dig(each, "spec", "resourceFields") for each in dynamic if name_of(each) == wanted), None) or {}
    return frozenset(name for name, said in fields.items() if isinstance(said, dict) and said.get("type") not in (None, PASSWORD))


def shown(secret: Obj, state: State, dynamic: Iterable[Obj]) -> Obj:
    driver = driver_of(secret)
    public, prefix = public_fields(driver, dynamic), f"{driver}{MARK}"
    data = secret.get("data") or {}
    fields = {
        key.removeprefix(prefix): _text(value)
        for key, value in data.items()
        if key.startswith(prefix) and key.removeprefix(prefix) in public
    }
    notes = annotations_of(secret)
    return {
        "name": notes.get(_NAME) or name_of(secret),
        "description": notes.get(_DESCRIPTION) or "",
        f"{driver}{CONFIG}": fields,
        **envelope(TYPE, secret, state),
    }


def _text(encoded: Any) -> str:
    try:
        return base64.b64decode(encoded or "", validate=True).decode()
    except (binascii.Error, ValueError, TypeError):
        return ""


def changed(secret: Obj, body: Obj) -> Obj:
    """The Secret with the body's name, description and fields. Raises ApiError."""
    found = {**secret, "metadata": with_metadata(secret.get("metadata") or {}, body)}
    notes = dict(found["metadata"].get("annotations") or {})
    for field, note in (("name", _NAME), ("description", _DESCRIPTION)):
        if field in body:
            notes[note] = line_of(body, field)
        elif before := annotations_of(secret).get(note):
            notes[note] = before
    found["metadata"] = {**found["metadata"], "annotations": notes}
    driver, fields = _config(body)
    before_driver = driver_of(secret)
    if driver and before_driver and driver != before_driver:
        raise norman.invalid(f"the credential is for {before_driver}: make another one for {driver}")
    if not (driver or before_driver):
        raise norman.invalid(f"the fields of the credential are missing: <driver>{CONFIG}")
    encoded = {f"{driver}{MARK}{name}": base64.b64encode(value.encode()).decode() for name, value in fields.items()}
    return {**found, "data": {**(secret.get("data") or {}), **encoded}}


def _config(body: Obj) -> tuple[str, dict[str, str]]:
    """The driver, and the fields of its credential; ("", {}) if the body has none."""
    said = {key.removesuffix(CONFIG): value for key, value in body.items() if key.endswith(CONFIG) and value is not None}
    if not said:
        return "", {}
    if len(said) > 1:
        raise norman.invalid(f"a credential is for one driver: {', '.join(sorted(f'{name}{CONFIG}' for name in said))[:200]}")
    ((driver, fields),) = said.items()
    if not driver or not isinstance(fields, dict):
        raise norman.invalid(f"{driver}{CONFIG} must be an object")
    return driver, {name: _value(f"{driver}{CONFIG}.{name}", value) for name, value in fields.items() if value is not None}


def _value(field: str, value: Any) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, int | float):
        return str(value)
    if not isinstance(value, str) or len(value) > _LONGEST:
        raise norman.invalid(f"{field} must be text of at most {_LONGEST} characters")
    return norman.text_of({field: value}, field)


def new(name: str) -> Obj:
    """An empty credential of this name."""
    return {"apiVersion": "v1", "kind": "Secret", "type": "Opaque", "metadata": {"name": name, "namespace": GLOBAL}}
