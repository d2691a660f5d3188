"""New machines of a set: for each a bootstrap configuration, an infrastructure machine, and then the machine that refers to both.

Several are made at once, within bounds. When one of the three can't be made, the others are deleted again; after a crash in
between, :mod:`.clones` collects them later.
"""

from __future__ import annotations

from typing import Any

from remuda.api.cluster_x_k8s_io import MACHINES
from remuda.kube.errors import ApiError, go_quote
from remuda.kube.objects import Key, dig, is_being_deleted, name_of, resource_version_of, uid_of
from remuda.kube.waits import Actor, Code, Wait
from remuda.runtime import NORMAL, Recorder, Retry, logger

from ..controller_context import Core, cluster_name_of
from ..external_objects import reference_to
from ..naming import NameTemplateError, machine_name
from ..phases import Stuck
from .clones import MANAGER, Clone, Clones, NotCloned
from .desired_machines import new_machine
from .in_place_propagation import Propagation
from .scope import NAME, CreationFailure, MachineSetScope, for_each

Obj = dict[str, Any]
log = logger(__name__)

# The limit for one reconcile: it must end in time, and its status must show progress.
BATCH = 250
_DEFAULT_NAME = "{{ .machineSet.name }}-{{ .random }}"
_RANDOM = "{{ .random }}"
_DRAWS = 16


class _Failed(Exception):
    """`code` is the reason if a user has to act; None if a retry may succeed."""

    def __init__(self, failure: CreationFailure, name: str = "", code: Code | None = None) -> None:
        super().__init__(failure.message)
        self.code = code
        # A randomly drawn name would make every message a new one.
        self.failure = failure._replace(message=failure.message.replace(name, "…") if name else failure.message)


class Creation:
    def __init__(self, core: Core, clones: Clones, propagation: Propagation, events: Recorder) -> None:
        self._core = core
        self._clones = clones
        self._propagation = propagation
        self._events = events

    async def run(self, scope: MachineSetScope, count: int) -> None:
        """Make `count` machines, or as many as one reconcile may. Raises Retry or Stuck on failure; the scope has the reason."""
        try:
            names = self._names(scope, min(count, BATCH))
        except _Failed as error:
            scope.failure = error.failure
            raise Retry(f"failed to create Machine: {error}") from None

        async def make(name: str) -> None:
            await self._make(scope, name)

        errors = await for_each(names, make)
        failed = next((error for error in errors if isinstance(error, _Failed)), None)
        if failed is not None:
            scope.failure = failed.failure
        for other in errors:
            if not isinstance(other, _Failed):
                raise other
        if failed is None:
            return
        log.warning("failed to create a machine: %s", failed)
        if failed.code is not None:
            raise Stuck(Wait(failed.code, scope.ref(), Actor.USER, evidence=failed.failure.message))
        raise Retry(str(failed))

    def _names(self, scope: MachineSetScope, count: int) -> list[str]:
        """Free names, drawn before anything is made, so that a seed gives the same ones."""
        machine_set = scope.machine_set
        template = dig(machine_set, "spec", "machineNaming", "template") or _DEFAULT_NAME
        if _RANDOM not in template:
            why = "cannot generate Machine name: {{ .random }} is missing in machineNaming.template"
            raise _Failed(CreationFailure("MachineCreationFailed", why))
        found: dict[str, None] = {}
        for _ in range(count + _DRAWS):
            try:
                name = machine_name(template, cluster_name_of(machine_set), name_of(machine_set), self._core.rng.name_suffix)
            except NameTemplateError as error:
                raise _Failed(CreationFailure("MachineCreationFailed", f"failed to generate Machine name: {error}")) from None
            if self._core.machines.get(scope.namespace, name) is None:
                found[name] = None
            if len(found) == count:
                break
        return list(found)

    def _is_outdated(self, scope: MachineSetScope) -> bool:
        """True if the set has become smaller since this reconcile began: the next one decides again."""
        present = self._core.machine_sets.get(*scope.key)
        if present is None or is_being_deleted(present) or uid_of(present) != uid_of(scope.machine_set):
            return True
        return (dig(present, "spec", "replicas") or 0) < (scope.replicas or 0)

    async def _make(self, scope: MachineSetScope, name: str) -> None:
        if self._is_outdated(scope):
            return
        made: list[Clone] = []
        owner, key = uid_of(scope.machine_set), Key(scope.namespace, name)
        self._core.pending.begin(owner, key)
        try:
            machine = await self._make_parts(scope, name, made)
        except BaseException as error:
            self._core.pending.failed(owner, key)
            if isinstance(error, _Failed):
                for clone in reversed(made):
                    await self._delete_parts(scope, clone)
            raise
        self._core.pending.made(owner, key, resource_version_of(machine))
        self._core.wrote(NAME, scope.key, self._core.machines, machine)
        self._propagation.made(scope, machine, reversed(made))
        scope.created += 1
        log.info("created machine %s", name)
        self._events.event(scope.machine_set, NORMAL, "SuccessfulCreate", f"Created Machine {go_quote(name)}")

    async def _delete_parts(self, scope: MachineSetScope, clone: Clone) -> None:
        try:
            await self._clones.drop(scope, clone)
        except ApiError as error:
            # It is deleted later with the leftovers.
            log.warning("failed to take back %s %s: %s", clone.obj.get("kind"), name_of(clone.obj), error.message)

    async def _make_parts(self, scope: MachineSetScope, name: str, made: list[Clone]) -> Obj:
        bootstrap: Obj | None = None
        reason = "BootstrapTemplateCloningFailed"
        try:
            if scope.bootstrap is not None:
                made.append(await self._clones.make(scope, scope.bootstrap, name, "BootstrapConfig"))
                bootstrap = reference_to(made[-1].obj)
            reason = "InfrastructureTemplateCloningFailed"
            made.append(await self._clones.make(scope, scope.infrastructure, name, "InfraMachine"))
        except NotCloned as error:
            raise _Failed(
                CreationFailure(reason, str(error)), name, Code.REFERENCE if error.missing else _refusal(error)
            ) from error
        wanted = new_machine(scope.machine_set, name, reference_to(made[-1].obj), bootstrap)
        try:
            return await self._core.client.apply(MACHINES, wanted, field_manager=MANAGER, force=True)
        except ApiError as error:
            failure = CreationFailure("MachineCreationFailed", f"failed to apply Machine: {error.message}")
            raise _Failed(failure, name, _refusal(error)) from error


def _refusal(error: BaseException | None) -> Code | None:
    """REFUSED if the API refuses a write for a reason that a retry does not change: a quota, a webhook, an invalid field."""
    cause = error if isinstance(error, ApiError) or error is None else error.__cause__
    return Code.REFUSED if isinstance(cause, ApiError) and cause.needs_user else None
