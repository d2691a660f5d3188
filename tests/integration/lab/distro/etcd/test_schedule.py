"""Scheduled snapshots wait for commands of operations on their host."""

from __future__ import annotations

import asyncio
import subprocess
import sys
from pathlib import Path

from remuda.kube.clock import VirtualClock
from remuda.lab.distro.config import settings
from remuda.lab.distro.config.arguments import parse
from remuda.lab.distro.etcd import host_commands

HOLDS = (
    "import fcntl, sys; f = open(sys.argv[1], 'ab'); fcntl.flock(f, fcntl.LOCK_SH); print('held', flush=True); sys.stdin.read()"
)


def paths(root: Path) -> settings.Paths:
    found = settings.load(parse(["server", "--root", str(root), "--node-ip=127.9.9.9"]), {}).paths
    found.db.mkdir(parents=True)
    return found


def test_commands_run_beside_each_other_and_a_killed_one_holds_nothing(tmp_path: Path) -> None:
    found = paths(tmp_path)
    assert not host_commands.is_any_running(found)
    with host_commands.running(found), host_commands.running(found):
        assert host_commands.is_any_running(found)
    with subprocess.Popen(
        [sys.executable, "-c", HOLDS, found.commands], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as command:
        assert command.stdout is not None and command.stdout.readline() == b"held\n"
        assert host_commands.is_any_running(found)
        command.kill()
        command.wait()
    assert not host_commands.is_any_running(found)


def test_a_host_without_a_datastore_gets_none(tmp_path: Path) -> None:
    found = settings.load(parse(["agent", "--root", str(tmp_path), "--node-ip=127.9.9.9"]), {}).paths
    with host_commands.running(found):
        assert not host_commands.is_any_running(found)
    assert not found.db.exists()


async def test_the_schedule_goes_on_when_the_last_command_has_ended(tmp_path: Path) -> None:
    found, clock = paths(tmp_path), VirtualClock()
    with host_commands.running(found):
        waiting = asyncio.create_task(host_commands.ended(found, clock))
        await clock.advance(600)
        assert not waiting.done()
    await clock.advance(10)
    assert waiting.done() and waiting.exception() is None
