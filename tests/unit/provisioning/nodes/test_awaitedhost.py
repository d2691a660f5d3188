"""Hosts that machines wait for: what is told of them, when the token of a script ends, and which machines are replaced."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import pytest

from remuda.api import cluster_x_k8s_io as capi
from remuda.apiserver.auth.authenticator import Credentials
from remuda.kube.builtin_resources import SECRETS
from remuda.kube.objects import annotations_of, is_being_deleted, name_of
from remuda.kube.owners import reference
from remuda.kube.waits import Actor, Code, Wait
from remuda.provisioning.bootstrap.service_account_tokens import text_of
from remuda.provisioning.nodes.awaitedhost import GRACE_SECONDS, HostState, is_turn
from remuda.provisioning.nodes.host_registration import HostRegistrations, PlanAccess, RegistrationRefused
from remuda.provisioning.well_known import ACCOUNT_LABEL, TOKEN_INVALIDATED, bootstrap_name, plan_name
from remuda.runtime import Reconciler
from tests.unit.access.management_api import Parts
from tests.unit.provisioning.rke_machines import DEMO, FLEET, Machines, machine_controllers, machines

Obj = dict[str, Any]
ONE, OTHER = "a" * 63, "b" * 63
LONG = 1800.0


def controllers(parts: Parts, made: Machines) -> Iterable[Reconciler]:
    return machine_controllers(parts, made, lambda bootstrap, token: token.encode())


async def pool(made: Machines, *names: str, **annotations: str) -> HostRegistrations:
    """Machines of a MachineSet that wait for their hosts."""
    await made.demo()
    template = {"spec": {"clusterName": DEMO, "bootstrap": {}, "infrastructureRef": {"apiGroup": "x", "kind": "X", "name": "x"}}}
    owner = await made.create(
        capi.MACHINE_SETS,
        {
            "apiVersion": capi.API_VERSION,
            "kind": "MachineSet",
            "metadata": {"name": "pool", "namespace": FLEET},
            "spec": {
                "clusterName": DEMO,
                "replicas": len(names),
                "selector": {"matchLabels": {"pool": "pool"}},
                "template": template,
            },
        },
    )
    for name in names:
        await made.machine(name)
        meta = {"ownerReferences": [reference(owner, controller=True)], "finalizers": ["x/y"], "annotations": annotations}
        await made.patch(capi.MACHINES, name, {"metadata": meta}, FLEET)
    await made.settle(5)
    return HostRegistrations(made.client, made.lives[-1].manager.informers, made.clock)


async def token(made: Machines, name: str) -> str:
    return await made.secret_text(bootstrap_name(name), FLEET, "value")


async def let_in(made: Machines, hosts: HostRegistrations, name: str, machine_id: str = ONE) -> PlanAccess:
    machine = await hosts.by_bootstrap_token(await token(made, name), machine_id)
    while (access := await hosts.plan_access(machine)) is None:
        await made.settle(0.25)
    return access


async def act(made: Machines, access: PlanAccess) -> None:
    await made.server.chain.identify(Credentials(bearer=access.token))
    await made.settle(1)


def told(made: Machines, name: str) -> list[Wait]:
    waits = made.lives[-1].manager.waits()
    return [wait for wait in waits if wait.code is Code.CHECK_IN and wait.subject.name == name]


async def going(made: Machines) -> list[str]:
    return [name_of(each) for each in await made.list(capi.MACHINES, FLEET) if is_being_deleted(each)]


async def script_secret(made: Machines, name: str) -> Obj:
    listed = await made.list(SECRETS, FLEET)
    (found,) = [each for each in listed if (each["metadata"].get("labels") or {}).get(ACCOUNT_LABEL) == bootstrap_name(name)]
    return found


# --- the token ends -------------------------------------------------------------------------------------------------------


async def test_the_token_of_a_script_is_marked_when_its_host_acts_and_not_before() -> None:
    async with machines(controllers) as made:
        hosts = await pool(made, "m1")
        access = await let_in(made, hosts, "m1")
        await made.settle(600)
        assert TOKEN_INVALIDATED not in annotations_of(await script_secret(made, "m1"))
        await act(made, access)
        assert annotations_of(await script_secret(made, "m1"))[TOKEN_INVALIDATED] == "true"
        assert told(made, "m1") == []


async def test_the_token_of_a_script_is_marked_when_an_agent_that_was_there_before_answers() -> None:
    """A server that did not write down the use of tokens leaves what the agent wrote."""
    async with machines(controllers) as made:
        hosts = await pool(made, "m1")
        await let_in(made, hosts, "m1")
        await made.answer("m1", plan_revision="1")
        await made.settle(1)
        assert annotations_of(await script_secret(made, "m1"))[TOKEN_INVALIDATED] == "true"


# --- what is told ---------------------------------------------------------------------------------------------------------


async def test_a_host_that_does_not_come_is_told_of_by_the_name_of_its_machine() -> None:
    async with machines(controllers) as made:
        await pool(made, "m1")
        await made.settle(500)
        assert told(made, "m1") == []
        await made.settle(200)
        (wait,) = told(made, "m1")
        assert (wait.code, wait.actor) == (Code.CHECK_IN, Actor.PROVIDER) and wait.since
        assert wait.evidence.startswith("no host has come with the token in its install script, which expires at ")


async def test_a_host_that_was_let_in_and_is_silent_is_told_of() -> None:
    async with machines(controllers) as made:
        hosts = await pool(made, "m1")
        access = await let_in(made, hosts, "m1")
        await made.settle(120)
        (wait,) = told(made, "m1")
        assert (wait.code, wait.actor) == (Code.CHECK_IN, Actor.MACHINE) and "has not used it yet" in wait.evidence
        await act(made, access)
        assert told(made, "m1") == []


async def test_a_host_that_is_refused_is_told_of_with_how_often_since_when_and_why() -> None:
    async with machines(controllers) as made:
        hosts = await pool(made, "m1")
        await act(made, await let_in(made, hosts, "m1"))
        writes = 0
        version = (await script_secret(made, "m1"))["metadata"]["resourceVersion"]
        for _ in range(60):
            with pytest.raises(RegistrationRefused):
                await hosts.by_bootstrap_token(await token(made, "m1"), OTHER)
            await made.settle(5)
            now = (await script_secret(made, "m1"))["metadata"]["resourceVersion"]
            writes += now != version
            version = now
        assert writes == 5, "one a minute is written"
        (wait,) = told(made, "m1")
        assert (wait.code, wait.actor) == (Code.CHECK_IN, Actor.USER) and wait.since
        assert wait.evidence.startswith(f"host {'b' * 12} was refused 49 times since {wait.since}: the token was for one")
        await made.settle(1200)
        assert told(made, "m1") == [], "it is no news any more"


# --- replaced -------------------------------------------------------------------------------------------------------------


async def test_a_machine_of_a_pool_that_no_host_can_become_any_more_is_replaced() -> None:
    async with machines(controllers) as made:
        hosts = await pool(made, "m1")
        await made.settle(LONG)
        with pytest.raises(RegistrationRefused, match="expired"):
            await hosts.by_bootstrap_token(await token(made, "m1"), ONE)
        await made.settle(30)
        (wait,) = told(made, "m1")
        assert wait.actor is Actor.REMUDA and f"host {'a' * 12} was refused once" in wait.evidence
        assert wait.evidence.endswith("the token has expired; the machine is to be replaced")
        await made.settle(GRACE_SECONDS - 60)
        assert await going(made) == []
        await made.settle(60)
        assert await going(made) == ["m1"]


async def test_a_machine_whose_host_never_used_what_it_got_is_replaced_too() -> None:
    async with machines(controllers) as made:
        await let_in(made, await pool(made, "m1"), "m1")
        await made.settle(LONG + GRACE_SECONDS + 60)
        assert await going(made) == ["m1"]


async def test_a_machine_whose_host_is_at_work_stays() -> None:
    async with machines(controllers) as made:
        hosts = await pool(made, "m1", "m2", "m3")
        await act(made, await let_in(made, hosts, "m1"))
        await made.answer("m2", plan_revision="1")
        await made.patch(capi.MACHINES, "m3", {"status": {"nodeRef": {"name": "web-1"}}}, FLEET, "status")
        await made.settle(7200)
        assert await going(made) == []


async def test_a_host_that_acts_at_the_last_moment_keeps_its_machine() -> None:
    async with machines(controllers) as made:
        access = await let_in(made, await pool(made, "m1"), "m1")
        await made.settle(LONG + GRACE_SECONDS - 30)
        await act(made, access)
        await made.settle(7200)
        assert await going(made) == []


async def test_a_new_leader_gives_hosts_time_to_show_that_they_are_there() -> None:
    async with machines(controllers, begin=False) as made:
        made.begin()
        await made.settle()
        access = await let_in(made, await pool(made, "m1"), "m1")
        await made.end()
        await made.settle(7200)
        made.begin()
        await made.settle(GRACE_SECONDS - 30)
        assert await going(made) == []
        await act(made, access)
        await made.settle(7200)
        assert await going(made) == []


async def test_a_host_that_was_registered_by_hand_is_never_replaced() -> None:
    async with machines(controllers) as made:
        await made.demo()
        await made.machine("m1")
        await made.patch(capi.MACHINES, "m1", {"metadata": {"finalizers": ["x/y"]}}, FLEET)
        await made.settle(7200)
        assert await going(made) == []


@pytest.mark.parametrize("mark", ["cluster.x-k8s.io/paused", "cluster.x-k8s.io/skip-remediation"])
async def test_a_machine_that_its_user_keeps_from_being_replaced_stays(mark: str) -> None:
    async with machines(controllers) as made:
        await pool(made, "m1", **{mark: "true"})
        await made.settle(7200)
        assert await going(made) == [] and told(made, "m1")


async def test_tokens_that_never_end_never_make_a_machine_go() -> None:
    async with machines(controllers) as made:
        await made.setting("system-agent-installer-token-ttl-enabled", "false")
        await pool(made, "m1")
        await made.settle(7200)
        (wait,) = told(made, "m1")
        assert await going(made) == [] and "expires never" in wait.evidence


async def test_of_a_set_one_machine_is_replaced_at_a_time_and_the_next_when_its_successor_came() -> None:
    async with machines(controllers) as made:
        hosts = await pool(made, "m1", "m2", "m3")
        await made.settle(LONG + GRACE_SECONDS + 60)
        assert await going(made) == ["m1"]
        await made.patch(capi.MACHINES, "m1", {"metadata": {"finalizers": None}}, FLEET)
        await made.settle(600)
        assert await going(made) == [], "its successor is not there yet"
        await made.machine("m4")
        owner = await made.get(capi.MACHINE_SETS, "pool", FLEET)
        meta = {"ownerReferences": [reference(owner, controller=True)], "finalizers": ["x/y"]}
        await made.patch(capi.MACHINES, "m4", {"metadata": meta}, FLEET)
        await made.settle(600)
        assert await going(made) == [], "the host of its successor may still come"
        await act(made, await let_in(made, hosts, "m4"))
        await made.settle(60)
        assert await going(made) == ["m2"]


def test_whose_turn_it_is() -> None:
    states = {"a": HostState.LOST, "c": HostState.LOST, "d": HostState.ACTED, "e": HostState.AWAITED, "f": HostState.UNKNOWN}

    def turn(name: str, others: str, replicas: int, **marks: str) -> bool:
        found: list[Obj] = [{"metadata": {"name": each, **marks}} for each in others]
        return is_turn(name, found, replicas, lambda each: states[name_of(each)])

    assert turn("b", "cd", 3) and turn("b", "cd", 1), "also while the set shrinks"
    assert not turn("b", "acd", 4), "another one comes first"
    assert not turn("b", "cde", 4) and not turn("b", "cdf", 4), "a host may still come"
    assert not turn("b", "cd", 4), "one is missing"
    assert not turn("b", "cd", 3, deletionTimestamp="x"), "one is on its way out"


async def test_the_last_look_before_a_machine_goes_is_at_the_server_itself() -> None:
    """A host whose use of its token was written down while the cache was behind keeps its machine."""
    async with machines(controllers) as made:
        access = await let_in(made, await pool(made, "m1"), "m1")
        account = plan_name("m1")
        (secret,) = [each for each in await made.list(SECRETS, FLEET) if text_of(each) == access.token]
        assert secret["metadata"]["labels"][ACCOUNT_LABEL] == account
        await made.settle(LONG + GRACE_SECONDS - 30)
        await made.patch(SECRETS, name_of(secret), {"metadata": {"labels": {"kubernetes.io/legacy-token-last-used": "x"}}}, FLEET)
        await made.settle(3600)
        assert await going(made) == []
