"""The driver digitalocean against a double of its API: what it makes, what it leaves, and what it says when it can't."""

from __future__ import annotations

import itertools
from collections.abc import AsyncIterator, Iterator
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from remuda.machines.driver import Found, State
from remuda.machines.drivers.digitalocean import DigitalOcean
from remuda.machines.drivers.digitalocean.ssh_keys import fingerprint
from remuda.machines.errors import DriverError, Reason
from remuda.machines.options import Options
from remuda.machines.ssh import ensure_key
from tests.unit.machines.killing import Case, Places, check_creating, check_removing, create, remove

from ..conftest import SOAK
from .ocean import TOKEN, Ocean, refused
from .rig import OWNER, Answer, Fault, Held, Kill, Way, surroundings, survives

pytestmark = pytest.mark.story

KEY: dict[str, bytes] = {}
MAKE, LOOK = "POST /v2/droplets", "GET /v2/droplets/ID"


@dataclass
class Bench:
    ocean: Ocean
    driver: DigitalOcean
    way: Way
    directory: Path
    said: list[str]
    made: list[Held] = field(default_factory=list)
    numbers: Iterator[int] = field(default_factory=itertools.count)

    def options(self, **given: object) -> Options:
        named = {f"digitalocean-{name.replace('_', '-')}": value for name, value in {"access-token": TOKEN, **given}.items()}
        return Options.read("digitalocean", self.driver.flags, named)

    def held(self, **given: object) -> Held:
        number = next(self.numbers)
        held = Held(f"pool1-{number}", self.options(**given), self.directory / f"{number}", self.way, f"token-{number}")
        held.directory.mkdir(mode=0o700)
        # To make one takes longer than all the rest.
        (held.directory / "id_rsa").write_bytes(KEY["pem"])
        self.made.append(held)
        return held

    async def create(self, **given: object) -> Held:
        held = self.held(**given)
        await held.create(self.driver)
        return held


@pytest.fixture(scope="module", autouse=True)
def key(tmp_path_factory: pytest.TempPathFactory) -> None:
    directory = tmp_path_factory.mktemp("key")
    KEY["public"] = ensure_key(directory).encode()
    KEY["pem"] = (directory / "id_rsa").read_bytes()


@pytest.fixture
async def bench(tmp_path: Path) -> AsyncIterator[Bench]:
    ocean = Ocean()
    async with ocean.open():
        around, said = surroundings(DIGITALOCEAN_API_URL=ocean.way.url)
        driver = DigitalOcean(around)
        bench = Bench(ocean, driver, ocean.way, tmp_path, said)
        yield bench
        bench.way.faults.clear()
        bench.way.arm(None)
        for held in bench.made:
            await held.remove(driver)
        await driver.aclose()
    # Whatever a test does: when its machines are gone, so is everything else of theirs.
    assert ocean.left() == {}


# What is made


async def test_without_options_it_is_a_small_ubuntu_with_a_key_of_its_own(bench: Bench) -> None:
    held = await bench.create()
    (droplet,) = bench.ocean.droplets.values()
    (key,) = bench.ocean.keys.values()
    assert droplet["_asked"] == {
        "name": held.name,
        "region": "nyc3",
        "size": "s-1vcpu-1gb",
        "image": "ubuntu-20-04-x64",
        "ssh_keys": [key["id"]],
        "backups": False,
        "ipv6": False,
        "private_networking": False,
        "monitoring": False,
        "tags": [f"remuda:owner:{OWNER}", f"remuda:token:{held.token}"],
    }
    assert key["public_key"] == (held.directory / "id_rsa.pub").read_text().strip()
    assert held.state["DropletID"] == droplet["id"]
    assert held.state["SSHKeyID"] == key["id"]
    assert held.state["IPAddress"] == droplet["networks"]["v4"][0]["ip_address"]
    assert (held.state["SSHUser"], held.state["SSHPort"]) == ("root", 22)
    assert await bench.driver.state(held.machine()[0]) is State.RUNNING


async def test_options_reach_the_droplet(bench: Bench, tmp_path: Path) -> None:
    userdata = tmp_path / "userdata"
    userdata.write_text("#cloud-config\nhostname: ä\n")
    held = await bench.create(
        region="fra1",
        image="4711",
        ipv6=True,
        private_networking=True,
        backups=True,
        monitoring=True,
        tags="blue, team:a",
        userdata=str(userdata),
        ssh_user="core",
        ssh_port=2222,
    )
    (droplet,) = bench.ocean.droplets.values()
    asked = droplet["_asked"]
    assert (asked["region"], asked["image"], asked["user_data"]) == ("fra1", 4711, userdata.read_text())
    assert asked["ipv6"] and asked["private_networking"] and asked["backups"] and asked["monitoring"]
    assert asked["tags"][:2] == ["blue", "team:a"]
    number = droplet["id"] % 250
    assert held.state["IPAddress"] == f"192.0.2.{number}"
    assert held.state["PrivateIPAddress"] == f"10.128.0.{number}"
    assert held.state["IPv6Address"] == f"2001:db8::{number:x}"
    assert (held.state["SSHUser"], held.state["SSHPort"]) == ("core", 2222)
    bench.ocean.tags -= {"blue", "team:a"}


async def test_a_key_that_a_person_named_is_used_and_left(bench: Bench, tmp_path: Path) -> None:
    theirs = tmp_path / "theirs"
    theirs.write_bytes(KEY["pem"])
    public = KEY["public"].decode()
    bench.ocean.keys[7] = {"id": 7, "fingerprint": fingerprint(public), "name": "theirs", "public_key": public}
    held = bench.held(ssh_key_fingerprint=fingerprint(public), ssh_key_path=str(theirs))
    (held.directory / "id_rsa").unlink()
    await held.create(bench.driver)
    assert (held.directory / "id_rsa").read_bytes() == KEY["pem"]
    assert (held.directory / "id_rsa").stat().st_mode & 0o777 == 0o600
    assert held.state["SSHKeyID"] == 7
    await held.remove(bench.driver)
    assert bench.ocean.left() == {"keys": ["theirs"]}
    del bench.ocean.keys[7]


async def test_addresses_are_waited_for(bench: Bench) -> None:
    bench.ocean.starting = 8
    held = await bench.create()
    assert held.state["IPAddress"].startswith("192.0.2.")


# What is said before anything is made


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ({"region": "mars1"}, (Reason.NOT_FOUND, "region")),
        ({"region": "sfo1"}, (Reason.OUT_OF_CAPACITY, "region")),
        ({"region": "fra1", "size": "s-2vcpu-2gb"}, (Reason.INVALID, "size")),
        ({"image": "windows"}, (Reason.NOT_FOUND, "image")),
        ({"tags": "not ok"}, (Reason.INVALID, "tags")),
        ({"userdata": "/nowhere"}, (Reason.INVALID, "userdata")),
        ({"ssh_key_path": "/nowhere"}, (Reason.INVALID, "sshKeyFingerprint")),
        ({"access_token": ""}, (Reason.AUTH_FAILED, "accessToken")),
        ({"access_token": "wrong"}, (Reason.AUTH_FAILED, "accessToken")),
    ],
    ids=lambda value: "-".join(value) if isinstance(value, dict) else "",
)
async def test_what_would_go_wrong_later_is_said_first(
    bench: Bench, given: dict[str, object], expected: tuple[Reason, str]
) -> None:
    with pytest.raises(DriverError) as caught:
        await bench.driver.precreate(bench.held(**given).machine()[0])
    assert (caught.value.reason, caught.value.field) == expected
    bench.made.clear()
    assert bench.ocean.left() == {}


async def test_what_would_go_right_changes_nothing(bench: Bench) -> None:
    await bench.driver.precreate(bench.held().machine()[0])
    assert {call.split()[0] for call in bench.way.calls} == {"GET"}


# What DigitalOcean refuses


async def test_a_limit_is_said_as_a_limit_and_leaves_nothing(bench: Bench) -> None:
    bench.ocean.limit = 0
    held = bench.held()
    with pytest.raises(DriverError, match="will exceed your droplet limit") as caught:
        await held.create(bench.driver)
    assert caught.value.reason is Reason.QUOTA_EXCEEDED
    assert bench.way.calls.count(MAKE) == 1
    await held.remove(bench.driver)
    assert bench.ocean.left() == {}


@pytest.mark.parametrize(
    ("status", "message", "expected"),
    [
        (401, "Unable to authenticate you", (Reason.AUTH_FAILED, "accessToken")),
        (403, "You are not authorized to perform this operation", (Reason.PERMISSION_DENIED, "accessToken")),
        (422, "Size is not available in this region.", (Reason.INVALID, "size")),
        (422, "Creating droplets is currently unavailable in nyc3", (Reason.OUT_OF_CAPACITY, "")),
    ],
)
async def test_a_refusal_is_said_with_its_reason(bench: Bench, status: int, message: str, expected: tuple[Reason, str]) -> None:
    bench.way.faults.append(Fault(MAKE, lambda: refused(status, "no", message)))
    with pytest.raises(DriverError) as caught:
        await bench.held().create(bench.driver)
    assert (caught.value.reason, caught.value.field) == expected
    assert message.rstrip(".") in caught.value.message


# Calls that are not answered at once


def throttled() -> Answer:
    return refused(429, "too_many_requests", "API Rate limit exceeded.", {"Retry-After": "17"})


async def test_a_call_too_many_is_made_again_after_the_pause_that_was_asked_for(bench: Bench) -> None:
    calls = ("POST /v2/account/keys", MAKE, LOOK)
    bench.way.faults += [Fault(call, throttled, times=2) for call in calls]
    before = bench.driver.around.clock.monotonic()
    await bench.create()
    assert bench.way.calls.count(MAKE) == 3
    assert len(bench.ocean.droplets) == 1
    assert bench.driver.around.clock.monotonic() - before >= len(calls) * 2 * 17


async def test_calls_too_many_for_too_long_are_said_so(bench: Bench) -> None:
    bench.way.faults.append(Fault(MAKE, throttled, times=-1))
    with pytest.raises(DriverError) as caught:
        await bench.held().create(bench.driver)
    assert (caught.value.reason, caught.value.retryable) == (Reason.THROTTLED, True)


async def test_a_droplet_that_is_busy_is_removed_when_it_is_not(bench: Bench) -> None:
    held = await bench.create()
    busy = lambda: refused(422, "unprocessable_entity", "Droplet already has a pending event.")  # noqa: E731
    bench.way.faults.append(Fault("DELETE /v2/droplets/ID", busy, times=2))
    await held.remove(bench.driver)
    assert bench.ocean.left() == {}


@pytest.mark.parametrize("carried_out", [False, True])
async def test_of_calls_that_are_cut_nothing_is_made_twice(bench: Bench, carried_out: bool) -> None:
    bench.ocean.hidden, bench.ocean.going = 4, 3
    changing = ("POST /v2/account/keys", MAKE)
    bench.way.faults += [Fault(call, carried_out=carried_out) for call in changing]
    held = await bench.create()
    assert list(bench.ocean.droplets) == [held.state["DropletID"]]
    assert list(bench.ocean.keys) == [held.state["SSHKeyID"]]
    removing = ("DELETE /v2/droplets/ID", "DELETE /v2/account/keys/ID", "DELETE /v2/tags/ID")
    bench.way.faults += [Fault(call, carried_out=carried_out) for call in removing]
    await held.remove(bench.driver)
    assert bench.ocean.left() == {}


async def test_an_error_of_the_server_may_hide_a_droplet(bench: Bench) -> None:
    """It says that it failed, and made one all the same; and it shows it late."""
    bench.ocean.hidden = 6
    bench.way.faults.append(Fault(MAKE, lambda: refused(500, "server_error", "Server Error"), carried_out=True))
    held = await bench.create()
    assert bench.way.calls.count(MAKE) == 1
    assert list(bench.ocean.droplets) == [held.state["DropletID"]]


async def test_a_droplet_that_shows_after_another_was_asked_for_goes(bench: Bench) -> None:
    """Longer than anybody waits: then there are two for a while, and one in the end."""
    bench.ocean.hidden = 100
    bench.way.faults.append(Fault(MAKE, carried_out=True))
    held = await bench.create()
    assert bench.way.calls.count(MAKE) == 2
    # However many looks there were before: now it shows.
    for droplet in bench.ocean.droplets.values():
        droplet["_hidden"] = 0
    await held.create(bench.driver)
    living = [number for number, droplet in bench.ocean.droplets.items() if droplet["_going"] is None]
    assert living == [held.state["DropletID"]]
    for number in list(bench.ocean.droplets):
        if number not in living:
            del bench.ocean.droplets[number]


async def test_a_provider_that_never_answers_is_given_up(bench: Bench) -> None:
    bench.way.faults.append(Fault(MAKE, times=-1))
    with pytest.raises(DriverError) as caught:
        await bench.held().create(bench.driver)
    assert caught.value.reason is Reason.UNAVAILABLE
    assert bench.way.calls.count(MAKE) == 3


async def test_a_droplet_whose_creation_was_not_answered_is_removed_later(bench: Bench) -> None:
    bench.ocean.hidden = 6
    held = bench.held()
    bench.way.arm(Kill(6, after=True))
    assert not await survives(held.create(bench.driver), bench.way)
    bench.way.arm(None)
    assert bench.way.calls[-1] == MAKE
    assert len(bench.ocean.droplets) == 1 and "DropletID" not in held.state
    await held.remove(bench.driver)
    assert bench.ocean.left() == {}


# Killed at every step


async def killed_creating(bench: Bench, step: int, after: bool) -> Held | None:
    """A machine whose creation was killed at this step; None when there are not so many."""
    held = bench.held()
    bench.way.arm(Kill(step, after))
    survived = await survives(held.create(bench.driver), bench.way)
    bench.way.arm(None)
    return None if survived else held


async def forget(bench: Bench, held: Held) -> None:
    await held.remove(bench.driver)
    bench.made.remove(held)


BOTH = pytest.mark.parametrize("after", [False, True], ids=["before", "after"])


@BOTH
async def test_a_creation_that_is_killed_continues_and_makes_one_machine(bench: Bench, after: bool) -> None:
    bench.ocean.hidden, bench.ocean.starting, bench.ocean.going = 2, 1, 1
    step = 0
    while (held := await killed_creating(bench, step, after)) is not None:
        await held.create(bench.driver)
        assert list(bench.ocean.droplets) == [held.state["DropletID"]], step
        assert list(bench.ocean.keys) == [held.state["SSHKeyID"]], step
        await forget(bench, held)
        assert bench.ocean.left() == {}, step
        step += 1
    assert step >= 10


@BOTH
async def test_of_a_machine_whose_creation_was_killed_removal_leaves_nothing(bench: Bench, after: bool) -> None:
    bench.ocean.hidden, bench.ocean.starting, bench.ocean.going = 2, 1, 1
    step = 0
    while (held := await killed_creating(bench, step, after)) is not None:
        await forget(bench, held)
        assert bench.ocean.left() == {}, step
        step += 1
    assert step >= 10


@BOTH
async def test_a_removal_that_is_killed_continues_until_nothing_is_left(bench: Bench, after: bool) -> None:
    bench.ocean.going = 1
    step, done = 0, False
    while not done:
        held = await bench.create()
        bench.way.arm(Kill(step, after))
        done = await survives(held.remove(bench.driver), bench.way)
        bench.way.arm(None)
        await forget(bench, held)
        assert bench.ocean.left() == {}, step
        step += 1
    assert step >= 6


@pytest.fixture
def case(bench: Bench, tmp_path: Path) -> Case:
    script = tmp_path / "script"
    script.write_text("#!/bin/sh\necho install\n")

    async def existing() -> list[str]:
        return [droplet["name"] for droplet in bench.ocean.droplets.values() if droplet["_going"] is None]

    return Case(DigitalOcean, lambda: bench.options(size="s-2vcpu-2gb"), existing, str(script), bench.driver.around)


async def test_the_whole_program_may_be_killed_at_every_moment(bench: Bench, case: Case) -> None:
    await check_creating(case, sampled=not SOAK)
    await check_removing(case)
    assert bench.ocean.left() == {}


async def test_the_bootstrap_script_is_in_the_user_data(bench: Bench, case: Case) -> None:
    async with Places() as places:
        place = await places.new()
        await create(place, case)
        (droplet,) = bench.ocean.droplets.values()
        assert "sh /usr/local/custom_script/install.sh" in droplet["_asked"]["user_data"]
        assert TOKEN.encode() not in b"".join((await place.files()).values())
        await remove(place, case)


# Removal, orphans, credentials


async def test_what_is_gone_already_is_no_error(bench: Bench) -> None:
    held = await bench.create()
    bench.ocean.droplets.clear()
    bench.ocean.keys.clear()
    assert await bench.driver.state(held.machine()[0]) is State.NOT_FOUND
    await held.remove(bench.driver)
    await held.remove(bench.driver)


async def test_what_bears_the_owners_tag_is_found_on_every_page(bench: Bench) -> None:
    made = []
    for _ in range(3):
        held = bench.held()
        # Keys that differ, as they do elsewhere.
        (held.directory / "id_rsa").unlink()
        await held.create(bench.driver)
        made.append(held)
    other = bench.held()
    other.owner = "somebody-else"
    (other.directory / "id_rsa").unlink()
    await other.create(bench.driver)
    found = await bench.driver.owned(bench.options(), OWNER)
    assert [(one.what, one.machine, one.token) for one in found] == [
        (what, held.name, held.token) for what in ("droplet", "SSH key") for held in made
    ]
    assert found[0].id == str(made[0].state["DropletID"]) and found[0].address == made[0].state["IPAddress"]
    assert found[3] == Found(str(made[0].state["SSHKeyID"]), made[0].name, made[0].token, "SSH key")


async def test_a_machine_of_rancher_machine_is_removed_with_its_key(bench: Bench, tmp_path: Path) -> None:
    held = await bench.create()
    (droplet,) = bench.ocean.droplets.values()
    droplet["tags"] = []
    bench.ocean.tags.clear()
    state = {"DropletID": droplet["id"], "SSHKeyID": held.state["SSHKeyID"], "SSHKeyFingerprint": "", "AccessToken": TOKEN}
    restored = bench.driver.restored(state)
    options = Options.read(
        "digitalocean", bench.driver.flags, {f"digitalocean-{name}": value for name, value in restored.items()}
    )
    bench.made.clear()
    await Held("theirs", options, tmp_path / "theirs", bench.way, "", "", state).remove(bench.driver)
    assert bench.ocean.left() == {}


async def test_no_secret_is_kept_or_said(bench: Bench) -> None:
    held = await bench.create()
    with pytest.raises(DriverError) as caught:
        await bench.driver.verify(bench.options(access_token="hush-hush-hush"))
    assert TOKEN not in str(held.keeps) + str(bench.said) + str(held.options.kept())
    assert "hush" not in str(caught.value)


async def test_a_token_is_verified_with_one_call(bench: Bench) -> None:
    await bench.driver.verify(bench.options())
    assert bench.way.calls == ["GET /v2/account"]
    with pytest.raises(DriverError) as caught:
        await bench.driver.verify(bench.options(access_token="wrong"))
    assert (caught.value.reason, caught.value.field) == (Reason.AUTH_FAILED, "accessToken")
    bench.way.faults.append(Fault("GET /v2/account", lambda: refused(403, "forbidden", "not in scope")))
    await bench.driver.verify(bench.options())
    bench.way.faults.append(Fault("GET /v2/account", lambda: refused(503, "server_error", "Server Error")))
    with pytest.raises(DriverError) as caught:
        await bench.driver.verify(bench.options())
    assert caught.value.reason is Reason.UNAVAILABLE
