"""Plans of a few typical machines, as text for review: what each released version renders.

`python -m tests.unit.provisioning.planner.render.golden_renderings` writes the file of the present version.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec

from remuda import __version__
from remuda.provisioning.planner.snapshot import Join
from remuda.provisioning.plans import plan

from .inputs import INIT, JOINED, K3S, REMUDA, RKE2, desired_plan, facts, machine, snapshot
from .test_stability import ANNOTATIONS, KNOWN, SPEC

Obj = dict[str, Any]
GOLDENS = Path(__file__).with_name("goldens")
_CASES: tuple[tuple[str, str, Join], ...] = (
    ("etcd,control-plane,worker", "init", INIT),
    ("etcd,control-plane", "joined", JOINED),
    ("worker", "joined", JOINED),
)


def rendered() -> Obj:
    """The plans by name: distribution, roles, and how the machine joins; and one with much in its spec."""
    found = {}
    for version in (RKE2, K3S, REMUDA):
        seen, known = snapshot({"kubernetesVersion": version}), facts(version)
        for roles, how, join in _CASES:
            found[f"{version} {roles} {how}"] = _readable(desired_plan(known, seen, machine(roles), join))
    many = machine("etcd,control-plane,worker", labels={"k": "2", "l": "1"}, annotations=ANNOTATIONS)
    found["with many fields"] = _readable(desired_plan(KNOWN, snapshot(SPEC), many, INIT))
    return found


def _readable(found: plan.Plan) -> Obj:
    """With the content of files line by line."""
    shown: Obj = msgspec.json.decode(plan.encode(found))
    shown["files"] = [{**each, "content": [*_lines(file)]} for each, file in zip(shown["files"], found.files, strict=True)]
    return shown


def _lines(file: plan.File) -> Iterator[str]:
    yield from file.data.decode(errors="replace").split("\n")


def text() -> str:
    return msgspec.json.format(msgspec.json.encode(rendered(), order="sorted"), indent=1).decode() + "\n"


def path(version: str = __version__) -> Path:
    return GOLDENS / f"{version}.json"


if __name__ == "__main__":
    path().write_text(text())
