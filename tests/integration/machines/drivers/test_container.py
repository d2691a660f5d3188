"""The driver `container`: what it asks of podman and of Docker, what a container does when it comes up, and every kill."""

from __future__ import annotations

import asyncio
import base64
import gzip
import subprocess
from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path

import pytest
from cryptography.hazmat.primitives.asymmetric import rsa

from remuda.agent.install import install_script
from remuda.machines.driver import DriverContext, DriverError, Machine, Reason, State
from remuda.machines.drivers.container import firstboot, host_image
from remuda.machines.drivers.container.driver import Container
from remuda.machines.drivers.container.engine import ContainerSpec, docker_spec, libpod_spec, socket_of
from remuda.machines.options import Options
from remuda.machines.provisioner.session import PreCreateError
from tests.scenarios.soaking import SOAK
from tests.unit.machines.killing import NAME, Case, Place, Places, check_creating, check_removing, create, remove
from tests.waiting import until

from .container_engine import ContainerEngine


@pytest.fixture(params=["podman", "docker"])
async def engine(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[ContainerEngine]:
    async with ContainerEngine(tmp_path / "engine.sock", request.param == "podman") as running:
        yield running


@pytest.fixture
async def place() -> AsyncIterator[Place]:
    async with Places() as places:
        yield await places.new()


def case_of(engine: ContainerEngine, **fields: str) -> Case:
    script = engine.socket.with_name("value")
    script.write_text("#!/bin/sh\necho install\n")

    async def existing() -> list[str]:
        return list(engine.containers)

    around = DriverContext(environ={"CONTAINER_HOST": f"unix://{engine.socket}"})
    given = {"image": "localhost/host:1", **fields}
    return Case(Container, lambda: Options.read("container", Container.flags, given), existing, str(script), around)


async def test_a_container_gets_what_it_shall_do_and_is_started(engine: ContainerEngine, place: Place) -> None:
    case = case_of(engine, memory="2Gi", cpus="1.5", network="odd")
    await create(place, case)
    made = engine.containers[NAME]
    assert made["status"] == "running" and made["labels"]["dev.remuda.machine"] == NAME
    files = engine.files(NAME)
    assert files["etc/systemd/system/multi-user.target.wants/remuda-userdata.service"].endswith("remuda-userdata.service")
    assert "sh /usr/local/custom_script/install.sh" in files["var/lib/remuda-userdata/run.sh"]
    kept = await place.files()
    assert files["root/.ssh/authorized_keys"] == kept["id_rsa.pub"].decode()
    assert b"RSA PRIVATE KEY" in kept["id_rsa"] and b'"IPAddress": "10.88.0.7"' in kept["config.json"]
    (found,) = await Container(case.around).owned(case.options(), "owner-1")
    assert (found.machine, found.what, found.address, found.state) == (NAME, "container", "10.88.0.7", State.RUNNING)
    assert await Container(case.around).owned(case.options(), "somebody") == []
    await remove(place, case)
    assert engine.containers == {}


@pytest.mark.soak
async def test_it_survives_every_kill(engine: ContainerEngine, monkeypatch: pytest.MonkeyPatch) -> None:
    # A new one for each run would take most of the time.
    key = rsa.generate_private_key(public_exponent=65537, key_size=2048)
    monkeypatch.setattr("remuda.machines.ssh.rsa.generate_private_key", lambda **wanted: key)
    case = case_of(engine)
    assert await check_creating(case, sampled=not SOAK) >= 12
    assert await check_removing(case) >= 3


async def test_a_container_keeps_its_address(engine: ContainerEngine) -> None:
    """Each has its own, in the upper half of the network; whoever is there already stays."""
    engine.foreign = {f"10.9.0.{number}" for number in (8, 9, 10)}
    case, driver = case_of(engine, network="lab"), Container(case_of(engine).around)

    async def keep(changes: object) -> None:
        return

    for number in range(4):
        machine = Machine(f"m-{number}", case.options(), engine.socket.parent, token=f"t-{number}")
        await driver.create(machine, keep)
        await driver.create(machine, keep)
    found = {engine.address_of(name) for name in engine.containers}
    assert found == {f"10.9.0.{number}" for number in (11, 12, 13, 14)}
    assert {each["status"] for each in engine.containers.values()} == {"running"}
    engine.networks["lab"] = "10.8.0.0/24"
    engine.foreign = {f"10.8.0.{number}" for number in range(256)}
    with pytest.raises(DriverError, match="already allocated"):
        await driver.create(Machine("m-5", case.options(), engine.socket.parent, token="t-5"), keep)


async def test_podmans_own_network_and_none_of_dockers_own(engine: ContainerEngine, place: Place) -> None:
    engine.networks |= {"podman": "10.88.0.0/16", "bridge": "172.17.0.0/16"}
    await create(place, case_of(engine))
    address = engine.address_of(NAME)
    assert address.startswith("10.88.") and int(address.split(".")[2]) >= 128 if engine.podman else not address


async def test_an_image_is_pulled_when_it_is_not_there(engine: ContainerEngine, place: Place) -> None:
    with pytest.raises(PreCreateError, match="the image no/where:1 can't be pulled: no/where:1: not found") as caught:
        await create(place, case_of(engine, image="no/where:1"))
    assert (caught.value.reason, caught.value.field) == (Reason.NOT_FOUND, "image")
    await create(place, case_of(engine, image="far/host:1"))
    assert "far/host:1" in engine.images


async def test_a_server_at_a_loopback_address_is_refused_before_anything_is_made(engine: ContainerEngine, place: Place) -> None:
    case = case_of(engine)
    script = engine.socket.with_name("value")
    script.write_text(install_script(server="https://127.0.0.1:8443", ca_checksum="0" * 64, bootstrap_token="x"))
    with pytest.raises(
        PreCreateError, match=r"can't reach the server at https://127\.0\.0\.1:8443.*--listen ADDRESS:PORT"
    ) as caught:
        await create(place, case)
    assert (caught.value.reason, engine.containers) == (Reason.INVALID, {})
    script.write_text(install_script(server="https://192.0.2.7:8443", ca_checksum="0" * 64, bootstrap_token="x"))
    await create(place, case)
    assert list(engine.containers) == [NAME]


async def test_without_an_image_one_is_built_once_for_all_machines(engine: ContainerEngine) -> None:
    engine.remote.add(host_image.BASE)
    engine.building.clear()
    said: list[list[str]] = [[], [], []]

    async def keep(changes: object) -> None:
        return

    async def make(number: int) -> None:
        case = case_of(engine, image="")
        driver = Container(replace(case.around, say=said[number].append))
        machine = Machine(f"m-{number}", case.options(), engine.socket.parent, token=f"t-{number}")
        await driver.precreate(machine)
        await driver.create(machine, keep)

    async with asyncio.TaskGroup() as group:
        for number in (0, 1):
            group.create_task(make(number))
        await until(lambda: all(said[:2]))
        engine.building.set()
    await make(2)
    assert engine.builds == 1 and len(engine.containers) == 3
    first, waiting = sorted(said[:2], key=lambda lines: "waiting" in lines[0])
    assert first == [
        f"building the image {host_image.NAME} of {host_image.BASE}, once for this machine",
        f"STEP 1/4: FROM {host_image.BASE}",
        "Step 2/4 : RUN apt-get update",
        f"the image {host_image.NAME} is built",
    ]
    assert (waiting, said[2]) == ([f"the image {host_image.NAME} is being built for another machine: waiting for it"], [])


async def test_an_image_that_can_not_be_built_says_why_and_is_tried_again(engine: ContainerEngine, place: Place) -> None:
    case = case_of(engine, image="")
    with pytest.raises(
        PreCreateError, match=r"can't be built: initializing source: dial tcp: no such host\. Name an image"
    ) as caught:
        await create(place, case)
    assert (caught.value.reason, caught.value.field, caught.value.retryable) == (Reason.UNAVAILABLE, "image", True)
    engine.remote.add(host_image.BASE)
    await create(place, case)
    assert host_image.NAME in engine.images


async def test_a_foreign_container_is_left_alone(engine: ContainerEngine, place: Place) -> None:
    engine.containers[NAME] = {"spec": {}, "id": "x", "labels": {}, "status": "running"}
    with pytest.raises(PreCreateError, match=f"there is a container {NAME} already, which was not made by this driver"):
        await create(place, case_of(engine))
    machine = Machine(NAME, case_of(engine).options(), engine.socket.parent, token="t")
    driver = Container(case_of(engine).around)

    async def keep(changes: object) -> None:
        return

    await driver.remove(machine, keep)
    assert NAME in engine.containers and await driver.state(machine) is State.NOT_FOUND


@pytest.mark.parametrize(
    ("fields", "reason", "field"),
    [
        ({"memory": "much"}, Reason.INVALID, "memory"),
        ({"cpus": "-1"}, Reason.INVALID, "cpus"),
    ],
)
async def test_a_wrong_option_is_named(
    engine: ContainerEngine, place: Place, fields: dict[str, str], reason: Reason, field: str
) -> None:
    with pytest.raises(PreCreateError) as caught:
        await create(place, case_of(engine, **fields))
    assert (caught.value.reason, caught.value.field, await place.files()) == (reason, field, {})


async def test_what_the_engine_says_is_the_reason(engine: ContainerEngine, place: Place) -> None:
    engine.faults = {("POST", "/start"): (500, "crun: unknown version specified")}
    with pytest.raises(DriverError) as caught:
        await create(place, case_of(engine))
    assert str(caught.value) == "Failed: the container engine refused: crun: unknown version specified"
    # And the same machine is gone on with.
    await create(place, case_of(engine))
    assert engine.containers[NAME]["status"] == "running"


async def test_a_container_without_an_address_is_said(
    engine: ContainerEngine, place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("remuda.machines.drivers.container.driver._ADDRESS_PAUSE", 0.0)
    engine.has_address = False
    with pytest.raises(DriverError, match="no address of its own: name a network") as caught:
        await create(place, case_of(engine))
    assert caught.value.field == "network"


def test_no_engine_is_said_with_what_to_do(tmp_path: Path) -> None:
    with pytest.raises(DriverError, match=r"must begin with unix://"):
        socket_of({"CONTAINER_HOST": "tcp://10.0.0.1:2375"})
    assert socket_of({"DOCKER_HOST": "unix:///x/y.sock"}) == Path("/x/y.sock")


async def test_an_engine_that_is_off_is_unavailable(tmp_path: Path) -> None:
    driver = Container(DriverContext(environ={"CONTAINER_HOST": f"unix://{tmp_path}/no.sock"}))
    with pytest.raises(DriverError, match="can't be reached") as caught:
        await driver.owned(Options("container", Container.flags), "x")
    assert caught.value.reason is Reason.UNAVAILABLE and caught.value.retryable


def test_a_host_is_a_container_with_all_rights_and_its_own_control_group() -> None:
    wanted = ContainerSpec("m", "i", "h", labels={"a": "b"}, network="n", memory=1 << 30, cpus=1.5)
    podman, docker = libpod_spec(wanted), docker_spec(wanted)
    assert (podman["privileged"], podman["systemd"], podman["cgroupns"], podman["stop_signal"]) == (
        True,
        "false",
        {"nsmode": "private"},
        37,
    )
    assert [each["destination"] for each in podman["mounts"]] == ["/run", "/run/lock"] and "exec" in podman["mounts"][0][
        "options"
    ]
    assert {"type": "nofile", "hard": 20000, "soft": 20000} in podman["r_limits"]
    assert (podman["Networks"], podman["resource_limits"]["cpu"]["quota"]) == ({"n": {}}, 150000)
    placed = replace(wanted, address="10.9.0.9")
    assert libpod_spec(placed)["Networks"] == {"n": {"static_ips": ["10.9.0.9"]}}
    assert docker_spec(placed)["NetworkingConfig"] == {"EndpointsConfig": {"n": {"IPAMConfig": {"IPv4Address": "10.9.0.9"}}}}
    host = docker["HostConfig"]
    assert (host["Privileged"], host["CgroupnsMode"], docker["StopSignal"], host["NanoCpus"]) == (
        True,
        "private",
        "SIGRTMIN+3",
        1_500_000_000,
    )


def run(script: str, directory: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(["sh"], input=script, cwd=directory, capture_output=True, text=True, timeout=60, check=False)


def test_user_data_is_done_as_cloud_init_would(tmp_path: Path) -> None:
    packed = base64.b64encode(gzip.compress(b"echo packed >>out\n")).decode()
    text = f"""#cloud-config
users: [default]
write_files:
- path: {tmp_path}/a/b
  content: "it's $HOME\\n"
  permissions: '0640'
- {{path: {tmp_path}/s.sh, content: {packed}, encoding: gzip+b64, permissions: 0600}}
- {{path: {tmp_path}/s.sh, content: "echo more >>out\\n", append: true}}
runcmd:
- echo "one" >>out
- [sh, -c, "echo 'two three' >>out"]
- sh {tmp_path}/s.sh
"""
    done = run(firstboot.script(text), tmp_path)
    assert done.returncode == 0, done.stderr
    assert (tmp_path / "a/b").read_text() == "it's $HOME\n" and (tmp_path / "a/b").stat().st_mode & 0o777 == 0o640
    assert (tmp_path / "out").read_text() == "one\ntwo three\npacked\nmore\n"
    assert "left out, as only cloud-init knows them: users" in done.stdout


def test_a_script_is_user_data_too_and_a_failure_is_one(tmp_path: Path) -> None:
    assert firstboot.script("#!/bin/sh\necho hi\n") == "#!/bin/sh\necho hi\n"
    assert run(firstboot.script(""), tmp_path).returncode == 0
    assert run(firstboot.script("#cloud-config\nruncmd: ['exit 3', 'echo on']\n"), tmp_path).stdout == ""


@pytest.mark.parametrize(
    "text",
    [
        "[",
        "- a",
        "runcmd: x",
        "write_files: [{path: a}]",
        "write_files: [{path: /a, encoding: rot13}]",
        "write_files: [{path: /a, encoding: gzip+b64, content: x}]",
    ],
)
def test_user_data_that_is_none_is_refused(text: str) -> None:
    with pytest.raises(DriverError) as caught:
        firstboot.script(f"#cloud-config\n{text}\n")
    assert (caught.value.reason, caught.value.field) == (Reason.INVALID, "userdata")
