"""Whole hosts that join a cluster of ours: by Rancher's own install script with its own agent, and by ours with ours.

A host is this machine seen through an overlay, in a mount namespace of its own: what is installed and written stays there. The
plan is one that our planner makes for an ordinary host; its installer image can't be had, so it ends there.
"""

from __future__ import annotations

import base64
import json
import os
import shlex
import shutil
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from remuda.provisioning.well_known import plan_name, request_name
from tests.e2e.access.fronted import FROM_NOWHERE
from tests.e2e.access.harness import Cluster, Gateway
from tests.e2e.access.test_registering import FLEET, SECRETS, Everything, command_of, wanted
from tests.e2e.serving import eventually
from tests.real import build, need
from tests.real.systemagents import ORIGINAL, OURS, both_possible

pytestmark = [pytest.mark.real, pytest.mark.timeout(600)]

CONFIG = "etc/rancher/k3s/config.yaml.d/50-rancher.yaml"
SYSTEMCTL = "#!/bin/sh\nexit 0\n"
ENTER = """set -e
mount -t tmpfs tmpfs "$1"
mkdir "$1/upper" "$1/work" "$1/root"
mount -t overlay overlay -o "lowerdir=/,upperdir=$1/upper,workdir=$1/work" "$1/root"
for each in proc dev sys tmp; do mount --rbind "/$each" "$1/root/$each"; done
exec chroot "$1/root" sh -c "$2"
"""
RUN = """set -e
{install}
. {settings}
unit=/etc/systemd/system/rancher-system-agent.service
for each in $(sed -n 's/^Environment=//p' $unit); do export "$each"; done
exec $(sed -n 's/^ExecStart=//p' $unit)
"""


class Host:
    """A host in a namespace of its own, from its installer to its agent."""

    def __init__(self, directory: Path, install: str, settings: dict[str, str]) -> None:
        self.place = directory / "host"
        self.place.mkdir(parents=True)
        self.log = directory / "host.log"
        shim = directory / "bin"
        shim.mkdir()
        for name, text in (("systemctl", SYSTEMCTL), ("sudo", '#!/bin/sh\nexec "$@"\n')):
            (shim / name).write_text(text)
            (shim / name).chmod(0o755)
        exported = {**settings, "PATH": f"{shim}:{os.environ['PATH']}"}
        (directory / "settings").write_text("".join(f"export {key}={shlex.quote(value)}\n" for key, value in exported.items()))
        script = RUN.format(install=f". {directory}/settings\n{install}", settings=directory / "settings")
        with self.log.open("wb") as log:
            command = ["unshare", "-m", "sh", "-c", ENTER, "sh", str(self.place), script]
            self.process = subprocess.Popen(command, stdout=log, stderr=log, start_new_session=True)

    def read(self, path: str) -> str:
        """A file of the host; empty when there is none."""
        found = Path(f"/proc/{self.process.pid}/root") / path
        try:
            return found.read_text()
        except OSError:
            return ""

    def until(self, true: object, seconds: float = 240) -> None:
        assert callable(true)
        eventually(lambda: self.process.poll() is not None or bool(true()), seconds, f"{self.log.read_text()[-4000:]}")
        assert self.process.poll() is None, self.log.read_text()[-4000:]

    def end(self) -> None:
        if self.process.poll() is None:
            os.killpg(self.process.pid, signal.SIGKILL)
            self.process.wait(30)


@pytest.fixture(scope="module")
def gateway(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Gateway]:
    both_possible()
    if shutil.which("curl") is None:
        need.absent("the install scripts need curl")
    directory = tmp_path_factory.mktemp("namespace")
    tried = subprocess.run(["unshare", "-m", "sh", "-c", ENTER, "sh", str(directory), "true"], capture_output=True, check=False)
    if tried.returncode != 0:
        need.absent(f"no namespace with an overlay can be made here: {tried.stderr.decode().strip()}")
    with Everything(tmp_path_factory.mktemp("installing") / "server") as started:
        started.announced()
        yield started
        assert started.tracebacks() == [], started.told()[-4000:]


def original(gateway: Gateway, cluster: Cluster, directory: Path) -> tuple[str, dict[str, str]]:
    """Rancher's script, as a host has it that was told to come here."""
    told = subprocess.run(
        ["go", "list", "-m", "-f", "{{.Dir}}", "github.com/rancher/system-agent"],
        cwd=build.HERE / "systemagent",
        env={**os.environ, "GOWORK": "off", "GOFLAGS": "-mod=mod"},
        capture_output=True,
        text=True,
        check=True,
    )
    source = Path(told.stdout.strip())
    settings = {
        "CATTLE_AGENT_BINARY_LOCAL": "true",
        "CATTLE_AGENT_BINARY_LOCAL_LOCATION": str(need.programs("systemagent")["rancher-system-agent"]),
        "CATTLE_AGENT_UNINSTALL_LOCAL": "true",
        "CATTLE_AGENT_UNINSTALL_LOCAL_LOCATION": str(source / "system-agent-uninstall.sh"),
        "STRICT_VERIFY": "true",
    }
    words = ["--server", gateway.url, "--token", cluster.token("node-token"), "--ca-checksum", gateway.ca_checksum()]
    return f"sh {source}/install.sh {shlex.join(words)} --label cattle.io/os=linux --all-roles --node-name theirs", settings


def ours(gateway: Gateway, cluster: Cluster, directory: Path) -> tuple[str, dict[str, str]]:
    return f"{command_of(gateway, cluster)} --all-roles --node-name ours", {}


def is_json(text: str) -> bool:
    try:
        return bool(json.loads(text))
    except ValueError:
        return False


@pytest.mark.parametrize("kind", [ORIGINAL, OURS])
def test_a_host_joins_and_takes_up_its_plan(gateway: Gateway, tmp_path: Path, kind: str) -> None:
    cluster = wanted(gateway, f"joined-{kind[:6]}")
    install, settings = (original if kind == ORIGINAL else ours)(gateway, cluster, tmp_path)
    host = Host(tmp_path, install, settings)
    try:
        connection = "var/lib/rancher/agent/rancher2_connection_info.json"
        # Written to its end.
        host.until(lambda: is_json(host.read(connection)))
        told = json.loads(host.read(connection))
        machine = request_name(host.read("etc/rancher/agent/cattle-id").strip())
        assert (told["namespace"], told["secretName"]) == (FLEET, plan_name(machine))

        def data() -> dict[str, str]:
            found = gateway.endpoint.request("GET", f"{SECRETS}/{plan_name(machine)}").json.get("data") or {}
            return {key: base64.b64decode(value).decode(errors="replace") for key, value in found.items()}

        seen: list[dict[str, str]] = []

        def failed() -> bool:
            # All at once: a few seconds later it is tried again.
            seen[:] = [data()]
            return seen[0].get("plan-state") == "failed"

        host.until(failed)
        plan = json.loads(seen[0]["plan"])
        (nowhere,) = FROM_NOWHERE.values()
        assert nowhere in plan["instructions"][-1]["image"] and seen[0]["plan-revision"] == "1"
        (config,) = (each for each in plan["files"] if each["path"] == f"/{CONFIG}")
        assert host.read(CONFIG) == base64.b64decode(config["content"]).decode()
        assert all(host.read(each["path"].lstrip("/")) or not each.get("content") for each in plan["files"])
    finally:
        host.end()
    assert not Path(f"/{CONFIG}").exists(), "it was all in the host"
