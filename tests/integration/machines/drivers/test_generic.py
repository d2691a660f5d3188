"""The driver `generic`, and with it the way over SSH: a real server, a pinned host key, a host that is somebody's already."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from remuda.kube.network.outbound import Policy
from remuda.machines.driver import DriverContext, DriverError, Machine, Reason, State
from remuda.machines.drivers.generic import Generic
from remuda.machines.options import Options
from remuda.machines.provisioner.session import PreCreateError
from remuda.machines.ssh import HostKeyChanged, SshLogin, connect
from tests.scenarios.soaking import SOAK
from tests.unit.machines.killing import NAME, Case, Place, Places, check_creating, check_removing, create, remove

from .ssh_host import SshHost

# The hosts of these tests, as an administrator would allow them.
LOOPBACK = Policy.of("allow:127.0.0.0/8")
SCRIPT = "#!/bin/sh\necho installing on $(hostname)\necho done >$HOST/installed\n"


@pytest.fixture
async def host(tmp_path: Path) -> AsyncIterator[SshHost]:
    async with SshHost(tmp_path / "host") as running:
        yield running


@pytest.fixture
async def place() -> AsyncIterator[Place]:
    async with Places() as places:
        yield await places.new()


def case_of(host: SshHost, tmp_path: Path, script: str = SCRIPT, **changes: object) -> Case:
    class Here(Generic):
        claim = str(host.claim)

    (tmp_path / "value").write_text(script)
    fields = {"ipAddress": "127.0.0.1", "sshKey": str(host.key), "sshPort": host.port, "sshUser": host.user, **changes}
    said: list[str] = []

    async def existing() -> list[str]:
        return host.read("claim").split()[1:2]

    around = DriverContext(say=said.append, outbound=LOOPBACK)
    return Case(Here, lambda: Options.read("generic", Generic.flags, fields), existing, str(tmp_path / "value"), around)


async def test_a_host_is_named_and_runs_the_script(host: SshHost, place: Place, tmp_path: Path) -> None:
    await create(place, case_of(host, tmp_path))
    assert (host.read("name"), host.read("installed")) == (f"{NAME}\n", "done\n")
    assert f"127.0.1.1 {NAME}" in host.read("hosts")
    files = await place.files()
    assert files["known_hosts"].startswith(f"[127.0.0.1]:{host.port} ssh-ed25519 ".encode())
    assert files["id_rsa"] == host.key.read_bytes()
    # The script has a token in it: not where a list of processes shows it.
    assert not any("installing" in command for command in host.commands)


async def test_a_user_who_is_not_root_needs_sudo(place: Place, tmp_path: Path) -> None:
    async with SshHost(tmp_path / "host", user="admin") as host:
        with pytest.raises(PreCreateError, match="is not root and may not become it: sudo: a password is needed") as caught:
            await create(place, case_of(host, tmp_path))
        assert (caught.value.reason, caught.value.field) == (Reason.PERMISSION_DENIED, "sshUser")
        host.write("sudoer", "")
        await create(place, case_of(host, tmp_path))
        assert host.read("installed") == "done\n"


async def test_a_key_that_is_not_taken_is_said_before_anything(host: SshHost, place: Place, tmp_path: Path) -> None:
    other = SshHost(tmp_path / "other")
    with pytest.raises(PreCreateError, match="does not let root in with this SSH key") as caught:
        await create(place, case_of(host, tmp_path, sshKey=str(other.key)))
    assert caught.value.reason is Reason.AUTH_FAILED
    (tmp_path / "nonsense").write_text("no key")
    for path, why in ((tmp_path / "nowhere", "does not exist"), (tmp_path / "nonsense", "can't be used")):
        with pytest.raises(PreCreateError, match=why) as wrong:
            await create(place, case_of(host, tmp_path, sshKey=str(path)))
        assert (wrong.value.reason, wrong.value.field) == (Reason.INVALID, "sshKey")
    assert await place.files() == {} and host.commands == []


async def test_an_unreachable_host_is_reported_first(host: SshHost, place: Place, tmp_path: Path) -> None:
    await host.stop()
    with pytest.raises(PreCreateError, match=f"127.0.0.1:{host.port} can't be reached$") as caught:
        await create(place, case_of(host, tmp_path))
    assert caught.value.reason is Reason.UNAVAILABLE
    with pytest.raises(PreCreateError, match="requires the --generic-ip-address option"):
        await create(place, case_of(host, tmp_path, ipAddress=""))


async def test_from_the_first_contact_on_another_host_is_refused(host: SshHost, place: Place, tmp_path: Path) -> None:
    case = case_of(host, tmp_path, script="exit 1")
    with pytest.raises(DriverError, match="the bootstrap script failed"):
        await create(place, case)
    await host.stop()
    host.become_another()
    await host.start()
    with pytest.raises(HostKeyChanged, match="shows another host key"):
        await create(place, case)
    # And nothing is uninstalled on it.
    before = len(host.commands)
    await remove(place, case)
    assert len(host.commands) == before and await place.files() == {}


async def test_a_script_that_fails_is_the_reason(host: SshHost, place: Place, tmp_path: Path) -> None:
    with pytest.raises(DriverError) as caught:
        await create(place, case_of(host, tmp_path, script="echo one\necho it is broken >&2\nexit 3\n"))
    assert str(caught.value) == "BootstrapFailed: the bootstrap script failed (3): it is broken"


async def test_a_script_is_run_again_when_the_connection_breaks(host: SshHost, place: Place, tmp_path: Path) -> None:
    host.cut = {"installing": 1}
    await create(place, case_of(host, tmp_path))
    assert host.cut == {"installing": 0}
    assert host.read("installed") == "done\n"


async def test_one_host_is_one_machine(host: SshHost, place: Place, tmp_path: Path) -> None:
    host.write("claim", "some-token demo-other-y owner-1\n")
    with pytest.raises(DriverError, match=r"127.0.0.1 is the machine demo-other-y already") as caught:
        await create(place, case_of(host, tmp_path))
    assert (caught.value.reason, caught.value.field) == (Reason.CONFLICT, "ipAddress")
    await remove(place, case_of(host, tmp_path))
    assert "demo-other-y" in host.read("claim")


@pytest.mark.soak
async def test_it_survives_every_kill(host: SshHost, tmp_path: Path) -> None:
    case = case_of(host, tmp_path)
    assert await check_creating(case, sampled=not SOAK) >= 8
    assert await check_removing(case) >= 3


async def test_a_host_that_is_off_is_let_go(host: SshHost, place: Place, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("remuda.machines.bootstrap_script._PAUSE", 0.01)
    case = case_of(host, tmp_path)
    await create(place, case)
    machine = Machine(NAME, case.options(), tmp_path, state={"IPAddress": "127.0.0.1", "SSHPort": host.port})
    assert await Generic(case.around).state(machine) is State.RUNNING
    await host.stop()
    assert await Generic(case.around).state(machine) is State.STOPPED
    await remove(place, case)
    assert await place.files() == {}


async def test_a_shell_says_what_a_command_said(host: SshHost, tmp_path: Path) -> None:
    login = SshLogin("127.0.0.1", "root", tmp_path / "known_hosts", host.port, host.key)
    async with connect(login, DriverContext().clock, LOOPBACK) as shell:
        lines: list[str] = []
        assert await shell.run("echo a; echo b >&2; cat; exit 5", stdin="from here", on_line=lines.append) == (
            5,
            "a\nb\nfrom here",
        )
        assert lines == ["a", "b", "from here"]
