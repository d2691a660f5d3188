"""The process that rehearses one change for a server: `python -m remuda.app.changeplan.worker`.

It reads a :class:`Task` from stdin and writes one :class:`Line` after another as JSON to stdout: each step when it begins, at the
end the plan or the refusal. It opens no connection. :mod:`.served` starts it.
"""

from __future__ import annotations

import asyncio
import logging
import os
import sys
from typing import Any

import msgspec

from remuda.kube.errors import ApiError

from . import engine
from .cluster_copy import ClusterCopy
from .engine import Request
from .limits import BESIDE_A_SERVER, Limits

Obj = dict[str, Any]


class Task(msgspec.Struct, frozen=True):
    """All that the rehearsal needs. It contains Secrets: only a pipe has it."""

    copy: ClusterCopy
    request: Request
    now: float
    limits: Limits = BESIDE_A_SERVER


class Line(msgspec.Struct, frozen=True, omit_defaults=True):
    """One of the three."""

    step: str = ""
    plan: Obj | None = None
    refused: Obj | None = None


def main() -> int:
    task = msgspec.json.decode(sys.stdin.buffer.read(), type=Task)
    task.limits.obey()
    # What else is printed must not be taken for the answer.
    answer = os.dup(sys.stdout.fileno())
    os.dup2(sys.stderr.fileno(), sys.stdout.fileno())
    logging.disable(logging.CRITICAL)

    def tell(line: Line) -> None:
        rest = memoryview(msgspec.json.encode(line) + b"\n")
        while rest:
            rest = rest[os.write(answer, rest) :]

    tell(rehearsed(task, lambda step: tell(Line(step=step))))
    return 0


def rehearsed(task: Task, told: engine.Told) -> Line:
    try:
        plan = asyncio.run(engine.plan(task.copy, task.request, task.now, told=told))
    except ApiError as error:
        return Line(refused=error.status())
    return Line(plan=plan.as_json())


if __name__ == "__main__":
    sys.exit(main())
