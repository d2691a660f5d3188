"""The conversion strategy None: versions differ in nothing but their name."""

from __future__ import annotations

from .conversion import Obj


class NoConversion:
    async def convert(self, objs: list[Obj], to_version: str) -> list[Obj]:
        return [renamed(obj, api_version_for(obj, to_version)) for obj in objs]


def api_version_for(obj: Obj, to_version: str) -> str:
    """`to_version` may be short (`v1`): conversion never leaves the object's group."""
    if "/" in to_version:
        return to_version
    group, slash, _ = str(obj.get("apiVersion") or "").partition("/")
    return f"{group}/{to_version}" if slash else to_version


def renamed(obj: Obj, to_version: str) -> Obj:
    return obj if obj.get("apiVersion") == to_version else {**obj, "apiVersion": to_version}
