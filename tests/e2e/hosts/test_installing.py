"""From the install script to a running unit, on a host of this machine: the agent, a plan, the image from `/v2/`, and away again.

The plan is a file here (the agent's local mode); everything after it is as in a provisioned cluster.
"""

from __future__ import annotations

import asyncio
import base64
import json
import subprocess
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import pytest

from remuda.agent.install import build, install_script, uninstall_script
from remuda.agent.plans.plan import parse
from remuda.hosts.hosts import Host
from remuda.images import installer
from remuda.provisioning.host_layout import Layout
from tests.e2e.serving import eventually
from tests.integration.gateway.running_gateway import Standing, standing
from tests.real import need

from .conftest import HostKit

# Images are made, pulled and installed on the way, several times.
pytestmark = pytest.mark.timeout(900)

Obj = dict[str, Any]
OLD, NEW = "v1.34.0+remuda1", "v1.34.1+remuda1"


@pytest.fixture
async def registry(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Standing]:
    """The gateway, which makes the images when they are first asked for."""
    monkeypatch.setenv("REMUDA_ETCD_BINARY", str(need.programs("etcd")["etcd"]))
    monkeypatch.setenv("REMUDA_IMAGES", str(tmp_path / "images"))
    async with standing() as place:
        yield place


class Installed:
    """A host with an agent that obeys plans from files."""

    def __init__(self, kit: HostKit, host: Host, port: int) -> None:
        self.kit = kit
        self.host = host
        self.root = host.place.root
        self.layout = Layout(str(self.root), host.record.address)
        self.port = port

    def install_agent(self) -> None:
        (self.root / "agent.pyz").write_bytes(build())
        (self.root / "uninstall.sh").write_text(uninstall_script())
        done = subprocess.run(
            ["sh", "-s", "-"],
            input=install_script(),
            env={
                **self.host.environment(),
                "CATTLE_REMOTE_ENABLED": "false",
                "CATTLE_LOCAL_ENABLED": "true",
                "CATTLE_AGENT_BINARY_LOCAL": "true",
                "CATTLE_AGENT_BINARY_LOCAL_LOCATION": str(self.root / "agent.pyz"),
                "CATTLE_AGENT_UNINSTALL_LOCAL": "true",
                "CATTLE_AGENT_UNINSTALL_LOCAL_LOCATION": str(self.root / "uninstall.sh"),
            },
            capture_output=True,
            text=True,
            check=False,
            timeout=120,
        )
        assert done.returncode == 0, done.stderr
        assert self.host.systemctl("is-active", "rancher-system-agent", seconds=60)[0] == 0

    def plan(self, version: str, stamp: str, *more: str, config: Obj | None = None) -> None:
        """What the planner would send, as far as it concerns the installation."""
        registry = f"127.0.0.1:{self.port}"
        mirrors = {"mirrors": {registry: {"endpoint": [f"http://{registry}"]}}}
        own = {
            "node-ip": [self.host.record.address],
            "token": "a-token-that-is-long-enough",
            "cluster-init": True,
            **(config or {}),
        }
        env = [f"RESTART_STAMP={stamp}", f"REMUDA_DATA_DIR={self.data}", f"REMUDA_ROOT={self.root}", *more]
        plan = {
            "files": [
                _file(self.layout.path("/etc/rancher/agent/registries.yaml"), json.dumps(mirrors)),
                _file(self.layout.path("/etc/rancher/remuda/config.yaml.d/50-rancher.yaml"), json.dumps(own)),
            ],
            "instructions": [
                {
                    "name": "install",
                    "image": f"{registry}/{installer.REPOSITORY}:{installer.tag_of(version)}",
                    "env": env,
                    "args": ["-c", "run.sh"],
                    "command": "sh",
                    "saveOutput": True,
                }
            ],
        }
        self.plans.mkdir(parents=True, exist_ok=True)
        (self.plans / ".one.plan").write_text(json.dumps(plan))
        (self.plans / ".one.plan").rename(self.plans / "one.plan")

    def is_done(self) -> bool:
        """Whether the agent has put down that it did the present plan; before that it does it once more after a reboot."""
        position = self.plans / "one.pos"
        wanted = parse((self.plans / "one.plan").read_bytes()).checksum
        return position.exists() and json.loads(position.read_text())["appliedChecksum"] == wanted

    @property
    def plans(self) -> Path:
        return self.root / "var/lib/rancher/agent/plans"

    @property
    def data(self) -> str:
        return self.layout.path("/var/lib/rancher/remuda")

    def release(self) -> str:
        path = Path(self.data) / "release"
        return path.read_text().strip() if path.exists() else ""

    def show(self, unit: str, what: str) -> str:
        return self.host.systemctl("show", "-p", what, "--value", unit, seconds=60)[1]

    def logs(self) -> str:
        return "\n".join(path.read_text(errors="replace")[-4000:] for path in sorted(self.host.place.logs.glob("*.log")))

    async def becomes(self, true: Callable[[], bool], seconds: float = 180) -> None:
        try:
            await asyncio.to_thread(eventually, true, seconds)
        except AssertionError:
            pytest.fail(f"not in time; the logs of the host:\n{self.logs()}")


def _file(path: str, text: str) -> Obj:
    return {"path": path, "content": base64.b64encode(text.encode()).decode(), "uid": -1, "gid": -1}


@pytest.mark.story
@pytest.mark.real
async def test_a_plan_installs_upgrades_and_takes_away(kit: HostKit, registry: Standing) -> None:
    host = await asyncio.to_thread(kit.create, "one")
    one = Installed(kit, host, registry.port)
    await asyncio.to_thread(one.install_agent)
    one.plan(OLD, "first")
    await one.becomes(lambda: one.show("remuda-server", "ActiveState") == "active")
    assert one.release() == OLD
    assert (one.root / "etc/systemd/system/multi-user.target.wants/remuda-server.service").is_symlink()
    first = one.show("remuda-server", "MainPID")
    stamp = Path(one.data) / "system-agent-installer/restart_stamp"
    await one.becomes(lambda: stamp.exists() and stamp.read_text() == "first")

    # The same installation once more restarts nothing; another stamp does; another version does.
    one.plan(OLD, "first", "SOMETHING=else")
    await one.becomes(lambda: "nothing has changed" in one.logs())
    assert one.show("remuda-server", "MainPID") == first
    one.plan(OLD, "second")
    await one.becomes(lambda: stamp.read_text() == "second" and one.show("remuda-server", "ActiveState") == "active")
    second = one.show("remuda-server", "MainPID")
    assert second != first
    one.plan(NEW, "second")
    await one.becomes(lambda: one.release() == NEW and one.show("remuda-server", "MainPID") not in ("0", second))
    await one.becomes(lambda: one.show("remuda-server", "ActiveState") == "active" and one.is_done())

    # A reboot: agent and distribution come up again.
    await asyncio.to_thread(kit.hosts.stop, "one")
    await asyncio.to_thread(kit.hosts.start, "one")
    await one.becomes(lambda: one.show("remuda-server", "ActiveState") == "active")
    await one.becomes(lambda: one.show("rancher-system-agent", "ActiveState") == "active")

    # Both uninstallers leave what was there before.
    done = await asyncio.to_thread(kit.run, host, "remuda-uninstall.sh && rancher-system-agent-uninstall.sh")
    assert done.returncode == 0, done.stderr
    for directory in ("etc/rancher", "var/lib/rancher"):
        left = [path for path in (one.root / directory).rglob("*") if path.is_file()]
        assert left == []
    assert list((one.root / "usr/local/bin").iterdir()) == []
    assert [path.name for path in (one.root / "etc/systemd/system").rglob("*.service")] == []
    assert await asyncio.to_thread(kit.only_its_init, host), kit.commands_of(host)


@pytest.mark.real
async def test_installing_without_starting_and_roles(kit: HostKit, registry: Standing) -> None:
    host = await asyncio.to_thread(kit.create, "one")
    one = Installed(kit, host, registry.port)
    await asyncio.to_thread(one.install_agent)
    one.plan(OLD, "first", "INSTALL_REMUDA_SKIP_START=true", "INSTALL_REMUDA_EXEC=agent", 'REMUDA_NOTE=a "b" $c')
    unit = one.root / "etc/systemd/system/remuda-node.service"
    await one.becomes(one.is_done)
    assert one.show("remuda-node", "UnitFileState") == "enabled"
    assert 'bin/remuda" agent' in unit.read_text()
    environment = (one.root / "etc/systemd/system/remuda-node.env").read_text()
    assert 'REMUDA_NOTE="a \\"b\\" \\$c"\n' in environment
    assert "REMUDA_HOST_ID" not in environment
    assert one.show("remuda-node", "ActiveState") == "inactive"
    one.plan(OLD, "first", "INSTALL_REMUDA_SKIP_ENABLE=true", "INSTALL_REMUDA_TYPE=server")
    # A unit's file is there before all of it is written.
    await one.becomes(one.is_done)
    assert one.show("remuda-server", "UnitFileState") == "disabled"
    one.plan(OLD, "first", "INSTALL_REMUDA_SKIP_START=true")
    await one.becomes(lambda: one.show("remuda-server", "UnitFileState") == "enabled" and not unit.exists())


@pytest.mark.real
async def test_a_service_that_does_not_start_is_told_in_the_plans_output(kit: HostKit, registry: Standing) -> None:
    host = await asyncio.to_thread(kit.create, "one")
    one = Installed(kit, host, registry.port)
    await asyncio.to_thread(one.install_agent)
    one.plan(OLD, "first", config={"disable-etcd": True, "disable-apiserver": True})
    await one.becomes(lambda: "remuda-server does not start" in one.logs())
    assert not (Path(one.data) / "system-agent-installer/restart_stamp").exists()
