"""Settings and features as they are at this moment, computed once for each change of their objects."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from remuda.access.settings.features import Features
from remuda.access.settings.settings import Settings
from remuda.api.management_cattle_io import FEATURES, SETTINGS
from remuda.runtime import Informers

Obj = dict[str, Any]


class Live:
    """`settings` and `features` are what :class:`~.dependencies.Services` has under these names."""

    def __init__(self, informers: Informers, environment: Mapping[str, str]) -> None:
        self._environment = environment
        self._settings_objects = informers.of(SETTINGS)
        self._features_objects = informers.of(FEATURES)
        self._settings: Settings | None = None
        self._features: Features | None = None
        self._settings_objects.on_change(self._settings_changed)
        self._features_objects.on_change(self._features_changed)

    def settings(self) -> Settings:
        if self._settings is None:
            self._settings = Settings(self._settings_objects.objects(), self._environment)
        return self._settings

    def features(self) -> Features:
        if self._features is None:
            self._features = Features(self._features_objects.objects(), self._environment)
        return self._features

    def _settings_changed(self, new: Obj | None, old: Obj | None) -> None:
        self._settings = None

    def _features_changed(self, new: Obj | None, old: Obj | None) -> None:
        self._features = None
