"""What hosts may do with the tokens that they have, by trying: each its own plan, and nothing else."""

from __future__ import annotations

import base64
from collections.abc import Callable, Iterable
from typing import Any

import pytest

from remuda.api import cluster_x_k8s_io as capi
from remuda.api import rke_cattle_io as rke
from remuda.apiserver.admission.chain import install as install_admission
from remuda.apiserver.inprocess import InProcessClient
from remuda.kube.authorization.users import User
from remuda.kube.builtin_resources import SECRETS, SERVICE_ACCOUNTS
from remuda.kube.errors import ApiError
from remuda.kube.objects import annotations_of, labels_of
from remuda.provisioning.admission.provider_objects import admitted
from remuda.provisioning.bootstrap.rkebootstrap import Bootstraps
from remuda.provisioning.etcd.members import DistributionsMembers
from remuda.provisioning.plans.host_write_rules import HOST_KEYS, HOST_SHARE, kept_data, refusal
from remuda.provisioning.plans.machine_plan_secret import decode
from remuda.provisioning.well_known import INIT_NODE, JOIN_URL, JOINED_TO, bootstrap_name, plan_name
from remuda.runtime import Reconciler
from remuda.runtime.webhook_server import WebhookAddress, validating_configuration
from tests.unit.access.management_api import Parts
from tests.unit.provisioning.rke_machines import ETCD, FLEET, Machines, machines

Obj = dict[str, Any]


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


# --- what of it is the host's -----------------------------------------------------------------------------------------------


def b64(data: bytes) -> str:
    return base64.b64encode(data).decode()


def with_data(secret: Obj, **data: bytes) -> Obj:
    return {**secret, "data": {**(secret.get("data") or {}), **{key.replace("_", "-"): b64(each) for key, each in data.items()}}}


def with_meta(secret: Obj, **meta: Any) -> Obj:
    return {**secret, "metadata": {**secret["metadata"], **meta}}


OWNER = {"apiVersion": "v1", "kind": "ConfigMap", "name": "x", "uid": "y"}
LIES: dict[str, Callable[[Obj], Obj]] = {
    "immutable": lambda secret: {**secret, "immutable": True},
    "the plan": lambda secret: with_data(secret, plan=b"{}"),
    "no plan": lambda secret: {**secret, "data": {"plan-revision": b64(b"1")}},
    "the applied plan": lambda secret: with_data(secret, appliedPlan=b"{}"),
    "its limits": lambda secret: with_data(secret, max_failures=b"1"),
    "the threshold": lambda secret: with_data(secret, failure_threshold=b"9"),
    "the period": lambda secret: with_data(secret, probe_period_seconds=b"1"),
    "a key of its own": lambda secret: with_data(secret, mine=b"1"),
    "string data": lambda secret: {**secret, "stringData": {"plan": "{}"}},
    "a label": lambda secret: with_meta(secret, labels={**labels_of(secret), INIT_NODE: "true"}),
    "no labels": lambda secret: with_meta(secret, labels={}),
    "an annotation": lambda secret: with_meta(secret, annotations={JOIN_URL: "https://evil.example:9345"}),
    "an owner": lambda secret: with_meta(secret, ownerReferences=[OWNER]),
    "no owner": lambda secret: with_meta(secret, ownerReferences=[]),
    "a finalizer": lambda secret: with_meta(secret, finalizers=["example.com/mine"]),
    "a state of the server's": lambda secret: with_data(secret, plan_state=b"cancelled"),
    "a long answer": lambda secret: with_data(secret, failed_output=bytes(HOST_KEYS["failed-output"] + 3)),
    "long answers": lambda secret: with_data(
        secret, **{key.replace("-", "_"): bytes(most - 3) for key, most in HOST_KEYS.items() if key != "plan-state"}
    ),
}


async def guarded(made: Machines) -> InProcessClient:
    install_admission(admitted(made.server.source), made.server.hooks, made.server.converters)
    await two(made)
    await made.give_plan("m1")
    return account(made, plan_name("m1"))


async def test_a_host_writes_its_answers_and_nothing_else_of_its_secret() -> None:
    async with machines(controllers) as made:
        host = await guarded(made)
        for key in HOST_KEYS:
            found = await host.get(SECRETS, plan_name("m1"), FLEET)
            await host.update(SECRETS, with_data(found, **{key: b"failed" if key == "plan-state" else b"1"}))
        before = await made.plan("m1")
        for name, lie in LIES.items():
            with pytest.raises(ApiError) as refused:
                await host.update(SECRETS, lie(before))
            assert refused.value.code == 403, name
            assert b64(b"1") not in refused.value.message
        assert await made.plan("m1") == before
        # The server, and people with the right to Secrets, write as before.
        await made.client.update(SECRETS, with_data(before, plan=b"{}"))


async def test_a_stale_answer_is_a_conflict_and_no_refusal() -> None:
    """The agent reads again after the one and ends after the other."""
    async with machines(controllers) as made:
        host = await guarded(made)
        seen = await host.get(SECRETS, plan_name("m1"), FLEET)
        await made.give_plan("m1", b'{"error":"y"}')
        with pytest.raises(ApiError) as refused:
            await host.update(SECRETS, with_data(seen, plan_revision=b"1"))
        assert refused.value.is_conflict


def test_a_webhook_is_asked_only_about_what_hosts_write() -> None:
    """One that were asked about every Secret would stop them all while it is away."""
    (rule,) = [each for each in admitted(None) if each.resource == "secrets"]  # type: ignore[arg-type]
    (hook,) = validating_configuration("remuda", [rule], WebhookAddress(url="https://x:1"), b"")["webhooks"]
    account_of_secret = "request.userInfo.username == 'system:serviceaccount:' + request.namespace + ':' + request.name"
    assert hook["matchConditions"] == [{"name": "concerned", "expression": account_of_secret}]
    assert hook["rules"][0]["resources"] == ["secrets"] and hook["rules"][0]["operations"] == ["CREATE", "UPDATE"]


async def test_a_secret_that_is_immutable_is_made_again_with_all_that_the_server_knows() -> None:
    async with machines(controllers) as made:
        await made.demo()
        await made.machine("m1", labels=ETCD)
        await made.settle(5)
        await made.give_plan("m1", joined_to="https://10.0.0.1:9345")
        marks = {"labels": {INIT_NODE: "true"}, "annotations": {JOIN_URL: "https://10.0.0.2:9345"}}
        locked = {
            "metadata": {**marks, "finalizers": ["example.com/mine"]},
            "data": {"plan-revision": b64(b"3"), "mine": b64(b"x")},
        }
        await made.patch(SECRETS, plan_name("m1"), {**locked, "immutable": True}, FLEET)
        before = await made.plan("m1")
        await made.settle(5)
        after = await made.plan("m1")
        assert after["metadata"]["uid"] != before["metadata"]["uid"] and not after.get("immutable")
        assert not after["metadata"].get("finalizers")
        assert labels_of(after) == labels_of(before) and labels_of(after)[INIT_NODE] == "true"
        assert annotations_of(after) == annotations_of(before) and annotations_of(after)[JOINED_TO] == "https://10.0.0.1:9345"
        delivered = decode(after)
        assert delivered is not None and delivered.data == b'{"error":"x"}' and delivered.revision == 3
        assert "mine" not in after["data"]


async def test_a_secret_that_is_full_gets_room_for_a_plan() -> None:
    async with machines(controllers) as made:
        await made.demo()
        await made.machine("m1")
        await made.settle(5)
        await made.give_plan("m1")
        await made.answer("m1", mine=bytes(900 << 10), plan_revision="3")
        await made.settle(5)
        after = await made.plan("m1")
        assert "mine" not in after["data"] and after["data"]["plan-revision"] == b64(b"3")
        await made.give_plan("m1", bytes(300 << 10))


def test_what_is_kept_of_a_full_secret_is_within_its_bounds() -> None:
    full = {
        "type": "rke.cattle.io/machine-plan",
        "metadata": {},
        "data": {key: b64(bytes(most)) for key, most in HOST_KEYS.items()},
    }
    kept = kept_data(with_data(full, plan=b"{}", mine=b"x"))
    assert sum(len(base64.b64decode(each)) for key, each in kept.items() if key != "plan") <= HOST_SHARE
    assert "plan" in kept and "mine" not in kept
    assert refusal({**full, "data": {}}, {**full, "data": {key: each for key, each in kept.items() if key == "agent"}}) == ""
