"""Setting and Feature objects that always exist: one for each that we know, with its default and its source.

Users own `value` and `spec.value`, which are never touched; a deleted object is created again with the default. The admission
rules of both kinds are here, too: an invalid value is refused with the field named. :mod:`.settings`
computes the values in force, and also looks at the environment.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from remuda.api.management_cattle_io import API_VERSION, GROUP, VERSION
from remuda.api.management_cattle_io import FEATURES as FEATURE_KIND
from remuda.api.management_cattle_io import SETTINGS as SETTING_KIND
from remuda.client.interface import Client
from remuda.kube.admission_attributes import Attributes
from remuda.kube.clock import Clock
from remuda.kube.errors import INVALID, ApiError, FieldError, forbidden_field
from remuda.kube.objects import GroupVersionResource, dig, name_of
from remuda.runtime import Informer, Informers, synced
from remuda.runtime.admitted_types import AdmittedType

from .settings import DESCRIPTIONS, FEATURES, SETTINGS, Settings, problem_of

log = logging.getLogger(__name__)
Obj = dict[str, Any]

_AGAIN_SECONDS = 5.0


def wanted_setting(name: str, settings: Settings) -> Obj:
    """The fields of a Setting besides the user's value."""
    effective = settings.effective(name)
    return {
        "default": effective.default,
        "customized": effective.value != effective.default,
        "source": effective.source,
    }


def wanted_feature(name: str) -> Obj:
    return {"default": FEATURES[name], "description": DESCRIPTIONS.get(name, ""), "dynamic": True}


class SettingsController:
    """Keeps these objects in place while :meth:`run` runs. Only the leader does so."""

    def __init__(self, client: Client, informers: Informers, clock: Clock, environment: Mapping[str, str]) -> None:
        self._client = client
        self._clock = clock
        self._environment = environment
        self._settings = informers.of(SETTING_KIND)
        self._features = informers.of(FEATURE_KIND)

    async def run(self) -> None:
        changed = asyncio.Event()

        def wake(new: Obj | None, old: Obj | None) -> None:
            changed.set()

        stops = [informer.on_change(wake) for informer in (self._settings, self._features)]
        told: tuple[str, ...] = ()
        try:
            await synced(self._settings, self._features)
            while True:
                changed.clear()
                if not await self._ensure():
                    await self._clock.sleep(_AGAIN_SECONDS)
                    continue
                told = self._tell(told)
                await changed.wait()
        finally:
            for stop in stops:
                stop()

    def _tell(self, told: tuple[str, ...]) -> tuple[str, ...]:
        """Log ignored values, once."""
        problems = tuple(self._current().problems())
        for problem in problems:
            if problem not in told:
                log.warning("setting: %s", problem)
        return problems

    def _current(self) -> Settings:
        return Settings(self._settings.objects(), self._environment)

    async def _ensure(self) -> bool:
        """Write all objects; True if all of it could be written."""
        settings = self._current()
        try:
            for name in SETTINGS:
                await self._write(SETTING_KIND, self._settings, "Setting", name, wanted_setting(name, settings))
            for name in FEATURES:
                await self._write(FEATURE_KIND, self._features, "Feature", name, {"status": wanted_feature(name)})
        except ApiError as error:
            log.warning("settings and features can't be written: %s; again in %.0fs", error, _AGAIN_SECONDS)
            return False
        return True

    async def _write(self, resource: GroupVersionResource, informer: Informer, kind: str, name: str, wanted: Obj) -> None:
        stored = informer.get("", name)
        if stored is None:
            empty: Obj = {"value": ""} if kind == "Setting" else {"spec": {}}
            manifest = {"apiVersion": API_VERSION, "kind": kind, "metadata": {"name": name}, **empty, **wanted}
            try:
                await self._client.create(resource, manifest)
            except ApiError as error:
                # It exists; its event follows.
                if not error.is_already_exists:
                    raise
            return
        if _says(stored, wanted):
            return
        try:
            await self._client.patch(resource, name, wanted)
        except ApiError as error:
            if not error.is_not_found:
                raise


def _says(stored: Mapping[str, Any], wanted: Mapping[str, Any]) -> bool:
    for field, value in wanted.items():
        found = stored.get(field)
        if isinstance(value, Mapping):
            if not isinstance(found, Mapping) or not _says(found, value):
                return False
        elif found != value:
            return False
    return True


# --- admission ----------------------------------------------------------------------------------------------------------------


def _setting_errors(attributes: Attributes) -> Iterable[FieldError]:
    obj = attributes.obj or {}
    name, value = name_of(obj), obj.get("value")
    if name not in SETTINGS or not isinstance(value, str):
        return ()
    if attributes.old is not None and attributes.old.get("value") == value:
        # The present value passed an older rule, or an upgrade brought it: its other fields may be written.
        return ()
    problem = problem_of(name, value)
    # The value itself is not repeated: people paste secrets into the wrong field.
    return (FieldError(INVALID, "value", detail=problem),) if problem else ()


def _feature_errors(attributes: Attributes) -> Iterable[FieldError]:
    obj = attributes.obj or {}
    locked, wanted = dig(attributes.old or {}, "status", "lockedValue"), dig(obj, "spec", "value")
    if isinstance(locked, bool) and isinstance(wanted, bool) and wanted is not locked:
        state = "on" if locked else "off"
        return (forbidden_field("spec.value", f"{name_of(obj)} has to be {state} for now"),)
    return ()


def admitted() -> tuple[AdmittedType, ...]:
    rules: tuple[tuple[str, str, Callable[[Attributes], Iterable[FieldError]]], ...] = (
        ("settings", "Setting", _setting_errors),
        ("features", "Feature", _feature_errors),
    )
    return tuple(AdmittedType(GROUP, VERSION, resource, kind, None, check) for resource, kind, check in rules)
