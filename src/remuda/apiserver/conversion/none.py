"""The conversion strategy None: versions differ in nothing but their name."""

from __future__ import annotations

from . import Obj


class NoConversion:
    async def convert(self, objs: list[Obj], to_version: str) -> list[Obj]:
        return [renamed(obj, to_version) for obj in objs]


def renamed(obj: Obj, to_version: str) -> Obj:
    return obj if obj.get("apiVersion") == to_version else {**obj, "apiVersion": to_version}
