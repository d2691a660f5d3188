"""The image of the server, built here and run by podman as a cluster would run it: another user, and nothing of it written to."""

from __future__ import annotations

import os
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from remuda import __version__
from remuda.images import Layout, server
from remuda.images.debian import DebianError
from remuda.images.layout import cache_directory
from remuda.images.recipe import WheelError
from tests.e2e.serving import eventually
from tests.real import need

pytestmark = [pytest.mark.real, pytest.mark.hosts, pytest.mark.timeout(900)]

IMAGE = "localhost/remuda-server:1"
# What is asked for by default is more than every machine gives.
ALONE = ("--network", "none", "--ulimit", "nofile=20000:20000", "--ulimit", "nproc=30000:30000")


class Podman:
    def __init__(self, directory: Path) -> None:
        places = (("--root", "storage"), ("--runroot", "state"), ("--tmpdir", "tmp"))
        runtime = shutil.which("runc") or "/usr/sbin/runc"
        options = [word for option, name in places for word in (option, str(directory / name))]
        self._words = ["podman", *options, "--cgroup-manager", "cgroupfs", "--runtime", runtime]

    def run(self, *words: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run([*self._words, *words], capture_output=True, text=True, timeout=300, check=False)

    def done(self, *words: str) -> str:
        found = self.run(*words)
        assert found.returncode == 0, (words, found.stdout[-2000:], found.stderr[-2000:])
        return found.stdout


@pytest.fixture
def podman(tmp_path: Path) -> Iterator[Podman]:
    if os.geteuid() != 0 or shutil.which("podman") is None or shutil.which("apt-get") is None:
        need.absent("the image is built from Debian's packages and run by podman, as root")
    try:
        built = server.build(cache_directory(os.environ) / "downloads")
    except (DebianError, WheelError) as error:
        need.absent(str(error))
    layout = tmp_path / "image"
    Layout(layout).write(built.image, ("latest",))
    # Not below a test's own: there will be sockets, whose paths are bounded in length.
    directory = Path(tempfile.mkdtemp(prefix="remuda-podman-"))
    made = Podman(directory)
    try:
        made.done("pull", "-q", f"oci:{layout}:latest")
        (image,) = made.done("images", "-q", "--no-trunc").split()
        made.done("tag", image, IMAGE)
        yield made
    finally:
        made.run("rm", "-f", "-t", "5", "--all")
        made.run("rmi", "-f", "--all")
        subprocess.run(["umount", str(directory / "storage/overlay")], capture_output=True, check=False)
        shutil.rmtree(directory, ignore_errors=True)


def test_it_runs_every_role_as_a_stranger_on_a_file_system_that_it_can_not_write(podman: Podman) -> None:
    shut = (*ALONE, "--read-only", "--cap-drop", "ALL", "--security-opt", "no-new-privileges", "--user", "65532:65532")
    assert f"remuda {__version__}" in podman.done("run", "--rm", *shut, IMAGE, "version", "--client")
    for role in ("controllers", "gateway"):
        assert "--webhook-service" in podman.done("run", "--rm", *shut, IMAGE, role, "--help")
    podman.done("run", "-d", "--name", "server", *shut, "--tmpfs", "/tmp", "--tmpfs", "/var/lib/remuda:mode=1777", IMAGE)
    eventually(lambda: "Ctrl-C stops." in podman.run("logs", "server").stdout, 180, every=0.5)
    podman.done("stop", "-t", "60", "server")
    assert podman.done("inspect", "-f", "{{.State.ExitCode}}", "server").strip() == "0"
