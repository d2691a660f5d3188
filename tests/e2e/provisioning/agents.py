"""The agents of hosts of this machine: which one a host runs, what its Secret says of it, and older ones to be put there."""

from __future__ import annotations

import base64
import io
import json
import zipfile
from pathlib import Path
from typing import Any

from remuda.agent.install import build
from remuda.kube.objects import dig
from remuda.provisioning.planner.managesystemagent import CONDITION

from .conftest import Ranch

AGENT, SERVER = "rancher-system-agent", "remuda-server"


def of_another_day(*, takes_successors: bool) -> bytes:
    """The same agent with another checksum; or one on whose host nothing else can start."""
    made = io.BytesIO(build())
    with zipfile.ZipFile(made, "a") as archive:
        archive.writestr("stamp", f"yesterday, {takes_successors}")
    if takes_successors:
        return made.getvalue()
    return _patched(made.getvalue(), "remuda_agent/selfupdate.py", b'path, "check"]', b'path, "no-such-command"]')


def _patched(archive: bytes, member: str, old: bytes, new: bytes) -> bytes:
    made = io.BytesIO()
    made.write(b"#!/usr/bin/env python3\n")
    with zipfile.ZipFile(io.BytesIO(archive)) as found, zipfile.ZipFile(made, "w", zipfile.ZIP_DEFLATED) as copy:
        for name in found.namelist():
            content = found.read(name)
            if name == member:
                assert old in content
                content = content.replace(old, new)
            copy.writestr(name, content)
    return made.getvalue()


class AgentHost:
    """A host, its agent's file, and what its Secret says."""

    def __init__(self, ranch: Ranch, name: str) -> None:
        self._ranch, self._name = ranch, name
        code, told, _ = ranch.on(name).systemctl("cat", AGENT, seconds=60)
        assert code == 0, told
        command = next(line for line in told.splitlines() if line.startswith("ExecStart="))
        self.archive = Path(command.split()[-2])  # and then what it is asked to do

    def pid(self, unit: str) -> int:
        return self._ranch.pid(self._name, unit)

    def run(self, archive: bytes) -> None:
        """As if it had been installed with this one. It is written in place of the other, as installers do."""
        fresh = self.archive.with_suffix(".fresh")
        fresh.write_bytes(archive)
        fresh.chmod(0o755)
        assert self._ranch.on(self._name).systemctl("stop", AGENT, seconds=60)[0] == 0
        fresh.replace(self.archive)
        assert self._ranch.on(self._name).systemctl("start", AGENT, seconds=60)[0] == 0

    def secret(self) -> dict[str, Any]:
        return self._ranch.get(self._ranch.plan_secret(self._name))

    def plan(self) -> dict[str, Any]:
        plan: dict[str, Any] = json.loads(self._data("plan"))
        return plan

    def brings_an_agent(self) -> bool:
        return any(each["path"].endswith(".pyz") for each in self.plan()["files"])

    def is_settled(self) -> bool:
        return not self.brings_an_agent() and self._data("plan-state") == b"succeeded"

    def _data(self, key: str) -> bytes:
        return base64.b64decode(dig(self.secret(), "data", key) or "")


def told(ranch: Ranch) -> tuple[str, str]:
    conditions = dig(ranch.plane(), "status", "conditions") or []
    return next(((each["status"], each.get("message", "")) for each in conditions if each["type"] == CONDITION), ("", ""))
