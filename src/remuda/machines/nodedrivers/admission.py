"""The rules for writes to node drivers, and for the use of drivers.

- A driver is a program that gets credentials, and may run on the server's own machine. A download needs a checksum, and only
  users with all rights may set its address; no driver may take the name of one of ours.
- A driver with machines stays active, and can't be deleted (as in Rancher): nothing else could remove them.
- Machines of `local` and `container` are processes beside the server, so configs for them, and clusters with them, require the
  verb `use` on that NodeDriver.

:mod:`remuda.provisioning.references` decides which credentials a cluster may name, and the rules below what a cloud
credential must have.
"""

from __future__ import annotations

import base64
import binascii
import os
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from remuda.access.clusters.admission import concerns
from remuda.access.roles.holdings import Holdings
from remuda.access.roles.protected_cluster_fields import is_person
from remuda.access.roles.role_names import CREATOR
from remuda.access.roles.role_rules import holds_everything
from remuda.access.settings.settings import OUTBOUND, Settings
from remuda.api import management_cattle_io as management
from remuda.api import provisioning_cattle_io as provisioning
from remuda.api.management_cattle_io import DYNAMIC_SCHEMAS, NODE_DRIVERS, SETTINGS
from remuda.kube.admission_attributes import CREATE, DELETE, EVERY, UPDATE, Attributes
from remuda.kube.authorization.rbac import Rbac
from remuda.kube.builtin_resources import SECRETS
from remuda.kube.clock import Clock, deadline
from remuda.kube.errors import FieldError, duplicate, forbidden_field, invalid_value, required
from remuda.kube.network import outbound
from remuda.kube.network.outbound import Policy
from remuda.kube.objects import ObjectSource, annotations_of, dig, is_being_deleted, name_of, with_path
from remuda.provisioning.graph.machine_pools import config_of, pools_written
from remuda.provisioning.graph.referenced_objects import why_not_offered
from remuda.provisioning.references.cloud_credentials import GLOBAL, MARK, TYPE
from remuda.provisioning.well_known import CONFIG_GROUP, MACHINE_GROUP
from remuda.runtime.admitted_types import AdmittedType

from ..driver import DriverContext
from ..driver_registry import missing_extra
from ..errors import DriverError, Reason
from ..options import Options, environment
from .builtin_drivers import LOCAL, builtin, is_local, python_driver
from .driver_downloads import checksum_problem, name_problem, url_problem
from .driver_schemas import NODE_TEMPLATE, active_driver, config_name, credential_name, driver_of, is_active
from .machine_crds import VERSION, kind_names

Obj = dict[str, Any]

# Their machines run where the server does.
RESTRICTED: Final = frozenset({"container", "local"})
_WHERE_FROM: Final = ("url", "checksum")
_IMMUTABLE: Final = "field is immutable"
_ENVELOPE: Final = frozenset({"apiVersion", "kind", "metadata", "status"})


def admitted(source: ObjectSource, rbac: Rbac) -> tuple[AdmittedType, ...]:
    """`source` knows NodeDrivers, DynamicSchemas, and the kinds of node drivers as far as they are served."""
    rules = NodeDriverRules(source, Holdings(source, rbac))
    return (
        AdmittedType(
            management.GROUP,
            management.VERSION,
            "nodedrivers",
            "NodeDriver",
            validate=rules.driver_errors,
            validates_deletion=True,
        ),
        AdmittedType(CONFIG_GROUP, VERSION, EVERY, "DriverConfigs", validate=rules.config_errors),
        AdmittedType(provisioning.GROUP, provisioning.VERSION, "clusters", "Cluster", validate=rules.cluster_errors),
    )


class NodeDriverRules:
    def __init__(self, source: ObjectSource, held: Holdings) -> None:
        self._source = source
        self._held = held
        self._ours = builtin()

    # --- drivers ----------------------------------------------------------------------------------------------------------

    def driver_errors(self, attributes: Attributes) -> Iterable[FieldError]:
        obj, old = attributes.obj, attributes.old
        if attributes.operation == DELETE:
            self._refuse_deletion(attributes, old or {})
            return []
        if obj is None or not concerns(attributes) or (old is not None and obj.get("spec") == old.get("spec")):
            return []
        if old is not None and is_active(old) and not is_active(obj):
            self._refuse_while_used(attributes, old, "deactivated")
        errors = [*self._name_errors(attributes, obj, old), *self._builtin_errors(obj, old)]
        if not is_local(obj):
            errors += _download_errors(obj)
            if not errors and _source_of(obj) != _source_of(old):
                self._refuse_strangers(attributes)
        return errors

    def _refuse_deletion(self, attributes: Attributes, old: Obj) -> None:
        if dig(old, "spec", "builtin") is True and name_of(old) in self._ours:
            raise attributes.forbidden("it came with the server: set spec.active to false instead")
        self._refuse_while_used(attributes, old, "deleted")

    def _refuse_while_used(self, attributes: Attributes, driver: Obj, what: str) -> None:
        _, machine, _ = kind_names(driver_of(driver))
        number = len(list(self._source.list(MACHINE_GROUP, f"{machine.lower()}s")))
        if number:
            said = "is 1" if number == 1 else f"are {number}"
            raise attributes.forbidden(f"it can't be {what} while there {said} {machine}: nothing else could remove them")

    def _refuse_strangers(self, attributes: Attributes) -> None:
        if not holds_everything(self._held.on_the_server(attributes.user)):
            raise attributes.forbidden("what is downloaded is run by the server: only who may do everything says where from")

    def _name_errors(self, attributes: Attributes, obj: Obj, old: Obj | None) -> Iterator[FieldError]:
        path, name = "spec.displayName", driver_of(obj)
        if old is not None and driver_of(old) != name:
            yield forbidden_field(path, f"{_IMMUTABLE}: the names of its kinds are made of it")
        if problem := name_problem(name):
            yield invalid_value(path, name, problem)
        own = attributes.name or name_of(obj)
        for other in self._source.list(management.GROUP, NODE_DRIVERS.resource):
            if name_of(other) != own and driver_of(other) == name and not is_being_deleted(other):
                yield duplicate(path, name)
        ours = self._ours.get(name)
        if ours is not None and ours.url == LOCAL and not is_local(obj):
            yield forbidden_field("spec.url", f"the server has a driver {name} of its own: give this one another name")

    def _builtin_errors(self, obj: Obj, old: Obj | None) -> Iterator[FieldError]:
        was, wants = (dig(each, "spec", "builtin") is True for each in (old, obj))
        ours = self._ours.get(name_of(obj))
        if wants and (ours is None or ours.url != LOCAL):
            yield forbidden_field("spec.builtin", "only drivers that come with the server are built in")
        if was and ours is not None:
            for field in ("builtin", *_WHERE_FROM):
                if (dig(obj, "spec", field) or "") != (dig(old, "spec", field) or ""):
                    yield forbidden_field(f"spec.{field}", "the driver came with the server")

    # --- use of drivers ---------------------------------------------------------------------------------------------------

    def config_errors(self, attributes: Attributes) -> Iterable[FieldError]:
        if not attributes.kind.endswith("Config"):
            return []
        schema = attributes.kind.lower()
        if attributes.operation != CREATE:
            # A user who may change the config may have anything run, just as one who may create it.
            changed = attributes.obj is not None and _said_in(attributes.obj) != _said_in(attributes.old or {})
            if changed and not self._may_use(attributes, schema.removesuffix("config")):
                raise attributes.forbidden(_restricted(schema.removesuffix("config")))
            return []
        driver = active_driver(self._source.get(management.GROUP, DYNAMIC_SCHEMAS.resource, "", NODE_TEMPLATE), schema)
        if not driver:
            name = schema.removesuffix("config")
            raise attributes.forbidden(why_not_offered(name))
        if not self._may_use(attributes, driver):
            raise attributes.forbidden(_restricted(driver))
        return []

    def cluster_errors(self, attributes: Attributes) -> Iterable[FieldError]:
        obj, old = attributes.obj, attributes.old
        if obj is None or not concerns(attributes) or (old is not None and obj.get("spec") == old.get("spec")):
            return []
        return self._pool_errors(attributes, obj, old)

    def _pool_errors(self, attributes: Attributes, obj: Obj, old: Obj | None) -> Iterator[FieldError]:
        before = {pool.get("name"): _driver_of_pool(pool) for pool in pools_written(old)}
        for index, pool in enumerate(pools_written(obj)):
            driver, path = _driver_of_pool(pool), f"spec.rkeConfig.machinePools[{index}].machineConfigRef.kind"
            if before.get(pool.get("name")) == driver:
                continue
            if driver in RESTRICTED and not self._may_use(attributes, driver):
                yield forbidden_field(path, _restricted(driver))
            elif all(config_of(pool)) and (why := self._why_not_offered(driver)):
                attributes.warnings.append(f"{path}: {why}")

    def _why_not_offered(self, driver: str) -> str:
        """Empty for a driver that pools can use."""
        schemas = self._source.get(management.GROUP, DYNAMIC_SCHEMAS.resource, "", NODE_TEMPLATE)
        if active_driver(schemas, config_name(driver)):
            return ""
        drivers = self._source.list(management.GROUP, NODE_DRIVERS.resource)
        if any(driver_of(each).lower() == driver for each in drivers):
            return why_not_offered(driver)
        return f"there is no node driver {driver}"

    def _may_use(self, attributes: Attributes, driver: str) -> bool:
        return driver not in RESTRICTED or self._held.may(attributes.user, "use", NODE_DRIVERS, driver)


def _download_errors(obj: Obj) -> Iterator[FieldError]:
    url, checksum = (str(dig(obj, "spec", field) or "") for field in _WHERE_FROM)
    if not url:
        yield required("spec.url", "local:// for a driver that the server has; else an https URL")
        return
    if problem := url_problem(url):
        yield invalid_value("spec.url", url, problem)
    if problem := checksum_problem(checksum):
        yield required("spec.checksum", problem) if not checksum else invalid_value("spec.checksum", checksum, problem)


def _source_of(obj: Obj | None) -> tuple[Any, ...]:
    return tuple(dig(obj, "spec", field) or "" for field in _WHERE_FROM)


def _restricted(driver: str) -> str:
    kind = NODE_DRIVERS.resource
    return f"machines of the driver {driver} run on the server's own machine: that takes the verb use on {kind} {driver}"


def _said_in(config: Obj) -> Obj:
    """The fields of a config that describe machines."""
    return {name: value for name, value in config.items() if name not in _ENVELOPE}


def _driver_of_pool(pool: Obj) -> str:
    """The driver of a pool, which may refer to a machine config or to a machine template."""
    kind = str(dig(pool, "machineConfigRef", "kind") or "").lower()
    for ending in ("machinetemplate", "config"):
        if kind.endswith(ending):
            return kind.removesuffix(ending)
    return kind


# --- credential admission --------------------------------------------------------------------------------------------------
#
# The rules for cloud credentials, and for other Secrets in their namespace (docs/reference/machines.md#credentials).
#
# A credential is a Secret with the keys `<driver>credentialConfig-<field>`. Its fields are those of the driver's credential
# schema; a write with missing or unknown fields is refused and, where the driver can ask its provider cheaply, also one that the
# provider rejects. An annotation names the creator, who gets access to it by that
# (:mod:`remuda.provisioning.references.cloud_credentials`).
#
# Users may create Secrets in `cattle-global-data`, but only credentials: controllers read the other Secrets there.

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
        """The credential in a Secret; None if it is not one."""
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


def admitted_credentials(source: ObjectSource, rbac: Rbac, clock: Clock) -> tuple[AdmittedType, ...]:
    """`source` knows DynamicSchemas and Settings."""
    rules = CredentialRules(source, Holdings(source, rbac), clock)
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


class CredentialRules:
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
        return field_errors(credential, self._fields(credential.driver), attributes, self._defaulted(credential.driver))

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

    def _defaulted(self, driver: str) -> frozenset[str]:
        """The fields that the driver has a default for: a credential without them, as Rancher's users have them, uses that."""
        schema = self._source.get(DYNAMIC_SCHEMAS.group, DYNAMIC_SCHEMAS.resource, "", config_name(driver))
        fields = dig(schema, "spec", "resourceFields") or {}
        return frozenset(name for name, said in fields.items() if dig(said, "default", "stringValue"))

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
        driver = found(DriverContext(clock=self._clock, outbound=self._outbound()))
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


def field_errors(
    credential: Credential, known: Mapping[str, Obj] | None, attributes: Attributes, defaulted: Collection[str] = ()
) -> list[FieldError]:
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
        default = dig(said, "default", "stringValue") or name in defaulted
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
