"""Conversion of custom resources between the versions of their CRD.

A CRD says `None` (only apiVersion changes) or `Webhook`; our own types convert in-process. All three are a
:class:`Converter`, and all convert many objects at once, because a list over a slow webhook must cost one call.
"""

from __future__ import annotations

from typing import Any, Protocol

from remuda.kube.errors import ApiError
from remuda.kube.objects import GroupResource

Obj = dict[str, Any]


class ConversionError(ApiError):
    """Objects that could not be converted to the wanted version; clients see the text."""

    def __init__(self, message: str) -> None:
        super().__init__(500, "", message)


class Converter(Protocol):
    async def convert(self, objs: list[Obj], to_version: str) -> list[Obj]:
        """Each object in `to_version` (`example.com/v1`, or just `v1`), in the same order.

        The given objects are shared and stay as they are; one that already has the version is returned itself.
        """


class InProcess:
    """Converters of our own types, which need no webhook; they take precedence over the strategy in their CRD."""

    def __init__(self) -> None:
        self._converters: dict[GroupResource, Converter] = {}

    def register(self, group: str, resource: str, converter: Converter) -> None:
        self._converters[GroupResource(group, resource)] = converter

    def get(self, group: str, resource: str) -> Converter | None:
        return self._converters.get(GroupResource(group, resource))


# --- no conversion --------------------------------------------------------------------------------------------------------
#
# The conversion strategy None: versions differ only in apiVersion.


class NoConversion:
    async def convert(self, objs: list[Obj], to_version: str) -> list[Obj]:
        return [renamed(obj, api_version_for(obj, to_version)) for obj in objs]


def api_version_for(obj: Obj, to_version: str) -> str:
    """The full apiVersion: `to_version` may be short (`v1`), since conversion never leaves the object's group."""
    if "/" in to_version:
        return to_version
    group, slash, _ = str(obj.get("apiVersion") or "").partition("/")
    return f"{group}/{to_version}" if slash else to_version


def renamed(obj: Obj, to_version: str) -> Obj:
    return obj if obj.get("apiVersion") == to_version else {**obj, "apiVersion": to_version}
