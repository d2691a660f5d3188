"""The feature `rke2` can't be switched off while there is a cluster that is made with it."""

from __future__ import annotations

from typing import Any

from remuda.api.management_cattle_io import FEATURES
from remuda.kube.errors import ApiError
from remuda.kube.objects import Key, dig
from remuda.runtime import Manager

from .mirror_caches import Views
from .names import is_administrated

Obj = dict[str, Any]

_FEATURE = "rke2"


class FeatureLock:
    def __init__(self, manager: Manager, views: Views) -> None:
        self._client = manager.client
        self._features = manager.informers.of(FEATURES)
        self._views = views

    async def ensure(self, wanted: Obj) -> None:
        if is_administrated(wanted):
            await self._write(True)

    async def release(self, wanted: Obj) -> None:
        """`wanted` is going; if it was the last one, nothing keeps the feature on."""
        if is_administrated(wanted) and not self._views.any_administrated(but=Key.of(wanted)):
            await self._write(None)

    async def _write(self, locked: bool | None) -> None:
        feature = self._features.get("", _FEATURE)
        if feature is None or dig(feature, "status", "lockedValue") == locked:
            return
        try:
            await self._client.patch(FEATURES, _FEATURE, {"status": {"lockedValue": locked}}, field_manager="cluster")
        except ApiError as error:
            if not error.is_not_found:
                raise
