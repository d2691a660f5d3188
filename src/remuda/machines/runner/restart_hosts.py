"""Hosts of the driver `local` that ran when this machine was switched off: started again, once, when the server starts.

Of several servers on one store each has hosts of its own, whether it leads or not. So the process does this, and not the
controllers, which work for as long as a server leads.
"""

from __future__ import annotations

import asyncio
from pathlib import Path

from remuda.runtime import logger

from ..machineprovision.job_outcome import LONGEST
from .confinement import Around, environment, jailed, on_this_machine
from .controller import Ground
from .job_logs import Output
from .process import Child, Directories, named

log = logger(__name__)


async def power_on(ground: Ground) -> None:
    """Start the hosts, and return when all that can be started run; failures are logged. Returns at once if there are no
    hosts."""
    if ground.hosts is None or not ground.hosts.is_dir():
        return
    directories = Directories(ground.directory)
    try:
        await _power_on_all(ground, ground.hosts, directories)
    except OSError as error:
        log.warning("hosts can't be started: %s", error)
    finally:
        directories.close()


async def _power_on_all(ground: Ground, hosts: Path, directories: Directories) -> None:
    around = Around.this(ground.environment)
    output = Output()
    directory = await asyncio.to_thread(directories.make, {}, 0)
    variables = environment(around, str(directory), {}, ground.environment)
    variables |= on_this_machine("local", hosts, ground.environment)
    argv = [*ground.program, "power-on"]
    child = Child(jailed(argv, variables, str(directory), around, driver="local", slot=0), output.feed)
    try:
        if code := await child.ended():
            log.warning("hosts can't be started (%s): %s", named(code), output.last(LONGEST))
    finally:
        child.close()
