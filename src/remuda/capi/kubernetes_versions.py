"""Kubernetes versions: strict semantic versions, and versions of many machines, counted and ordered, oldest first.

:func:`parse` is strict and takes no leading `v`. Versions of machines are read tolerantly (`v1.30`, `1.30.1+rke2r1`). What comes
after `+` counts too where it can be ordered, since two builds of one release are two versions in a rollout.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cmp_to_key
from typing import Any

from remuda.kube.objects import dig, metadata, name_of

_NUMBER = r"0|[1-9][0-9]*"
_VERSION = re.compile(rf"({_NUMBER})\.({_NUMBER})\.({_NUMBER})(?:-([0-9A-Za-z.-]+))?(?:\+([0-9A-Za-z.-]+))?")
_LARGEST = (1 << 64) - 1


class VersionError(ValueError):
    """Text that is no valid semantic version."""


@dataclass(frozen=True, slots=True)
class KubernetesVersion:
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


def parse(text: str) -> KubernetesVersion:
    found = _VERSION.fullmatch(text)
    if found is None:
        raise VersionError(f"{text!r} is no semantic version")
    major, minor, patch = (int(number) for number in found.group(1, 2, 3))
    pre, build = (tuple(part.split(".")) if part else () for part in found.group(4, 5))
    if max(major, minor, patch) > _LARGEST or not all(build) or not all(_is_prerelease(part) for part in pre):
        raise VersionError(f"{text!r} is no semantic version")
    return KubernetesVersion(major, minor, patch, pre, build)


def _is_prerelease(part: str) -> bool:
    if not part.isdigit():
        return bool(part)
    return part == "0" or (not part.startswith("0") and int(part) <= _LARGEST)


Obj = dict[str, Any]

_LEADING_ZEROS = re.compile(r"^0+(?=\d)")
# Two builds that differ but can't be ordered.
UNORDERED = 2


def parse_tolerant(text: str) -> KubernetesVersion | None:
    """A version with or without `v`, with missing numbers read as 0; None when it is invalid."""
    numbers = [_LEADING_ZEROS.sub("", number) for number in text.strip().removeprefix("v").split(".", 2)]
    numbers += ["0"] * (3 - len(numbers))
    try:
        return parse(".".join(numbers))
    except VersionError:
        return None


def compare(left: KubernetesVersion, right: KubernetesVersion) -> int:
    """-1, 0 or 1, by precedence and then by build; UNORDERED when only the builds differ, and are no numbers."""
    return _compare_precedence(left, right) or _compare_builds(left.build, right.build)


def _sign(left: Any, right: Any) -> int:
    return int(left > right) - int(left < right)


def _compare_precedence(left: KubernetesVersion, right: KubernetesVersion) -> int:
    numbers = _sign((left.major, left.minor, left.patch), (right.major, right.minor, right.patch))
    if numbers:
        return numbers
    if not left.pre or not right.pre:
        return _sign(not left.pre, not right.pre)
    return _sign([_rank(part) for part in left.pre], [_rank(part) for part in right.pre])


def _rank(part: str) -> tuple[bool, int, str]:
    return (False, int(part), "") if part.isdigit() else (True, 0, part)


def _compare_builds(left: Sequence[str], right: Sequence[str]) -> int:
    for one, other in zip(left, right, strict=False):
        if one.isdigit() != other.isdigit():
            return -1 if one.isdigit() else 1
        if one.isdigit() and int(one) != int(other):
            return _sign(int(one), int(other))
        if not one.isdigit() and one != other:
            return UNORDERED
    return _sign(len(left), len(right))


def of_machines(machines: Iterable[Obj]) -> list[Obj]:
    """`{version, replicas}` of machines: the kubelet's version or, before it is reported, the wanted one."""
    ordered = sorted(machines, key=lambda machine: (metadata(machine).get("creationTimestamp") or "", name_of(machine)))
    found = (dig(machine, "status", "nodeInfo", "kubeletVersion") or dig(machine, "spec", "version") for machine in ordered)
    return summed({"version": version, "replicas": 1} for version in found)


def summed(versions: Iterable[Obj]) -> list[Obj]:
    """One entry for each version, oldest first; unordered versions stay as they came."""
    totals: dict[str, int] = {}
    for each in versions:
        if version := each.get("version"):
            totals[version] = totals.get(version, 0) + (each.get("replicas") or 0)
    places = {version: place for place, version in enumerate(totals)}

    def order(left: str, right: str) -> int:
        one, other = parse_tolerant(left), parse_tolerant(right)
        if one is None or other is None:
            return _sign((one is None, left), (other is None, right))
        found = compare(one, other)
        if found == UNORDERED:
            return _sign(places[left], places[right])
        return found or _sign(left, right)

    ordered = sorted(totals, key=cmp_to_key(order))
    return [{"version": version} | ({"replicas": totals[version]} if totals[version] else {}) for version in ordered]
