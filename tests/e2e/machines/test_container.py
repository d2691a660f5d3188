"""The driver `container` with real podman: hosts with systemd, user data that is done once, and power that is cut."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from remuda.machines.driver import DriverContext
from remuda.machines.drivers.container import host_image
from remuda.machines.drivers.container.driver import Container
from remuda.machines.errors import Reason
from remuda.machines.options import Options
from tests.e2e.serving import eventually
from tests.real import debian, need, systemhost
from tests.scenarios.soaking import SOAK
from tests.unit.machines.killing import NAME, Case, check_creating, check_removing
from tests.unit.machines.program_output import parsed

from .podman import IMAGE, Podman

pytestmark = pytest.mark.real
USERDATA = "#cloud-config\nwrite_files:\n- {path: /mine, content: yes it is}\nruncmd:\n- echo first >>/order\n"
SCRIPT = "#!/bin/sh\necho installed >>/order\n"


@pytest.fixture(scope="module")
def podman() -> Iterator[Podman]:
    systemhost.needed()
    with Podman() as running:
        yield running


def provision(podman: Podman, storage: Path, *words: str, seconds: float = 240) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "remuda", "provision", "-s", str(storage), *words]
    environ = {**os.environ, **podman.environ}
    return subprocess.run(command, env=environ, capture_output=True, text=True, timeout=seconds, check=False)


def test_a_host_does_its_user_data_once_and_leaves_nothing(podman: Podman, tmp_path: Path) -> None:
    (tmp_path / "value").write_text(SCRIPT)
    (tmp_path / "userdata").write_text(USERDATA)
    words = [f"--custom-install-script={tmp_path}/value", f"--container-userdata={tmp_path}/userdata", "m-1"]
    done = provision(podman, tmp_path / "s", "create", "--driver=container", f"--container-image={IMAGE}", *words)
    assert done.returncode == 0, done.stderr
    podman.up("m-1")
    eventually(lambda: podman.shell("m-1", "cat /order") == "first\ninstalled", 120)
    assert podman.shell("m-1", "cat /mine; echo; hostname") == "yes it is\nm-1"
    public = (tmp_path / "s/machines/m-1/id_rsa.pub").read_text().strip()
    assert podman.shell("m-1", "cat /root/.ssh/authorized_keys") == public
    # As if its power were cut: nobody starts it again but who has it.
    podman.said("kill", "m-1")
    eventually(lambda: podman.said("ps", "-q") == "", 120)
    podman.said("start", "m-1")
    podman.up("m-1")
    podman.said("restart", "-t", "120", "m-1", seconds=400)
    podman.up("m-1")
    assert podman.shell("m-1", "cat /order") == "first\ninstalled"
    done = provision(podman, tmp_path / "s", "rm", "-y", "--update-config", "m-1")
    assert done.returncode == 0, done.stderr
    assert (podman.containers(), podman.volumes()) == ([], [])


def test_without_an_image_one_of_debian_is_built(podman: Podman, tmp_path: Path) -> None:
    """From Debian's own image, which is put there beforehand: no registry of images is in reach of tests."""
    try:
        podman.said("import", str(debian.archive(debian.codename(), "ca-certificates", ())), host_image.BASE)
    except debian.Unavailable as reason:
        need.absent(str(reason))
    (tmp_path / "value").write_text(SCRIPT)
    words = [f"--custom-install-script={tmp_path}/value"]
    done = provision(podman, tmp_path / "s", "create", "--driver=container", *words, "m-1", seconds=900)
    assert done.returncode == 0, done.stderr
    told = done.stdout + done.stderr
    assert f"building the image {host_image.NAME}" in told and "apt-get install" in told and "is built" in told, told
    again = provision(podman, tmp_path / "s", "create", "--driver=container", *words, "m-2")
    assert again.returncode == 0 and "building" not in again.stdout + again.stderr, again.stderr
    try:
        for name in ("m-1", "m-2"):
            podman.up(name)
            eventually(lambda name=name: podman.shell(name, "cat /order") == "installed", 120)
            missing = podman.shell(name, "for each in curl python3 ip; do command -v $each >/dev/null || echo $each; done")
            assert missing == ""
            eventually(lambda name=name: podman.shell(name, "systemctl is-active ssh") == "active", 60)
        for secret in ("/etc/machine-id", "/etc/ssh/ssh_host_ed25519_key.pub"):
            first, second = (podman.shell(name, f"cat {secret}") for name in ("m-1", "m-2"))
            assert first and second and first != second, secret
    finally:
        for name in ("m-1", "m-2"):
            assert provision(podman, tmp_path / "s", "rm", "-y", "--update-config", name).returncode == 0


def test_an_image_that_is_none_is_the_reason(podman: Podman, tmp_path: Path) -> None:
    done = provision(podman, tmp_path / "s", "create", "--driver=container", "--container-image=localhost/nowhere:1", "m-1")
    assert done.returncode == 3
    assert (parsed(done.stderr).reason, podman.containers()) == (Reason.NOT_FOUND, [])


@pytest.mark.soak
async def test_it_survives_every_kill(podman: Podman, tmp_path: Path) -> None:
    (tmp_path / "value").write_text(SCRIPT)

    async def existing() -> list[str]:
        return podman.containers()

    options = {"image": IMAGE}
    around = DriverContext(environ=podman.environ)
    case = Case(Container, lambda: Options.read("container", Container.flags, options), existing, str(tmp_path / "value"), around)
    assert await check_creating(case, sampled=not SOAK) >= 12
    if SOAK:
        assert await check_removing(case) >= 3
    assert (NAME not in podman.containers(), podman.volumes()) == (True, [])
