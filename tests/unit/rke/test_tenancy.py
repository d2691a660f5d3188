"""What hosts may do with the tokens that they have, by trying: each its own plan, and nothing else."""

from __future__ import annotations

from collections.abc import Iterable

import pytest

from remuda.api import cluster_x_k8s_io as capi
from remuda.api import rke_cattle_io as rke
from remuda.apiserver.users import User
from remuda.client.inprocess import InProcessClient
from remuda.kube.errors import ApiError
from remuda.rke.bootstrap import Bootstraps
from remuda.rke.etcdmgmt import DistributionsMembers
from remuda.rke.names import SECRETS, SERVICE_ACCOUNTS, bootstrap_name, plan_name
from remuda.runtime import Reconciler
from tests.unit.management.clusters.kit import Parts

from .kit import FLEET, Machines, machines


def controllers(parts: Parts, made: Machines) -> Iterable[Reconciler]:
    yield Bootstraps(parts.manager, lambda bootstrap, token: b"#!", DistributionsMembers(made.workloads))


def account(made: Machines, name: str) -> InProcessClient:
    """The client of who shows a token of this account."""
    groups = ("system:serviceaccounts", f"system:serviceaccounts:{FLEET}", "system:authenticated")
    return InProcessClient(made.server, user=User(f"system:serviceaccount:{FLEET}:{name}", groups=groups))


async def two(made: Machines) -> None:
    await made.demo()
    await made.machine("m1")
    await made.machine("m2")
    await made.settle(5)


async def test_a_host_reads_and_writes_its_own_plan() -> None:
    async with machines(controllers) as made:
        await two(made)
        host = account(made, plan_name("m1"))
        found = await host.get(SECRETS, plan_name("m1"), FLEET)
        await host.update(SECRETS, {**found, "data": {"plan-revision": "MQ=="}})
        listed = await host.list(SECRETS, FLEET, fields=f"metadata.name={plan_name('m1')}")
        assert [each["metadata"]["name"] for each in listed["items"]] == [plan_name("m1")]


@pytest.mark.parametrize("who", [plan_name("m1"), bootstrap_name("m1")])
async def test_it_can_do_nothing_else(who: str) -> None:
    async with machines(controllers) as made:
        await two(made)
        host = account(made, who)
        own = await made.plan("m1")
        tries = [
            host.get(SECRETS, plan_name("m2"), FLEET),
            host.get(SECRETS, bootstrap_name("m1"), FLEET),
            host.list(SECRETS, FLEET),
            host.list(SECRETS, FLEET, fields=f"metadata.name={plan_name('m2')}"),
            host.delete(SECRETS, plan_name("m1"), FLEET),
            host.patch(SECRETS, plan_name("m1"), {"data": {"a": "Yg=="}}, FLEET),
            host.create(SECRETS, {**own, "metadata": {"name": "x", "namespace": FLEET}}, FLEET),
            host.get(SERVICE_ACCOUNTS, plan_name("m2"), FLEET),
            host.get(capi.MACHINES, "m1", FLEET),
            host.list(rke.RKE_BOOTSTRAPS, FLEET),
            host.get(SECRETS, "x", "kube-system"),
        ]
        for attempt in tries:
            with pytest.raises(ApiError) as refused:
                await attempt
            assert refused.value.code == 403


async def test_the_script_opens_nothing_by_itself() -> None:
    async with machines(controllers) as made:
        await two(made)
        with pytest.raises(ApiError) as refused:
            await account(made, bootstrap_name("m1")).get(SECRETS, plan_name("m1"), FLEET)
        assert refused.value.code == 403
