"""The rules for cloud credentials, and for other Secrets in their namespace (docs/reference/machines.md#credentials).

A credential is a Secret with the keys `<driver>credentialConfig-<field>`. Its fields are those of the driver's credential schema;
a write with missing or unknown fields is refused and, where the driver can ask its provider cheaply, also one that the provider
rejects. An annotation names the creator, who gets access to it by that (:mod:`remuda.provisioning.references.cloud_credentials`).

Users may create Secrets in `cattle-global-data`, but only credentials: controllers read the other Secrets there.
"""

from __future__ import annotations

import base64
import binascii
import os
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from remuda.access.roles.holdings import Holdings
from remuda.access.roles.protected_cluster_fields import is_person
from remuda.access.roles.role_names import CREATOR
from remuda.access.settings.settings import OUTBOUND, Settings
from remuda.api.management_cattle_io import DYNAMIC_SCHEMAS, SETTINGS
from remuda.kube.admission_attributes import CREATE, UPDATE, Attributes
from remuda.kube.authorization.rbac import Rbac
from remuda.kube.builtin_resources import SECRETS
from remuda.kube.clock import Clock, deadline
from remuda.kube.errors import FieldError, forbidden_field, invalid_value, required
from remuda.kube.network import outbound
from remuda.kube.network.outbound import Policy
from remuda.kube.objects import ObjectSource, annotations_of, dig, is_being_deleted, with_path
from remuda.provisioning.references.cloud_credentials import GLOBAL, MARK, TYPE
from remuda.runtime.admitted_types import AdmittedType

from ..driver import Surroundings
from ..driver_registry import missing_extra
from ..errors import DriverError, Reason
from ..options import Options, environment
from .builtin_drivers import python_driver
from .driver_schemas import credential_name

Obj = dict[str, Any]

# Not node drivers: the storage of snapshots.
_OTHERS: Final[Mapping[str, frozenset[str]]] = {
    "s3": frozenset(
        {
            "accessKey",
            "secretKey",
            "defaultRegion",
            "defaultEndpoint",
            "defaultEndpointCA",
            "defaultSkipSSLVerify",
            "defaultBucket",
            "defaultFolder",
        }
    )
}
# Rancher's prefix. Other names are reserved for controllers, which would take such Secrets for their own.
_PREFIX: Final = "cc-"
_VERIFY_SECONDS: Final = 8.0


@dataclass(frozen=True, slots=True)
class Credential:
    """A Secret as a credential: its driver, and its fields as texts. `mixed` are keys that do not belong to that driver."""

    driver: str
    fields: Mapping[str, str]
    mixed: tuple[str, ...] = ()
    binary: tuple[str, ...] = field(default=())

    @classmethod
    def of(cls, secret: Obj) -> Credential | None:
        """None for a Secret that is none."""
        data = {**(secret.get("data") or {}), **dict.fromkeys(secret.get("stringData") or {}, "")}
        if not any(MARK in key for key in data):
            return None
        plain = secret.get("stringData") or {}
        driver = next(key.partition(MARK)[0] for key in sorted(data) if MARK in key)
        fields: dict[str, str] = {}
        mixed, binary = [], []
        for key in sorted(data):
            prefix, mark, name = key.partition(MARK)
            if not mark or prefix != driver:
                mixed.append(key)
                continue
            text = str(plain[key]) if key in plain else _text(data[key])
            if text is None:
                binary.append(key)
            fields[name] = text or ""
        return cls(driver, fields, tuple(mixed), tuple(binary))

    def key(self, name: str) -> str:
        return f"{self.driver}{MARK}{name}"


def _text(encoded: Any) -> str | None:
    try:
        return base64.b64decode(encoded or "").decode()
    except (binascii.Error, ValueError, TypeError):
        return None


def admitted(source: ObjectSource, rbac: Rbac, clock: Clock) -> tuple[AdmittedType, ...]:
    """`source` knows DynamicSchemas and Settings."""
    rules = Rules(source, Holdings(source, rbac), clock)
    return (
        AdmittedType(
            "",
            "v1",
            "secrets",
            "Secret",
            default=rules.with_creator,
            validate=rules.errors,
            verify=rules.verify,
            namespaces=(GLOBAL,),
        ),
    )


class Rules:
    def __init__(self, source: ObjectSource, held: Holdings, clock: Clock) -> None:
        self._source = source
        self._held = held
        self._clock = clock

    def with_creator(self, attributes: Attributes) -> Obj | None:
        """The credential with its creator noted, who thereby gets access to it."""
        obj = attributes.obj
        if obj is None or attributes.operation != CREATE or not is_person(attributes.user) or CREATOR in annotations_of(obj):
            return None
        if Credential.of(obj) is None and obj.get("type") != TYPE:
            return None
        return with_path(obj, ("metadata", "annotations", CREATOR), attributes.user.name)

    def errors(self, attributes: Attributes) -> Iterable[FieldError]:
        obj, old = attributes.obj, attributes.old
        if obj is None or (old is not None and is_being_deleted(old)):
            return []
        credential = Credential.of(obj)
        self._refuse_strangers(attributes, obj, credential)
        if credential is None or not _is_new(obj, old):
            return []
        return field_errors(credential, self._fields(credential.driver), attributes)

    def _refuse_strangers(self, attributes: Attributes, obj: Obj, credential: Credential | None) -> None:
        """Refuse all but credentials in this namespace, except to users who may write any Secret there."""
        user = attributes.user
        if self._held.may(user, "update", SECRETS, "", attributes.namespace):
            return
        kind = obj.get("type") or "Opaque"
        if attributes.operation == CREATE and (credential is None or credential.mixed or kind not in ("Opaque", TYPE)):
            raise attributes.forbidden(
                f"in {attributes.namespace} only cloud credentials can be made: Secrets with the keys <driver>{MARK}<field>"
            )
        name = str(dig(obj, "metadata", "name") or dig(obj, "metadata", "generateName") or "")
        if attributes.operation == CREATE and not name.startswith(_PREFIX):
            raise attributes.forbidden(f"the name of a cloud credential in {attributes.namespace} begins with {_PREFIX}")
        said, before = (annotations_of(each or {}).get(CREATOR) for each in (obj, attributes.old))
        if said not in (None, before, user.name):
            raise attributes.forbidden(f"metadata.annotations[{CREATOR}] can only be {user.name}")

    def _fields(self, driver: str) -> Mapping[str, Obj] | None:
        """Those of the driver's credential schema; None if it has none."""
        if driver in _OTHERS:
            return {name: {} for name in _OTHERS[driver]}
        schema = self._source.get(DYNAMIC_SCHEMAS.group, DYNAMIC_SCHEMAS.resource, "", credential_name(driver))
        return None if schema is None else dig(schema, "spec", "resourceFields") or {}

    def _outbound(self) -> Policy:
        found = self._source.get(SETTINGS.group, SETTINGS.resource, "", OUTBOUND)
        return Settings([found] if found is not None else [], os.environ).outbound()

    async def verify(self, attributes: Attributes) -> Iterable[FieldError]:
        """Ask the provider. Only a clear no is a refusal: a provider that can't be reached says nothing about the credential."""
        obj = attributes.obj
        if obj is None or attributes.dry_run or attributes.operation not in (CREATE, UPDATE) or not _is_new(obj, attributes.old):
            return []
        credential = Credential.of(obj)
        found = python_driver(credential.driver) if credential is not None else None
        if credential is None or found is None or self._fields(credential.driver) is None:
            return []
        driver = found(Surroundings(clock=self._clock, outbound=self._outbound()))
        try:
            options = Options.read(found.name, found.flags, environ=environment(found.name, credential.fields))
            async with deadline(self._clock, _VERIFY_SECONDS):
                await driver.verify(options)
        except DriverError as error:
            return _refusal(credential, error, attributes)
        except ImportError as error:
            why = missing_extra(found, error).message
            attributes.warnings.append(f"the provider of {credential.driver} could not be asked whether it takes this: {why}")
        except OSError as error:
            told = outbound.told(error, f"the provider of {credential.driver}")
            attributes.warnings.append(f"{told}: it could not be asked whether it takes this")
        finally:
            await driver.aclose()
        return []


def _is_new(obj: Obj, old: Obj | None) -> bool:
    return old is None or any(obj.get(part) != old.get(part) for part in ("data", "stringData"))


def field_errors(credential: Credential, known: Mapping[str, Obj] | None, attributes: Attributes) -> list[FieldError]:
    if known is None:
        attributes.warnings.append(
            f"no node driver {credential.driver} is active that credentials can be made for: nothing can use this one yet"
        )
        return []
    errors = [
        forbidden_field(f"data[{key}]", f"a credential is for one driver: its keys begin with {credential.driver}{MARK}")
        for key in credential.mixed
    ]
    errors += [invalid_value(f"data[{key}]", "", "must be text") for key in credential.binary]
    for name in credential.fields:
        if name not in known:
            why = f"a credential of {credential.driver} has no field {name}; it has {', '.join(sorted(known))}"
            errors.append(forbidden_field(f"data[{credential.key(name)}]", why))
    for name, said in known.items():
        default = dig(said, "default", "stringValue")
        if said.get("required") and not default and not credential.fields.get(name):
            errors.append(required(f"data[{credential.key(name)}]", f"a credential of {credential.driver} needs {name}"))
    return errors


def _refusal(credential: Credential, error: DriverError, attributes: Attributes) -> list[FieldError]:
    if error.reason not in (Reason.AUTH_FAILED, Reason.INVALID):
        attributes.warnings.append(f"the provider of {credential.driver} could not say whether it takes this: {error.message}")
        return []
    name = error.field if error.field in credential.fields else ""
    path = f"data[{credential.key(name)}]" if name else "data"
    return [forbidden_field(path, error.message)]
