"""Installing and removing the service on a machine whose systemctl is a small program: what is left when a step fails.

tests/e2e/operating does the same with systemd itself.
"""

from __future__ import annotations

import os
import pwd
from pathlib import Path

import pytest

from remuda.cli import systemd
from remuda.cli.systemd import InstallError, SystemdService, install, uninstall, unit_file

_NAME = "remuda-test-contact"
# `restart` works if the unit's options do not contain the word in `broken`.
_SYSTEMCTL = """#!/bin/sh
cd "${0%/*}" || exit 9
echo "$*" >>asked
case $1 in
  restart) rm -f active; ! grep -q -e "$(cat broken)" units/$2 || exit 1; touch active ;;
  stop) rm -f active ;;
  is-active) [ -e active ] && echo active || echo inactive ;;
  is-enabled) echo enabled ;;
  show) echo serving ;;
esac
"""
_JOURNALCTL = "#!/bin/sh\necho 'remuda: port 1 is in use'\n"


class Machine:
    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.units = directory / "units"
        self.units.mkdir()
        self.break_starts_with("--never")
        for name, text in (("systemctl", _SYSTEMCTL), ("journalctl", _JOURNALCTL)):
            (directory / name).write_text(text)
            (directory / name).chmod(0o755)
        self.told: list[str] = []

    def break_starts_with(self, option: str) -> None:
        (self.directory / "broken").write_text(option)

    def install(self, *options: str) -> None:
        install(self.service(*options), self.told.append, start=True)

    def service(self, *options: str) -> SystemdService:
        user = pwd.getpwuid(os.getuid()).pw_name
        return SystemdService(_NAME, ("/opt/remuda/bin/remuda",), options, user, Path("/var/lib") / _NAME)

    @property
    def unit(self) -> str:
        return (self.units / f"{_NAME}.service").read_text()

    @property
    def active(self) -> bool:
        return (self.directory / "active").exists()


@pytest.fixture
def machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Machine:
    machine = Machine(tmp_path)
    monkeypatch.setattr(systemd, "UNITS", machine.units)
    monkeypatch.setattr(systemd, "_BOOTED", tmp_path)
    monkeypatch.setenv("PATH", f"{tmp_path}{os.pathsep}{os.environ['PATH']}")
    return machine


def test_a_failed_install_over_a_running_service_leaves_that_running(machine: Machine) -> None:
    machine.install("--v=1")
    machine.break_starts_with("--v=2")
    with pytest.raises(InstallError, match=r"did not come up: port 1 is in use .*the former unit is back, and runs$"):
        machine.install("--v=2")
    assert machine.unit == unit_file(machine.service("--v=1"))
    assert machine.active
    assert (machine.directory / "asked").read_text().splitlines().count("daemon-reload") == 3


def test_a_former_unit_that_does_not_come_up_either_is_said(machine: Machine) -> None:
    machine.install("--v=1")
    machine.break_starts_with("--v=")
    with pytest.raises(InstallError, match=r"the former unit is back, but does not come up either: port 1 is in use$"):
        machine.install("--v=2")
    assert machine.unit == unit_file(machine.service("--v=1"))
    assert not machine.active


def test_a_service_that_was_stopped_stays_stopped(machine: Machine) -> None:
    machine.install("--v=1")
    (machine.directory / "active").unlink()
    machine.break_starts_with("--v=2")
    with pytest.raises(InstallError, match=r"the former unit is back$"):
        machine.install("--v=2")
    assert not machine.active


def test_a_first_install_that_failed_has_nothing_to_restore(machine: Machine) -> None:
    machine.break_starts_with("--v=1")
    with pytest.raises(InstallError, match=r"shows more\)$"):
        machine.install("--v=1")
    assert machine.unit == unit_file(machine.service("--v=1"))


def test_without_a_unit_there_is_nothing_to_uninstall(machine: Machine) -> None:
    with pytest.raises(InstallError, match="there is no service"):
        uninstall(_NAME, machine.told.append, purge=False)
    with pytest.raises(InstallError, match="nothing to purge"):
        uninstall(_NAME, machine.told.append, purge=True)


@pytest.mark.skipif(os.geteuid() != 0, reason="/var/lib is root's")
def test_what_an_uninstall_has_left_is_purged_later(machine: Machine) -> None:
    state = Path("/var/lib") / _NAME
    state.mkdir()
    try:
        machine.install("--v=1")
        (state / "somebody-elses").touch()
        uninstall(_NAME, machine.told.append, purge=False)
        assert f"{state}: stays" in machine.told[-1]
        with pytest.raises(InstallError, match="no state of Remuda's"):
            uninstall(_NAME, machine.told.append, purge=True)
        (state / "pki").mkdir()
        uninstall(_NAME, machine.told.append, purge=True)
        assert machine.told[-1] == f"{state}: removed" and not state.exists()
    finally:
        if state.exists():
            for path in state.iterdir():
                path.rmdir() if path.is_dir() else path.unlink()
            state.rmdir()
