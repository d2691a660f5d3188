"""The rules for writes to node drivers, and for the use of drivers.

- A driver is a program that gets credentials, and may run on the server's own machine. A download needs a checksum, and only
  users with all rights may set its address; no driver may take the name of one of ours.
- A driver with machines stays active, and can't be deleted (as in Rancher): nothing else could remove them.
- Machines of `local` and `container` are processes beside the server, so configs for them, and clusters with them, require the
  verb `use` on that NodeDriver.

:mod:`remuda.provisioning.references` decides which credentials a cluster may name, and :mod:`.credential_admission` what a cloud
credential must have.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any, Final

from remuda.access.clusters.admission import concerns
from remuda.access.roles.holdings import Holdings
from remuda.access.roles.role_rules import holds_everything
from remuda.api import management_cattle_io as management
from remuda.api import provisioning_cattle_io as provisioning
from remuda.api.management_cattle_io import DYNAMIC_SCHEMAS, NODE_DRIVERS
from remuda.kube.admission_attributes import CREATE, DELETE, EVERY, Attributes
from remuda.kube.authorization.rbac import Rbac
from remuda.kube.errors import FieldError, duplicate, forbidden_field, invalid_value, required
from remuda.kube.objects import ObjectSource, dig, is_being_deleted, name_of
from remuda.provisioning.graph.machine_pools import pools_written
from remuda.provisioning.well_known import CONFIG_GROUP, MACHINE_GROUP
from remuda.runtime.admitted_types import AdmittedType

from .builtin_drivers import LOCAL, builtin, is_local
from .driver_downloads import checksum_problem, name_problem, url_problem
from .driver_schemas import NODE_TEMPLATE, active_driver, driver_of, is_active
from .machine_crds import VERSION, kind_names

Obj = dict[str, Any]

# Their machines run where the server does.
RESTRICTED: Final = frozenset({"container", "local"})
_WHERE_FROM: Final = ("url", "checksum")
_IMMUTABLE: Final = "field is immutable"
_ENVELOPE: Final = frozenset({"apiVersion", "kind", "metadata", "status"})


def admitted(source: ObjectSource, rbac: Rbac) -> tuple[AdmittedType, ...]:
    """`source` knows NodeDrivers, DynamicSchemas, and the kinds of node drivers as far as they are served."""
    rules = Rules(source, Holdings(source, rbac))
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


class Rules:
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
            raise attributes.forbidden(f"the node driver {name} is not active: an administrator can activate NodeDriver {name}")
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
            driver = _driver_of_pool(pool)
            if driver in RESTRICTED and before.get(pool.get("name")) != driver and not self._may_use(attributes, driver):
                yield forbidden_field(f"spec.rkeConfig.machinePools[{index}].machineConfigRef.kind", _restricted(driver))

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
