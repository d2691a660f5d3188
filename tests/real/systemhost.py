"""A host with systemd, as hosts are: Debian in a container of its own, with a wire to us and to nobody else.

    with Namespace() as wire, SystemHost("one", wire) as host:
        host.shell("systemctl is-system-running --wait")

Its root filesystem is one of :mod:`.debian`'s. Podman has its storage in a directory of the host's own, which goes with it.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import tempfile
from pathlib import Path
from types import TracebackType
from typing import Self

from tests.e2e.access.namespaces import Namespace
from tests.e2e.serving import eventually
from tests.real import debian, need

_PACKAGES = "systemd,systemd-sysv,dbus,curl,ca-certificates,iproute2,procps,python3,openssh-server"
# What would change the machine below: its console, its kernel's settings; and what goes to the network by itself.
_MASKED = (
    *("getty@tty1.service", "console-getty.service", "systemd-sysctl.service", "systemd-modules-load.service"),
    *("systemd-logind.service", "apt-daily.timer", "apt-daily-upgrade.timer", "fstrim.timer", "e2scrub_all.timer"),
)
_WRITTEN = ("/tmp", "/var/tmp", "/var/log", "/var/cache", "/var/backups", "/var/lib/systemd")
_PRIVILEGES = (
    *("--privileged", "--cgroupns", "private", "--systemd=false", "--tmpfs", "/run:exec", "--tmpfs", "/run/lock"),
    *("--stop-signal", "SIGRTMIN+3", "-e", "container=podman"),
    *("--ulimit", "nofile=20000:20000", "--ulimit", "nproc=30000:30000"),
)
_IMAGE = "localhost/remuda-test-host:1"


def needed() -> None:
    """Skips, or fails, where no such host can be made."""
    if os.geteuid() != 0:
        need.absent("containers with systemd are made by root")
    for program in ("podman", "runc", "debootstrap"):
        if shutil.which(program) is None and not Path(f"/usr/sbin/{program}").exists():
            need.absent(f"{program} is not installed: make test-deps")


def root_filesystem() -> Path:
    """An archive of it, made when there is none."""
    try:
        return debian.archive(debian.codename(), _PACKAGES, _MASKED)
    except debian.Unavailable as reason:
        need.absent(str(reason))


class SystemHost:
    """One such host. `wire.inside` is its address."""

    def __init__(self, name: str, wire: Namespace) -> None:
        self.name = name
        self.wire = wire
        # Not below a test's own: there will be sockets, whose paths are bounded in length.
        self._directory = Path(tempfile.mkdtemp(prefix="remuda-host-"))
        storage, state, scratch = (str(self._directory / each) for each in ("storage", "state", "tmp"))
        places = ["--root", storage, "--runroot", state, "--tmpdir", scratch]
        self._podman = ["podman", *places, "--cgroup-manager", "cgroupfs", "--runtime", shutil.which("runc") or "/usr/sbin/runc"]

    def podman(self, *words: str, seconds: float = 300) -> subprocess.CompletedProcess[str]:
        return subprocess.run([*self._podman, *words], capture_output=True, text=True, timeout=seconds, check=False)

    def _done(self, *words: str, seconds: float = 300) -> str:
        done = self.podman(*words, seconds=seconds)
        assert done.returncode == 0, (words, done.stdout[-2000:], done.stderr[-2000:])
        return done.stdout

    def __enter__(self) -> Self:
        try:
            self._done("import", str(root_filesystem()), _IMAGE)
            place = ["--network", f"ns:/run/netns/{self.wire.name}", "--hostname", self.name, "--name", self.name]
            self._done("run", "-d", *place, *_PRIVILEGES, _IMAGE, "/sbin/init")
            self.up()
        except BaseException:
            self.__exit__(None, None, None)
            raise
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.podman("rm", "-f", "-t", "5", self.name)
        self.podman("rmi", "-f", _IMAGE)
        # Podman leaves its storage mounted on itself.
        subprocess.run(["umount", str(self._directory / "storage/overlay")], capture_output=True, check=False)
        shutil.rmtree(self._directory, ignore_errors=True)

    def up(self) -> None:
        """Until it has come up."""
        eventually(lambda: self.shell("systemctl is-system-running").stdout.strip() in ("running", "degraded"), 300)

    def restart(self) -> None:
        """A reboot: everything in it is told to end, and begins anew."""
        self._done("restart", "-t", "120", self.name, seconds=400)
        self.up()

    def booted(self) -> int:
        """When, by the machine's own count."""
        return int(self.said("cut -d ' ' -f 22 /proc/1/stat"))

    def shell(self, script: str, seconds: float = 300) -> subprocess.CompletedProcess[str]:
        return self.podman("exec", self.name, "sh", "-c", script, seconds=seconds)

    def said(self, script: str, seconds: float = 300) -> str:
        done = self.shell(script, seconds)
        assert done.returncode == 0, (script, done.stdout[-4000:], done.stderr[-4000:])
        return done.stdout

    def show(self, unit: str, what: str) -> str:
        return self.shell(f"systemctl show -p {what} --value {unit}").stdout.strip()

    def log(self, *units: str) -> str:
        wanted = " ".join(f"-u {unit}" for unit in units)
        return self.shell(f"journalctl --no-pager -n 200 {wanted}").stdout

    # --- what is there ----------------------------------------------------------------------------------------------------

    def files(self) -> set[str]:
        """Everything on its disk but what Debian itself writes now and then."""
        left_out = " -o ".join(f"-path {each}" for each in _WRITTEN)
        return set(self.said(f"find / -ignore_readdir_race -xdev \\( {left_out} \\) -prune -o -print").splitlines())

    def units(self) -> set[str]:
        """Those that it knows, or that failed."""
        known = self.said("systemctl list-unit-files --no-legend | cut -d ' ' -f 1").split()
        return {*known, *self.said("systemctl list-units --all --failed --plain --no-legend | cut -d ' ' -f 1").split()}

    def processes(self) -> set[str]:
        """By their names, but those that look."""
        return set(self.said("ps -eo comm=").split()) - {"ps", "sh"}
