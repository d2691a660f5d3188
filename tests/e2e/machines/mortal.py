"""The command `remuda`, which dies, or has a process of a Job die, at a chosen step: run as a program by :mod:`.killing`.

A step is a durable write to one of the objects by which a machine is made and removed: whoever writes it, also the Job's process
that keeps its state. In `remuda serve` it is a transaction of the store, in `remuda gateway` a request to the API. What to do is
in a file, which is looked at before each write, so that nothing counts before the test says so:

    {"run": "a name for this count", "victim": "server" | "job", "at": 7, "before": false}

With `steps`, a pattern, other objects count instead of those.
Beside it, in a file with the name of the run, are the steps that were taken, a line each, and in one with the ending `killed` is
who was killed.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import signal
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

_STATE = r"secrets/fleet-default/[^/]+-machine-state"
_STEPS = re.compile(
    rf"(?:{_STATE}|(?:jobs|localmachines|machines)/fleet-default/[^/]+|"
    r"(?:serviceaccounts|roles|rolebindings)/fleet-default/[^/]+-machine-provision|"
    r"configmaps/fleet-default/[^/]+-machine-attempts)$"
)
_KEEPS = re.compile(rf"{_STATE}$")
# As the API has it: …/namespaces/fleet-default/jobs[/NAME[/status]].
_PATH = re.compile(r"/namespaces/fleet-default/([a-z]+)(?:/([^/]+))?")


class Hook:
    def __init__(self, plan: Path) -> None:
        self._plan = plan
        self._run = ""
        self._count = 0

    def before(self, keys: Sequence[str]) -> None:
        self._look(keys, before=True)

    def after(self, keys: Sequence[str]) -> None:
        self._look(keys, before=False)

    def _look(self, keys: Sequence[str], *, before: bool) -> None:
        try:
            plan = json.loads(self._plan.read_text())
        except (OSError, ValueError):
            return
        pattern = re.compile(plan["steps"]) if "steps" in plan else _KEEPS if plan["victim"] == "job" else _STEPS
        steps = [key for key in keys if pattern.search(key)]
        if not steps:
            return
        if plan["run"] != self._run:
            self._run, self._count = plan["run"], 0
        if not before:
            self._count += 1
            with self._plan.with_name(self._run).open("a") as log:
                log.write(f"{' '.join(steps)}\n")
        if self._count + before == plan["at"] and before is plan["before"]:
            self._kill(plan["victim"])

    def _kill(self, victim: str) -> None:
        pids = [os.getpid()] if victim == "server" else children()
        self._plan.with_name(f"{self._run}.killed").write_text(" ".join(map(str, pids)))
        for pid in pids:
            # Another one, which starts hosts, may be about to end by itself.
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)


def children() -> list[int]:
    """The processes of Jobs of this server."""
    found = []
    for entry in Path("/proc").iterdir():
        try:
            parent = (entry / "stat").read_text().rpartition(")")[2].split()[1] if entry.name.isdigit() else ""
            if parent == str(os.getpid()) and b"\0provision\0" in (entry / "cmdline").read_bytes():
                found.append(int(entry.name))
        except OSError:
            continue
    return found


def install(hook: Hook) -> None:
    from remuda.apiserver.storage.sqlite import SqliteStore
    from remuda.apiserver.storage.store import Delete, Put
    from remuda.client.connection import ServerConnection

    write, send = SqliteStore.write, ServerConnection._send

    async def mortal_write(self: SqliteStore, ops: Sequence[Any]) -> int:
        keys = [op.key for op in ops if isinstance(op, Put | Delete)]
        hook.before(keys)
        revision = await write(self, ops)
        hook.after(keys)
        return revision

    async def mortal_send(self: ServerConnection, method: str, path: str, *arguments: Any) -> Any:
        named = _PATH.search(path) if method != "GET" else None
        keys = [f"{named[1]}/fleet-default/{named[2] or 'new'}"] if named else []
        hook.before(keys)
        response = await send(self, method, path, *arguments)
        if response.status < 300:
            hook.after(keys)
        return response

    SqliteStore.write = mortal_write  # type: ignore[method-assign]
    ServerConnection._send = mortal_send  # type: ignore[method-assign]


if __name__ == "__main__":
    install(Hook(Path(sys.argv.pop(1))))
    from remuda.cli import main

    main()
