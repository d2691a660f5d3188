"""The controllers of machines die after any write, any write fails, or two of them work at the same time: the end is the same."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable
from functools import partial
from typing import Any

import pytest

from remuda.api import cluster_x_k8s_io as capi
from remuda.api import provisioning_cattle_io as provisioning
from remuda.api import rke_cattle_io as rke
from remuda.kube.builtin_resources import NAMESPACES, ROLE_BINDINGS, ROLES, SECRETS, SERVICE_ACCOUNTS
from remuda.kube.objects import annotations_of, labels_of
from remuda.kube.owners import reference
from remuda.provisioning.bootstrap.service_account_tokens import shown, text_of
from remuda.provisioning.nodes.machine_request import request_secret
from remuda.provisioning.plans.machine_plan_secret import decode
from remuda.provisioning.plans.plan import Plan, checksum, encode
from remuda.provisioning.well_known import MACHINE_NAME, TOKEN_INVALIDATED, TOKEN_OF_ACCOUNT, request_name
from remuda.runtime import Reconciler
from tests.scenarios.soaking import SOAK, dice
from tests.unit.access.management_api import Parts
from tests.unit.provisioning.cluster.mirrored_clusters import mirror
from tests.unit.provisioning.cluster.test_interruptions import Mortal, through

from .rke_machines import DEMO, FLEET, Machines, machine_controllers, machines

Obj = dict[str, Any]
ID = "a1" * 31 + "f"
NAME = request_name(ID)
PLAN = encode(Plan(error="x"))


def script(bootstrap: Obj, token: str) -> bytes:
    return f"CATTLE_TOKEN={token}\n".encode()


def controllers(parts: Parts, made: Machines) -> Iterable[Reconciler]:
    yield from mirror(parts)
    yield from machine_controllers(parts, made, script)


async def registering(made: Machines) -> str:
    """A cluster and a host that asks to be one of its machines, while nobody works; the request's namespace."""
    await made.wanted(DEMO, FLEET, kubernetesVersion="v1.34.1+rke2r1", rkeConfig={})
    first = made.begin()
    await made.settle(2)
    namespace: str = (await made.get(provisioning.CLUSTERS, DEMO, FLEET))["status"]["clusterName"]
    await first.stop()
    if await made.find(NAMESPACES, namespace) is None:
        await made.create(NAMESPACES, {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": namespace}})
    await made.demo()
    await made.create(SECRETS, request_secret(namespace, {"id": [ID], "role-etcd": ["true"], "role-worker": ["true"]}))
    return namespace


async def adopt(made: Machines) -> bool:
    """What Cluster API does with a new Machine: its bootstrap is its own."""
    machine = await made.find(capi.MACHINES, NAME, FLEET)
    bootstrap = await made.find(rke.RKE_BOOTSTRAPS, NAME, FLEET)
    if machine is None or bootstrap is None:
        return False
    if not bootstrap["metadata"].get("ownerReferences"):
        owned = {"metadata": {"ownerReferences": [reference(machine, controller=True)]}}
        await made.patch(rke.RKE_BOOTSTRAPS, NAME, owned, FLEET)
    return True


async def run(made: Machines, begin: Callable[[], Any]) -> Obj:
    namespace = await registering(made)
    begin()
    await made.settle(3)
    if not await adopt(made):
        made.begin()
        await made.settle(3)
        assert await adopt(made)
    await made.settle(5)
    made.begin()
    await made.settle(30)
    await made.give_plan(NAME, PLAN)
    await made.answer(NAME, plan_state="succeeded", plan_revision="1", applied_checksum=checksum(PLAN), probe_statuses="{}")
    await made.settle(1)
    found = await outcome(made)
    await made.settle(40)
    assert await made.find(SECRETS, NAME, namespace) is None, "a request is gone after a minute"
    await made.settle(1800)
    assert [annotations_of(each).get(TOKEN_INVALIDATED) for each in await bootstrap_tokens(made)] == ["true"]
    return found


async def bootstrap_tokens(made: Machines) -> list[Obj]:
    account = f"{NAME}-machine-bootstrap"
    found = await made.list(SECRETS, FLEET)
    return [each for each in found if labels_of(each).get("cattle.io/service-account.name") == account]


async def outcome(made: Machines) -> Obj:
    """Everything about one machine, and that it fits together."""
    for resource in (capi.MACHINES, rke.RKE_BOOTSTRAPS, rke.CUSTOM_MACHINES):
        assert [each["metadata"]["name"] for each in await made.list(resource, FLEET)] == [NAME], "never two"
    (token,) = await bootstrap_tokens(made)
    account = await made.get(SERVICE_ACCOUNTS, f"{NAME}-machine-bootstrap", FLEET)
    assert annotations_of(account)[TOKEN_OF_ACCOUNT] == f"{FLEET}/{token['metadata']['name']}"
    assert await made.secret_text(f"{NAME}-machine-bootstrap", FLEET, "value") == f"CATTLE_TOKEN={shown(text_of(token))}\n"
    plan = await made.plan(NAME)
    delivered = decode(plan)
    assert delivered is not None and delivered.in_sync and delivered.probes_usable and delivered.applied_data == PLAN
    made_for = labels_of(plan)
    assert made_for[MACHINE_NAME] == NAME
    conditions = (await made.get(capi.MACHINES, NAME, FLEET))["status"]["conditions"]
    return {
        "labels": made_for,
        "roles": (await made.get(ROLES, f"{NAME}-machine-plan", FLEET))["rules"],
        "binding": (await made.get(ROLE_BINDINGS, f"{NAME}-machine-plan", FLEET))["subjects"],
        "machine": labels_of(await made.get(capi.MACHINES, NAME, FLEET)),
        "conditions": [(each["type"], each["status"]) for each in conditions],
        "bootstrap": (await made.get(rke.RKE_BOOTSTRAPS, NAME, FLEET))["status"],
        "ready": (await made.get(rke.CUSTOM_MACHINES, NAME, FLEET))["status"]["conditions"][0]["status"],
    }


@pytest.fixture(scope="module")
def undisturbed() -> tuple[Obj, int]:
    """What comes of a host when nothing goes wrong, and in how many writes."""

    async def once() -> tuple[Obj, int]:
        async with machines(controllers, begin=False) as made:
            found: list[Mortal] = []
            result = await run(made, lambda: found.append(through(made, None)[1]))
            return result, found[0].written

    return asyncio.run(once())


def sample(what: str, most: int) -> list[int]:
    """One of the writes, or all of them; a failing test shows which."""
    numbers = range(1, most)
    return list(numbers) if SOAK else [dice(what).choice(numbers)]


@pytest.mark.soak
@pytest.mark.parametrize("fails", [True, False], ids=["refused", "dead"])
async def test_whichever_write_is_the_last_the_end_is_the_same(fails: bool, undisturbed: tuple[Obj, int]) -> None:
    wanted, writes = undisturbed
    assert writes > 10
    for number in sample(f"machines/{fails}", writes):
        async with machines(controllers, begin=False) as made:
            found = await run(made, partial(through, made, number, fails))
            assert found == wanted, f"write {number}"


async def test_two_at_the_same_time_make_one_of_everything(undisturbed: tuple[Obj, int]) -> None:
    async with machines(controllers, begin=False) as made:

        def twice() -> None:
            made.begin()
            made.begin()

        assert await run(made, twice) == undisturbed[0]
        before = (await made.client.list(NAMESPACES))["metadata"]["resourceVersion"]
        await made.settle(120)
        assert (await made.client.list(NAMESPACES))["metadata"]["resourceVersion"] == before, "and come to rest"
