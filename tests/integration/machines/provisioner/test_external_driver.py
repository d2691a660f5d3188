"""The other program, called: it ends with whoever called it."""

from __future__ import annotations

import os
import select
import signal
import subprocess
import sys

import pytest

from remuda.machines.driver import DriverContext
from remuda.machines.errors import Reason
from remuda.machines.provisioner import external_driver

CALLING = """
import asyncio, os
from remuda.machines.driver import DriverContext
from remuda.machines.provisioner import external_driver
around = DriverContext(environ=dict(os.environ), say=lambda line: print(line, flush=True))
asyncio.run(external_driver._called(["sh", "-c", "echo $$; exec sleep 600"], dict(os.environ), around))
"""


def test_it_dies_with_its_caller_also_when_that_is_killed() -> None:
    caller = subprocess.Popen([sys.executable, "-c", CALLING], stdout=subprocess.PIPE, text=True)
    try:
        assert caller.stdout is not None
        called = os.pidfd_open(int(caller.stdout.readline()))
        try:
            caller.kill()
            assert select.select([called], [], [], 60)[0], "it still runs"
        finally:
            os.close(called)
    finally:
        caller.send_signal(signal.SIGKILL)
        caller.communicate()


async def test_why_it_failed_is_what_it_said_last() -> None:
    said: list[str] = []
    around = DriverContext(environ={}, say=said.append)
    with pytest.raises(external_driver.Failed) as failed:
        await external_driver._called(
            ["/bin/sh", "-c", "echo begin; echo 'Error: quota is used up'; echo 'exit status 1'; exit 3"], {}, around
        )
    assert (failed.value.reason, failed.value.code) == (Reason.QUOTA_EXCEEDED, 3)
    assert said == ["begin", "Error: quota is used up", "exit status 1"]
    assert await external_driver._called(["/bin/true"], {}, around) == 0
