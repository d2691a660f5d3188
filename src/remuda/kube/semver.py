"""Semantic versions as Cluster API reads them: strictly, and without a leading `v`."""

from __future__ import annotations

import re
from dataclasses import dataclass

_NUMBER = r"0|[1-9][0-9]*"
_VERSION = re.compile(rf"({_NUMBER})\.({_NUMBER})\.({_NUMBER})(?:-([0-9A-Za-z.-]+))?(?:\+([0-9A-Za-z.-]+))?")
_LARGEST = (1 << 64) - 1


class VersionError(ValueError):
    """Text that is no valid semantic version."""


@dataclass(frozen=True, slots=True)
class Version:
    """`pre` and `build` are the dotted parts after `-` and `+`."""

    major: int
    minor: int
    patch: int
    pre: tuple[str, ...] = ()
    build: tuple[str, ...] = ()

    def __str__(self) -> str:
        pre = f"-{'.'.join(self.pre)}" if self.pre else ""
        build = f"+{'.'.join(self.build)}" if self.build else ""
        return f"{self.major}.{self.minor}.{self.patch}{pre}{build}"


def parse(text: str) -> Version:
    found = _VERSION.fullmatch(text)
    if found is None:
        raise VersionError(f"{text!r} is no semantic version")
    major, minor, patch = (int(number) for number in found.group(1, 2, 3))
    pre, build = (tuple(part.split(".")) if part else () for part in found.group(4, 5))
    if max(major, minor, patch) > _LARGEST or not all(build) or not all(_is_prerelease(part) for part in pre):
        raise VersionError(f"{text!r} is no semantic version")
    return Version(major, minor, patch, pre, build)


def _is_prerelease(part: str) -> bool:
    if not part.isdigit():
        return bool(part)
    return part == "0" or (not part.startswith("0") and int(part) <= _LARGEST)
