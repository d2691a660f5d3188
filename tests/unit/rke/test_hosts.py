"""Hosts that come with the token of an install script: one becomes the machine, and gets its plan and nothing else."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable

import pytest

from remuda.api import cluster_x_k8s_io as capi
from remuda.kube.errors import ApiError
from remuda.kube.objects import labels_of
from remuda.rke.accounts import shown
from remuda.rke.assembly import machine_controllers
from remuda.rke.hosts import Hosts, Refused, UnknownToken
from remuda.rke.names import MACHINE_ID, SERVICE_ACCOUNTS, bootstrap_name, plan_name
from remuda.runtime import Reconciler
from tests.unit.management.clusters.kit import Parts

from .kit import FLEET, Machines, machines

ONE, OTHER = "a" * 63, "b" * 63


def controllers(parts: Parts, made: Machines) -> Iterable[Reconciler]:
    return machine_controllers(parts.manager, made.workloads, lambda bootstrap, token: token.encode())


async def waiting(made: Machines, *names: str) -> Hosts:
    """Machines that wait for their hosts."""
    await made.demo()
    for name in names:
        await made.machine(name)
    await made.settle(5)
    parts = made.lives[-1]
    return Hosts(made.client, parts.manager.informers, made.clock)


async def token(made: Machines, name: str) -> str:
    """What the host finds in its script."""
    return await made.secret_text(bootstrap_name(name), FLEET, "value")


async def test_a_host_becomes_its_machine_and_gets_its_plan() -> None:
    async with machines(controllers) as made:
        hosts = await waiting(made, "m1", "m2")
        machine = await hosts.by_bootstrap_token(await token(made, "m1"), ONE)
        assert machine["metadata"]["name"] == "m1" and labels_of(machine)[MACHINE_ID] == ONE
        assert await hosts.plan_access(machine) is None, "its token is being made"
        await made.settle(1)
        access = await hosts.plan_access(machine)
        assert access is not None and (access.namespace, access.secret_name) == (FLEET, plan_name("m1"))
        assert access.token and access.token not in repr(access)
        assert MACHINE_ID not in labels_of(await made.get(capi.MACHINES, "m2", FLEET))


async def test_a_host_that_did_not_hear_asks_again_for_a_short_while() -> None:
    async with machines(controllers) as made:
        hosts = await waiting(made, "m1")
        text = await token(made, "m1")
        await hosts.by_bootstrap_token(text, ONE)
        await made.settle(20)
        await hosts.by_bootstrap_token(text, ONE)
        await made.settle(15)
        with pytest.raises(Refused, match="no longer good"):
            await hosts.by_bootstrap_token(text, ONE)


async def test_another_host_with_the_same_token_is_refused() -> None:
    async with machines(controllers) as made:
        hosts = await waiting(made, "m1")
        text = await token(made, "m1")
        await hosts.by_bootstrap_token(text, ONE)
        with pytest.raises(Refused, match="another host"):
            await hosts.by_bootstrap_token(text, OTHER)


async def test_of_two_at_the_same_time_one_becomes_the_machine() -> None:
    async with machines(controllers) as made:
        hosts = await waiting(made, "m1")
        text = await token(made, "m1")
        both = (hosts.by_bootstrap_token(text, each) for each in (ONE, OTHER))
        came = await asyncio.gather(*both, return_exceptions=True)
        let_in = [each for each in came if isinstance(each, dict)]
        assert len(let_in) == 1 and all(isinstance(each, dict | Refused | ApiError) for each in came)
        await made.settle(1)
        assert labels_of(await made.get(capi.MACHINES, "m1", FLEET))[MACHINE_ID] == labels_of(let_in[0])[MACHINE_ID]


async def test_a_token_that_nobody_made_opens_nothing() -> None:
    async with machines(controllers) as made:
        hosts = await waiting(made, "m1")
        for text in ("", "x", "token"):
            with pytest.raises(UnknownToken):
                await hosts.by_bootstrap_token(text, ONE)


async def test_the_plans_own_token_is_none_of_an_install_script() -> None:
    async with machines(controllers) as made:
        hosts = await waiting(made, "m1")
        machine = await hosts.by_bootstrap_token(await token(made, "m1"), ONE)
        await hosts.plan_access(machine)
        await made.settle(1)
        access = await hosts.plan_access(machine)
        assert access is not None
        with pytest.raises(UnknownToken):
            await hosts.by_bootstrap_token(shown(access.token), OTHER)


async def test_nobody_gets_the_plan_of_a_machine_that_is_not_theirs() -> None:
    async with machines(controllers) as made:
        hosts = await waiting(made, "m1", "m2")
        machine = await hosts.by_bootstrap_token(await token(made, "m1"), ONE)
        with pytest.raises(Refused, match="not the machine's"):
            await hosts.plan_access({**machine, "spec": {"bootstrap": {"configRef": {"name": "m2"}}}})
        assert await made.find(SERVICE_ACCOUNTS, plan_name("m2"), FLEET) is not None


async def test_the_token_of_a_machine_that_is_gone_opens_nothing() -> None:
    async with machines(controllers) as made:
        hosts = await waiting(made, "m1")
        text = await token(made, "m1")
        await made.patch(capi.MACHINES, "m1", {"metadata": {"finalizers": ["machine.cluster.x-k8s.io"]}}, FLEET)
        await made.delete(capi.MACHINES, "m1", FLEET)
        with pytest.raises(Refused):
            await hosts.by_bootstrap_token(text, ONE)
        await made.settle(3)
        with pytest.raises(UnknownToken):
            await hosts.by_bootstrap_token(text, ONE)
