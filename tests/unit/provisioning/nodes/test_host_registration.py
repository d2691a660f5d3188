"""Hosts that come with the token of an install script: one becomes the machine, and gets its plan and nothing else."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from typing import Any

import pytest

from remuda.api import cluster_x_k8s_io as capi
from remuda.apiserver.auth.authenticator import Credentials
from remuda.kube.builtin_resources import SERVICE_ACCOUNTS
from remuda.kube.clock import Rng
from remuda.kube.errors import ApiError
from remuda.kube.objects import labels_of
from remuda.provisioning.bootstrap.service_account_tokens import ensure_token, shown, text_of, token_secrets
from remuda.provisioning.nodes.host_registration import HostRegistrations, PlanAccess, RegistrationRefused, UnknownToken
from remuda.provisioning.well_known import MACHINE_ID, bootstrap_name, plan_name
from remuda.runtime import Informers, Reconciler
from tests.unit.access.management_api import Parts
from tests.unit.provisioning.rke_machines import FLEET, Machines, machine_controllers, machines

Obj = dict[str, Any]
ONE, OTHER = "a" * 63, "b" * 63


def controllers(parts: Parts, made: Machines) -> Iterable[Reconciler]:
    return machine_controllers(parts, made, lambda bootstrap, token: token.encode())


async def waiting(made: Machines, *names: str) -> HostRegistrations:
    """Machines that wait for their hosts."""
    await made.demo()
    for name in names:
        await made.machine(name)
    await made.settle(5)
    parts = made.lives[-1]
    return HostRegistrations(made.client, parts.manager.informers, made.clock)


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


async def access_of(made: Machines, hosts: HostRegistrations, machine: Obj) -> PlanAccess:
    while (access := await hosts.plan_access(machine)) is None:
        await made.settle(0.25)
    return access


async def act(made: Machines, access: PlanAccess) -> None:
    """What the first request of an agent does."""
    await made.server.chain.identify(Credentials(bearer=access.token))
    await made.settle(1)


async def test_a_host_that_did_not_hear_gets_the_same_answer_until_its_token_expires() -> None:
    async with machines(controllers) as made:
        hosts = await waiting(made, "m1")
        text = await token(made, "m1")
        first = await access_of(made, hosts, await hosts.by_bootstrap_token(text, ONE))
        for pause in (20, 600, 1100):
            await made.settle(pause)
            again = await access_of(made, hosts, await hosts.by_bootstrap_token(text, ONE))
            assert (again.secret_name, again.token) == (first.secret_name, first.token)
            with pytest.raises(RegistrationRefused, match="another host"):
                await hosts.by_bootstrap_token(text, OTHER)
        await made.settle(100)
        with pytest.raises(RegistrationRefused, match="has expired"):
            await hosts.by_bootstrap_token(text, ONE)


async def test_a_host_that_has_acted_comes_again_only_with_what_it_got() -> None:
    async with machines(controllers) as made:
        hosts = await waiting(made, "m1")
        text = await token(made, "m1")
        access = await access_of(made, hosts, await hosts.by_bootstrap_token(text, ONE))
        await act(made, access)
        with pytest.raises(RegistrationRefused, match="one registration"):
            await hosts.by_bootstrap_token(text, ONE)
        known = await hosts.of_plan_token(access.token)
        machine = await hosts.by_bootstrap_token(text, ONE, known)
        assert (await access_of(made, hosts, machine)).token == access.token
        with pytest.raises(RegistrationRefused, match="another host"):
            await hosts.by_bootstrap_token(text, OTHER, known)


async def test_a_plan_token_that_the_cache_has_not_seen_stays_the_hosts() -> None:
    """To choose another would end the one that the host was given."""
    async with machines(controllers) as made:
        hosts = await waiting(made, "m1")
        machine = await hosts.by_bootstrap_token(await token(made, "m1"), ONE)
        first = await access_of(made, hosts, machine)
        behind = token_secrets(Informers(made.client, made.clock, Rng(9)))
        account = await made.get(SERVICE_ACCOUNTS, plan_name("m1"), FLEET)
        chosen, fresh = await ensure_token(made.client, behind, account)
        assert (text_of(chosen), fresh) == (first.token, False)


async def test_another_host_with_the_same_token_is_refused() -> None:
    async with machines(controllers) as made:
        hosts = await waiting(made, "m1")
        text = await token(made, "m1")
        await hosts.by_bootstrap_token(text, ONE)
        with pytest.raises(RegistrationRefused, match="another host"):
            await hosts.by_bootstrap_token(text, OTHER)


async def test_of_two_at_the_same_time_one_becomes_the_machine() -> None:
    async with machines(controllers) as made:
        hosts = await waiting(made, "m1")
        text = await token(made, "m1")
        both = (hosts.by_bootstrap_token(text, each) for each in (ONE, OTHER))
        came = await asyncio.gather(*both, return_exceptions=True)
        let_in = [each for each in came if isinstance(each, dict)]
        assert len(let_in) == 1 and all(isinstance(each, dict | RegistrationRefused | ApiError) for each in came)
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
        with pytest.raises(RegistrationRefused, match="not the machine's"):
            await hosts.plan_access({**machine, "spec": {"bootstrap": {"configRef": {"name": "m2"}}}})
        assert await made.find(SERVICE_ACCOUNTS, plan_name("m2"), FLEET) is not None


async def test_the_token_of_a_machine_that_is_gone_opens_nothing() -> None:
    async with machines(controllers) as made:
        hosts = await waiting(made, "m1")
        text = await token(made, "m1")
        await made.patch(capi.MACHINES, "m1", {"metadata": {"finalizers": ["machine.cluster.x-k8s.io"]}}, FLEET)
        await made.delete(capi.MACHINES, "m1", FLEET)
        with pytest.raises(RegistrationRefused):
            await hosts.by_bootstrap_token(text, ONE)
        await made.settle(3)
        with pytest.raises(UnknownToken):
            await hosts.by_bootstrap_token(text, ONE)
