"""What is noted when a host answers to its plan."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from remuda.api import cluster_x_k8s_io as capi
from remuda.app.controllers import follow_ca
from remuda.kube.builtin_resources import SECRETS
from remuda.kube.conditions import LEGACY, get
from remuda.kube.objects import annotations_of
from remuda.provisioning.bootstrap.rkebootstrap import Bootstraps
from remuda.provisioning.etcd.members import DistributionsMembers
from remuda.provisioning.plans.machine_plan_secret import decode, packed
from remuda.provisioning.plans.plan import PeriodicInstruction, Plan, checksum, encode
from remuda.provisioning.plans.plansecret import PlanSecrets
from remuda.provisioning.well_known import CA_CHECKSUM, MACHINE_NAME, PROBES_PASSED, plan_name
from remuda.runtime import Reconciler
from tests.unit.access.management_api import Parts
from tests.unit.provisioning.rke_machines import ETCD, FLEET, Machines, machines

Obj = dict[str, Any]
ONE = encode(Plan(periodicInstructions=(PeriodicInstruction(name="etcd-name", command="cat"),)))
SUM = checksum(ONE)


def controllers(parts: Parts, made: Machines) -> Iterable[Reconciler]:
    yield Bootstraps(parts.manager, lambda bootstrap, token: b"", DistributionsMembers(made.workloads))
    yield PlanSecrets(parts.manager)


async def planned(made: Machines, *names: str) -> None:
    await made.demo()
    for name in names:
        await made.machine(name, labels=ETCD)
    await made.settle(3)
    for name in names:
        await made.give_plan(name, ONE)


async def condition(made: Machines, name: str) -> Obj | None:
    machine = await made.get(capi.MACHINES, name, FLEET)
    found, legacy = get(machine, "PlanApplied"), get(machine, "PlanApplied", LEGACY)
    assert (found is None) == (legacy is None)
    if found is not None and legacy is not None:
        assert all(found.get(field, "") == legacy.get(field, "") for field in ("status", "reason", "message"))
    return found


async def test_an_applied_plan_and_its_passing_probes_are_noted() -> None:
    async with machines(controllers) as made:
        await planned(made, "m1")
        await made.answer("m1", plan_state="in-progress", plan_revision="1")
        await made.settle(2)
        outputs = packed({"etcd-name": {}, "old": {}})
        await made.answer(
            "m1", plan_state="succeeded", applied_checksum=SUM, applied_periodic_output=outputs, probe_statuses='{"a":{}}'
        )
        await made.settle(2)
        found = decode(await made.plan("m1"))
        assert found is not None and found.in_sync and found.applied_data == ONE and not found.probes_usable
        assert set(found.periodic_output) == {"etcd-name"}
        await made.answer("m1", probe_statuses='{"a":{"healthy":true}}')
        await made.settle(2)
        assert annotations_of(await made.plan("m1"))[PROBES_PASSED]
        said = await condition(made, "m1")
        assert said is not None and (said["status"], said["reason"]) == ("True", "PlanApplied")
        before = (await made.plan("m1"))["metadata"]["resourceVersion"]
        await made.settle(1300)
        assert (await made.plan("m1"))["metadata"]["resourceVersion"] == before, "a Secret that an agent writes is left alone"


async def test_nothing_is_written_while_an_agent_is_at_work() -> None:
    async with machines(controllers) as made:
        await planned(made, "m1")
        await made.answer("m1", plan_state="in-progress", applied_checksum=SUM, probe_statuses="{}")
        await made.settle(2)
        before = (await made.plan("m1"))["metadata"]["resourceVersion"]
        await made.settle(700)
        assert (await made.plan("m1"))["metadata"]["resourceVersion"] == before


async def test_hosts_are_told_of_another_ca_but_not_while_they_are_at_work() -> None:
    handed_out = ["one"]

    def telling(parts: Parts, made: Machines) -> Iterable[Reconciler]:
        yield Bootstraps(parts.manager, lambda bootstrap, token: b"", DistributionsMembers(made.workloads))
        yield PlanSecrets(parts.manager, lambda: handed_out[0])

    async with machines(telling) as made:
        await planned(made, "m1")
        await made.settle(2)
        assert CA_CHECKSUM not in annotations_of(await made.plan("m1"))
        await made.answer("m1", plan_state="succeeded", applied_checksum=SUM)
        await made.settle(2)
        assert annotations_of(await made.plan("m1"))[CA_CHECKSUM] == "one"
        await made.answer("m1", plan_state="in-progress")
        handed_out[0] = "two"
        await made.answer("m1", plan_revision="1")
        await made.settle(2)
        assert annotations_of(await made.plan("m1"))[CA_CHECKSUM] == "one"
        await made.answer("m1", plan_state="succeeded", applied_checksum=SUM)
        await made.settle(2)
        assert annotations_of(await made.plan("m1"))[CA_CHECKSUM] == "two"


async def test_another_ca_is_told_at_once_to_hosts_and_in_scripts_of_those_that_are_to_come() -> None:
    handed_out, handlers = ["one"], list[Callable[[], None]]()

    def listen(handler: Callable[[], None]) -> Callable[[], None]:
        handlers.append(handler)
        return lambda: handlers.remove(handler)

    def telling(parts: Parts, made: Machines) -> Iterable[Reconciler]:
        follow_ca(parts.manager, listen)
        members = DistributionsMembers(made.workloads)
        yield Bootstraps(parts.manager, lambda bootstrap, token: handed_out[0].encode(), members)
        yield PlanSecrets(parts.manager, lambda: handed_out[0])

    async with machines(telling) as made:
        await planned(made, "m1")
        await made.answer("m1", plan_state="succeeded", applied_checksum=SUM)
        await made.settle(2)
        handed_out[0] = "two"
        await made.settle(2)
        assert annotations_of(await made.plan("m1"))[CA_CHECKSUM] == "one"
        (changed,) = handlers
        changed()
        await made.settle(2)
        assert annotations_of(await made.plan("m1"))[CA_CHECKSUM] == "two"
        assert await made.secret_text("m1-machine-bootstrap", FLEET, "value") == "two"


async def test_a_plan_that_failed_is_told_on_the_machine() -> None:
    async with machines(controllers) as made:
        await planned(made, "m1")
        await made.answer("m1", plan_state="failed", plan_revision="1", applied_checksum=SUM)
        await made.settle(2)
        said = await condition(made, "m1")
        assert said is not None and (said["status"], said["reason"]) == ("False", "Error")
        assert said["message"] == (
            "error applying plan -- check rancher-system-agent.service and rke2-server.service logs on node for more information"
        )
        assert decode(await made.plan("m1")).applied_data == b"", "and does not count as applied"  # type: ignore[union-attr]
        await made.answer("m1", plan_state="succeeded")
        await made.settle(2)
        said = await condition(made, "m1")
        assert said is not None and said["status"] == "True"


async def test_a_host_can_not_speak_for_another_machine() -> None:
    async with machines(controllers) as made:
        await planned(made, "m1", "m2")
        lies = {"metadata": {"labels": {MACHINE_NAME: "m2", "plan.cattle.io/machine-name": "m2"}, "ownerReferences": None}}
        await made.patch(SECRETS, plan_name("m1"), lies, FLEET)
        await made.answer("m1", plan_state="failed")
        await made.settle(2)
        assert (await condition(made, "m1"))["status"] == "False"  # type: ignore[index]
        assert (await condition(made, "m2"))["status"] == "True"  # type: ignore[index]


async def test_answers_while_no_controller_ran_are_recorded() -> None:
    async with machines(controllers) as made:
        await planned(made, "m1")
        await made.end()
        await made.answer("m1", plan_state="succeeded", applied_checksum=SUM)
        made.begin()
        await made.settle(2)
        assert decode(await made.plan("m1")).applied_data == ONE  # type: ignore[union-attr]
