"""The driver `local`: real hosts on this machine, made and removed by the program, which may be killed at any point of it."""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from remuda.hosts.hosts import Hosts
from remuda.machines.driver import DriverContext
from remuda.machines.drivers.local import HOSTS_VARIABLE, Local
from remuda.machines.errors import Reason
from remuda.machines.options import Options
from tests.scenarios.soaking import SOAK
from tests.unit.machines.killing import NAME, Case, check_creating, check_removing
from tests.unit.machines.program_output import parsed

SCRIPT = """#!/usr/bin/env sh
echo "installing on $(hostname) at $CATTLE_HOST_LOOPBACK"
printf '[Service]\\nExecStart=/bin/sleep 1000\\n[Install]\\nWantedBy=multi-user.target\\n' \
    >"$CATTLE_HOST_ROOT/etc/systemd/system/u.service"
systemctl enable --now u
"""
# Ends itself, as SIGKILL does, the nth time that it is about to change something in one of two places; 0 counts only.
MORTAL = """
import os, signal, sys
places, left, count = sys.argv[1:3], int(sys.argv[3]), 0
def watch(event, args):
    global count
    changes = event in ("os.rename", "os.mkdir", "os.remove", "os.rmdir", "os.chmod", "subprocess.Popen", "os.link")
    writes = event == "open" and (args[2] or 0) & (os.O_WRONLY | os.O_RDWR | os.O_CREAT)
    if (changes or writes) and any(place in str(args) for place in places):
        count += 1
        if count == left:
            os.kill(os.getpid(), signal.SIGKILL)
sys.addaudithook(watch)
from remuda.machines.provisioner.program import main
code = main(sys.argv[4:])
print(count)
sys.exit(code)
"""


class Site:
    """A directory for hosts, one for state, and the program."""

    def __init__(self, directory: Path) -> None:
        self.hosts = directory / "hosts"
        self.storage = directory / "store"
        self.script = directory / "value"
        self.script.write_text(SCRIPT)
        self.environ = {**os.environ, HOSTS_VARIABLE: str(self.hosts), "REMUDA_OWNER": "owner-1"}

    def run(self, *words: str, dies_at: int = 0) -> subprocess.CompletedProcess[str]:
        places = [str(self.hosts), str(self.storage), str(dies_at), "-s", str(self.storage)]
        command = [sys.executable, "-c", MORTAL, *places, *words]
        return subprocess.run(command, env=self.environ, capture_output=True, text=True, timeout=240, check=False)

    def create(self, dies_at: int = 0) -> subprocess.CompletedProcess[str]:
        return self.run("create", "--driver=local", f"--custom-install-script={self.script}", NAME, dies_at=dies_at)

    def remove(self, dies_at: int = 0) -> subprocess.CompletedProcess[str]:
        return self.run("rm", "-y", "--update-config", NAME, dies_at=dies_at)

    def check_one(self) -> None:
        (host,) = Hosts(self.hosts).all()
        assert host.running
        assert host.systemctl("is-active", "u", seconds=60)[1] == "active"
        said = json.loads((self.storage / "machines" / NAME / "config.json").read_text())
        assert said["Driver"]["IPAddress"] == host.record.address

    def check_none(self) -> None:
        assert [path.name for path in self.hosts.iterdir() if path.name != ".id"] == []
        assert [path.name for path in self.storage.glob("machines/*")] == []
        assert self.processes() == []

    def processes(self) -> list[str]:
        """Whatever runs with something of these hosts in its environment."""
        found = []
        for entry in Path("/proc").iterdir():
            with contextlib.suppress(OSError):
                if entry.name.isdigit() and f"CATTLE_HOST_ROOT={self.hosts}".encode() in (entry / "environ").read_bytes():
                    found.append((entry / "cmdline").read_bytes().replace(b"\0", b" ").decode())
        return found

    def clean_up(self) -> None:
        hosts = Hosts(self.hosts)
        for host in hosts.all():
            hosts.remove(host.name)


@pytest.fixture
def site(tmp_path: Path) -> Iterator[Site]:
    made = Site(tmp_path)
    try:
        yield made
    finally:
        made.clean_up()


@pytest.mark.story
def test_a_machine_outlives_its_job_and_comes_back_when_the_power_does(site: Site) -> None:
    done = site.create()
    assert done.returncode == 0, done.stderr
    site.check_one()
    host = Hosts(site.hosts).get(NAME)
    assert f"installing on {NAME} at {host.record.address}" in done.stderr
    Hosts(site.hosts).kill(NAME)
    assert site.run("power-on").returncode == 0
    Hosts(site.hosts).get(NAME).systemctl("start", "u", seconds=60)
    site.check_one()
    assert site.create().returncode == 0
    assert Hosts(site.hosts).get(NAME).record == host.record
    done = site.remove()
    assert done.returncode == 0, done.stderr
    site.check_none()
    assert site.remove().returncode == 0


@pytest.mark.story
def test_a_script_that_fails_is_the_reason(site: Site) -> None:
    site.script.write_text("echo one; echo 'the server is not ours' >&2; exit 7")
    done = site.create()
    assert done.returncode == 1
    failure = parsed(done.stderr)
    assert failure.reason is Reason.BOOTSTRAP_FAILED
    assert failure.message == "the bootstrap script failed (7): the server is not ours"
    assert site.remove().returncode == 0
    site.check_none()


def test_a_foreign_host_is_left_alone(site: Site) -> None:
    Hosts(site.hosts).create(NAME)
    done = site.create()
    assert done.returncode == 3
    assert "Conflict: there is a host" in done.stderr and "remuda host rm" in done.stderr
    assert Hosts(site.hosts).get(NAME).running


def test_without_a_runner_there_is_no_place_for_hosts(site: Site) -> None:
    site.environ.pop(HOSTS_VARIABLE)
    done = site.create()
    assert done.returncode == 3 and "--job-runner=local" in done.stderr


@pytest.mark.soak
async def test_every_kill_between_steps_is_survived(site: Site) -> None:
    around = DriverContext(environ=site.environ)

    async def existing() -> list[str]:
        return [host.name for host in Hosts(site.hosts).all()]

    case = Case(Local, lambda: Options("local", ()), existing, str(site.script), around)
    assert await check_creating(case, sampled=not SOAK) >= 10
    assert await check_removing(case) >= 3
    site.check_none()


@pytest.mark.soak
def test_a_kill_in_the_middle_of_a_step_is_survived(site: Site) -> None:
    """All of them under make soak; a few here."""
    made, gone = site.create(), site.remove()
    assert made.returncode == gone.returncode == 0, (made.stderr, gone.stderr)
    making, ending = int(made.stdout.split()[-1]), int(gone.stdout.split()[-1])
    for moment in range(1, making + 1) if SOAK else [making // 4, making // 2, 3 * making // 4]:
        # The last ones may be too late: directories that are there already are not made again.
        assert site.create(dies_at=moment).returncode in (-9, 0)
        if moment % 2:
            done = site.create()
            assert done.returncode == 0, (moment, done.stderr)
            site.check_one()
        site.remove(dies_at=1 + (ending - 1) * (moment % 7) // 6)
        done = site.remove()
        assert done.returncode == 0, (moment, done.stderr)
        site.check_none()
