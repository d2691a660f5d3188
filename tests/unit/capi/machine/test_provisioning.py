"""A Machine and what it refers to: whose they become, and what is handed over."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest

from remuda.api.cluster_x_k8s_io import CLUSTERS, MACHINE_SETS, MACHINES
from remuda.capi.controller_context import ControllerOptions
from remuda.capi.machine.controller import Machines
from remuda.kube.builtin_resources import CRDS, NODES
from remuda.kube.conditions import LEGACY
from remuda.kube.objects import GroupVersionResource, dig, labels_of, owner_references_of, resource_version_of
from remuda.kube.owners import reference
from tests.unit.capi.memory_clusters import (
    BOOTSTRAP,
    INFRA,
    TEST_CONFIGS,
    TEST_CONTROL_PLANES,
    TEST_MACHINES,
    World,
    core_object,
    machine_spec,
    thing,
    world,
)
from tests.unit.capi.memory_clusters import provider_crd as crd

from .nodes import initialized, node, told

Obj = dict[str, Any]


def owners(obj: Obj) -> list[tuple[str, str, bool]]:
    return [(owner["kind"], owner["name"], bool(owner.get("controller"))) for owner in owner_references_of(obj)]


async def make(made: World, **spec: Any) -> Obj:
    await made.cluster()
    await made.machine("m1", **spec)
    await made.settle()
    return await made.get(MACHINES, "m1")


# --- whose it is -----------------------------------------------------------------------------------------------------------


async def test_a_machine_gets_its_finalizer_its_cluster_as_owner_and_its_clusters_label() -> None:
    async with world(Machines) as made:
        machine = await make(made)
        assert machine["metadata"]["finalizers"] == ["machine.cluster.x-k8s.io"]
        assert owners(machine) == [("Cluster", "c1", False)]
        assert labels_of(machine)["cluster.x-k8s.io/cluster-name"] == "c1"


async def test_a_machine_of_a_set_that_has_not_taken_it_back_is_not_adopted_by_the_cluster() -> None:
    async with world(Machines) as made:
        await made.cluster()
        await made.machine("m1", labels={"cluster.x-k8s.io/set-name": "s"})
        await made.machine("m2", labels={"cluster.x-k8s.io/control-plane-name": "cp"})
        await made.settle()
        assert owners(await made.get(MACHINES, "m1")) == owners(await made.get(MACHINES, "m2")) == []


async def test_nothing_is_done_without_a_cluster_until_there_is_one() -> None:
    async with world(Machines) as made:
        await made.machine("m1")
        await made.settle()
        machine = await made.get(MACHINES, "m1")
        assert "status" not in machine and "finalizers" not in machine["metadata"]
        await made.cluster()
        await made.settle()
        assert dig(await made.get(MACHINES, "m1"), "status", "phase") == "Pending"


async def test_only_machines_with_the_label_of_the_watch_filter_are_looked_at() -> None:
    async with world(Machines, options=ControllerOptions(watch_filter="mine")) as made:
        await made.cluster()
        await made.machine("m1", labels={"cluster.x-k8s.io/watch-filter": "mine"})
        await made.machine("m2")
        await made.settle()
        assert "status" in await made.get(MACHINES, "m1")
        assert "status" not in await made.get(MACHINES, "m2")


async def test_what_it_refers_to_becomes_its_own() -> None:
    async with world(Machines) as made:
        machine = await make(made)
        for resource in (TEST_MACHINES, TEST_CONFIGS):
            found = await made.get(resource, "m1")
            assert labels_of(found)["cluster.x-k8s.io/cluster-name"] == "c1"
            (owner,) = owner_references_of(found)
            assert owner == {
                "apiVersion": "cluster.x-k8s.io/v1beta2",
                "kind": "Machine",
                "name": "m1",
                "uid": machine["metadata"]["uid"],
                "controller": True,
                "blockOwnerDeletion": True,
            }


async def test_creators_do_not_own_the_objects_once_there_is_a_machine() -> None:
    async with world(Machines) as made:
        await made.cluster()
        spec = {"clusterName": "c1", "selector": {"matchLabels": {"a": "b"}}, "template": {"spec": machine_spec("m1")}}
        machine_set = await made.create(MACHINE_SETS, core_object("MachineSet", "s", spec))
        control_plane = await made.get(TEST_CONTROL_PLANES, "c1")
        other = await made.create(TEST_CONFIGS, thing(BOOTSTRAP, "TestConfig", "other"))
        makers = [reference(owner) for owner in (machine_set, control_plane, other)]
        infra, config = thing(INFRA, "TestMachine", "m1"), thing(BOOTSTRAP, "TestConfig", "m1")
        infra["metadata"]["ownerReferences"] = makers
        await made.create(TEST_MACHINES, infra)
        await made.create(TEST_CONFIGS, config)
        machine = core_object("Machine", "m1", machine_spec("m1", template=False))
        machine["metadata"]["labels"] = {"cluster.x-k8s.io/control-plane": ""}
        await made.create(MACHINES, machine)
        await made.settle()
        assert owners(await made.get(TEST_MACHINES, "m1")) == [("TestConfig", "other", False), ("Machine", "m1", True)]


async def test_an_object_with_another_controller_is_left_alone_and_reported() -> None:
    async with world(Machines) as made:
        await made.cluster()
        await made.create(TEST_CONFIGS, thing(BOOTSTRAP, "TestConfig", "m1"))
        config_map = await made.create(TEST_CONFIGS, thing(BOOTSTRAP, "TestConfig", "boss"))
        infra = thing(INFRA, "TestMachine", "m1")
        boss = {"apiVersion": f"{BOOTSTRAP}/v1", "kind": "TestConfig", "name": "boss", "uid": config_map["metadata"]["uid"]}
        infra["metadata"]["ownerReferences"] = [{**boss, "controller": True}]
        await made.create(TEST_MACHINES, infra)
        await made.create(MACHINES, core_object("Machine", "m1", machine_spec("m1", template=False)))
        await made.settle()
        machine = await made.get(MACHINES, "m1")
        assert told(machine, "InfrastructureReady") == ("Unknown", "InternalError", "Please check controller logs for errors")
        assert owners(await made.get(TEST_MACHINES, "m1")) == [("TestConfig", "boss", True)]
        assert "observedGeneration" not in machine["status"]


# --- bootstrap -------------------------------------------------------------------------------------------------------------


async def test_the_name_of_the_data_secret_is_taken_over_when_the_provider_is_done() -> None:
    async with world(Machines) as made:
        await make(made)
        await made.bootstrap("m1")
        await made.settle()
        machine = await made.get(MACHINES, "m1")
        assert machine["spec"]["bootstrap"]["dataSecretName"] == "m1"
        assert machine["status"]["initialization"] == {"bootstrapDataSecretCreated": True}
        assert machine["status"]["phase"] == "Provisioning"
        assert told(machine, "BootstrapConfigReady") == ("True", "Ready", "")
        assert told(machine, "BootstrapReady", LEGACY) == ("True", "", "", "")
        assert told(machine, "Ready", LEGACY) == ("False", "WaitingForInfrastructure", "1 of 2 completed", "Info")


async def test_a_provider_of_the_older_contract_says_ready_instead() -> None:
    async with world(Machines) as made:
        await made.client.patch(
            CRDS,
            f"testconfigs.{BOOTSTRAP}",
            {"metadata": {"labels": {"cluster.x-k8s.io/v1beta2": None, "cluster.x-k8s.io/v1beta1": "v1"}}},
        )
        await made.settle()
        await make(made)
        await made.patch(TEST_CONFIGS, "m1", {"status": {"ready": True, "dataSecretName": "s"}}, "status")
        await made.settle()
        assert (await made.get(MACHINES, "m1"))["spec"]["bootstrap"]["dataSecretName"] == "s"


async def test_a_provider_that_is_done_but_names_no_secret_is_waited_for() -> None:
    async with world(Machines) as made:
        await make(made)
        await made.patch(TEST_CONFIGS, "m1", {"status": {"initialization": {"dataSecretCreated": True}}}, "status")
        await made.settle()
        machine = await made.get(MACHINES, "m1")
        assert told(machine, "BootstrapConfigReady")[:2] == ("False", "NotReady")
        assert "dataSecretName" not in machine["spec"]["bootstrap"]
        await made.bootstrap("m1")
        await made.settle()
        assert (await made.get(MACHINES, "m1"))["spec"]["bootstrap"]["dataSecretName"] == "m1"


async def test_a_secret_made_by_hand_needs_no_provider() -> None:
    async with world(Machines) as made:
        machine = await make(made, bootstrap={"dataSecretName": "by-hand"})
        assert told(machine, "BootstrapConfigReady") == ("True", "DataSecretProvided", "")
        assert told(machine, "BootstrapReady", LEGACY) == ()


async def test_a_secret_named_beside_the_reference_counts_at_once() -> None:
    async with world(Machines) as made:
        ref = {"apiGroup": BOOTSTRAP, "kind": "TestConfig", "name": "m1"}
        machine = await make(made, bootstrap={"configRef": ref, "dataSecretName": "s"})
        assert dig(machine, "status", "initialization", "bootstrapDataSecretCreated") is True
        assert told(machine, "BootstrapReady", LEGACY) == ("True", "", "", "")


async def test_what_a_provider_says_of_itself_is_repeated() -> None:
    async with world(Machines) as made:
        await make(made)
        said = {"type": "Ready", "status": "False", "reason": "NoQuota", "message": "ask for more"}
        await made.patch(TEST_CONFIGS, "m1", {"status": {"conditions": [said]}}, "status")
        await made.settle()
        machine = await made.get(MACHINES, "m1")
        assert told(machine, "BootstrapConfigReady") == ("False", "NoQuota", "ask for more")
        assert told(machine, "BootstrapReady", LEGACY) == ("False", "NoQuota", "ask for more", "")


async def test_a_condition_that_is_none_is_said() -> None:
    async with world(Machines) as made:
        await make(made)
        await made.patch(TEST_MACHINES, "m1", {"status": {"conditions": [{"type": "Ready"}]}}, "status")
        await made.settle()
        message = "failed to convert status.conditions from TestMachine to []metav1.Condition: "
        assert told(await made.get(MACHINES, "m1"), "InfrastructureReady") == (
            "Unknown",
            "InvalidConditionReported",
            message + "status must be set for the Ready condition",
        )


async def test_machine_and_provider_objects_may_come_in_any_order() -> None:
    async with world(Machines) as made:
        await made.cluster()
        await made.create(MACHINES, core_object("Machine", "m1", machine_spec("m1", template=False)))
        await made.settle()
        machine = await made.get(MACHINES, "m1")
        assert told(machine, "BootstrapConfigReady") == ("False", "ObjectDoesNotExist", "TestConfig does not exist")
        assert told(machine, "InfrastructureReady") == ("False", "ObjectDoesNotExist", "TestMachine does not exist")
        await made.create(TEST_CONFIGS, thing(BOOTSTRAP, "TestConfig", "m1"))
        await made.create(TEST_MACHINES, thing(INFRA, "TestMachine", "m1"))
        await made.settle(0.1)
        machine = await made.get(MACHINES, "m1")
        assert told(machine, "BootstrapConfigReady")[1] == told(machine, "InfrastructureReady")[1] == "NotReady"


async def test_a_kind_that_is_not_installed_yet_is_picked_up_when_it_is() -> None:
    async with world(Machines) as made:
        await made.cluster()
        ref = {"apiGroup": INFRA, "kind": "LateMachine", "name": "m1"}
        await made.create(TEST_CONFIGS, thing(BOOTSTRAP, "TestConfig", "m1"))
        await made.create(MACHINES, core_object("Machine", "m1", machine_spec("m1", template=False) | {"infrastructureRef": ref}))
        await made.settle()
        assert told(await made.get(MACHINES, "m1"), "InfrastructureReady")[1] == "InternalError"
        await made.create(CRDS, crd(INFRA, "LateMachine"))
        await made.settle(3)
        assert told(await made.get(MACHINES, "m1"), "InfrastructureReady")[1] == "ObjectDoesNotExist"


# --- infrastructure --------------------------------------------------------------------------------------------------------


async def test_provider_id_addresses_and_failure_domain_are_taken_over_when_the_machine_is_provisioned() -> None:
    async with world(Machines) as made:
        await make(made)
        await made.bootstrap("m1")
        await made.patch(TEST_MACHINES, "m1", {"status": {"failureDomain": "east"}}, "status")
        await made.provision("m1")
        await made.settle()
        machine = await made.get(MACHINES, "m1")
        assert machine["spec"]["providerID"] == "test:///m1"
        assert machine["status"]["addresses"] == [{"type": "InternalIP", "address": "192.0.2.9"}]
        assert machine["status"]["failureDomain"] == "east" and "failureDomain" not in machine["spec"]
        assert machine["status"]["initialization"]["infrastructureProvisioned"] is True
        assert machine["status"]["phase"] == "Provisioned"
        assert told(machine, "InfrastructureReady") == ("True", "Ready", "")
        assert told(machine, "InfrastructureReady", LEGACY) == ("True", "", "", "")
        assert told(machine, "Ready", LEGACY) == ("True", "", "", "")


async def test_an_older_providers_failure_domain_goes_to_the_spec() -> None:
    async with world(Machines) as made:
        await make(made)
        await made.patch(TEST_MACHINES, "m1", {"spec": {"failureDomain": "west"}})
        await made.provision("m1")
        await made.settle()
        assert (await made.get(MACHINES, "m1"))["spec"]["failureDomain"] == "west"


async def test_a_provisioned_machine_without_provider_id_is_waited_for() -> None:
    async with world(Machines) as made:
        await make(made)
        await made.patch(TEST_MACHINES, "m1", {"status": {"initialization": {"provisioned": True}}}, "status")
        await made.settle()
        machine = await made.get(MACHINES, "m1")
        assert "initialization" not in machine["status"] and "providerID" not in machine["spec"]
        assert told(machine, "InfrastructureReady", LEGACY) == ("True", "", "", "")
        await made.provision("m1")
        await made.settle()
        assert (await made.get(MACHINES, "m1"))["spec"]["providerID"] == "test:///m1"


async def test_a_provider_that_takes_its_word_back_does_not_unprovision_a_machine() -> None:
    async with world(Machines) as made:
        await make(made)
        await made.provision("m1")
        await made.settle()
        await made.patch(TEST_MACHINES, "m1", {"status": {"initialization": {"provisioned": False}}}, "status")
        await made.settle()
        machine = await made.get(MACHINES, "m1")
        assert machine["status"]["initialization"]["infrastructureProvisioned"] is True
        assert told(machine, "InfrastructureReady", LEGACY)[:2] == ("False", "WaitingForInfrastructure")
        assert machine["status"]["phase"] == "Provisioned"


async def test_an_address_that_is_none_does_not_spoil_the_others() -> None:
    async with world(Machines) as made:
        await make(made)
        await made.provision("m1")
        bad = [{"type": "Pigeon", "address": "roof"}, {"type": "InternalIP"}, "x", {"type": "Hostname", "address": "h", "z": 1}]
        await made.patch(TEST_MACHINES, "m1", {"status": {"addresses": bad}}, "status")
        await made.settle()
        assert (await made.get(MACHINES, "m1"))["status"]["addresses"] == [{"type": "Hostname", "address": "h"}]


async def test_what_no_machine_can_hold_does_not_make_it_unwritable() -> None:
    async with world(Machines) as made:
        await make(made)
        long = "x" * 20_000
        said = {"type": "Ready", "status": "False", "reason": long, "message": long * 2, "severity": long}
        status = {
            "initialization": {"provisioned": True, "dataSecretCreated": True},
            "dataSecretName": long,
            "failureDomain": long,
            "failureReason": "R",
            "failureMessage": long,
            "conditions": [said],
        }
        for resource in (TEST_MACHINES, TEST_CONFIGS):
            await made.patch(resource, "m1", {"spec": {"providerID": long, "failureDomain": long}})
            await made.patch(resource, "m1", {"status": status}, "status")
        await made.settle()
        machine = await made.get(MACHINES, "m1")
        assert "initialization" not in machine["status"] and "failureDomain" not in machine["spec"]
        assert told(machine, "InfrastructureReady")[0] == "False"
        assert len(told(machine, "BootstrapReady", LEGACY)[2]) == 10240
        assert len(machine["status"]["deprecated"]["v1beta1"]["failureMessage"]) == 10240


@pytest.mark.parametrize("nonsense", [None, "x", 7, True, [], [1], {}, {"conditions": "x"}, {"initialization": []}])
async def test_nonsense_from_a_provider_counts_as_nothing(nonsense: Any, caplog: pytest.LogCaptureFixture) -> None:
    async with world(Machines) as made:
        await make(made)
        for resource in (TEST_MACHINES, TEST_CONFIGS):
            obj = await made.get(resource, "m1")
            status = dict.fromkeys(("initialization", "addresses", "failureReason", "interruptible", "dataSecretName"), nonsense)
            if isinstance(nonsense, dict):
                status = nonsense
            await made.client.update(resource, {**obj, "status": {**status, "v1beta2": nonsense}}, subresource="status")
            await made.patch(resource, "m1", {"spec": {"providerID": nonsense, "failureDomain": nonsense}})
        await made.settle()
        machine = await made.get(MACHINES, "m1")
        assert machine["status"]["phase"] == "Pending" and machine["status"]["observedGeneration"] == 1
        assert not [record for record in caplog.records if record.exc_info]


async def test_a_machine_whose_infrastructure_vanished_says_so_and_recovers() -> None:
    async with world(Machines) as made:
        await make(made)
        await made.provision("m1")
        await made.settle()
        await made.delete(TEST_MACHINES, "m1")
        await made.settle()
        machine = await made.get(MACHINES, "m1")
        gone = "TestMachine has been deleted while the Machine still exists"
        assert told(machine, "InfrastructureReady") == ("False", "ObjectDeleted", gone)
        deprecated = machine["status"]["deprecated"]["v1beta1"]
        assert deprecated["failureReason"] == "InvalidConfiguration"
        assert deprecated["failureMessage"] == (
            "Machine infrastructure resource TestMachine herd/m1 has been deleted after provisioning was completed"
        )
        await made.create(TEST_MACHINES, thing(INFRA, "TestMachine", "m1"))
        await made.provision("m1")
        await made.settle()
        assert told(await made.get(MACHINES, "m1"), "InfrastructureReady")[0] == "True"


async def test_a_providers_failure_is_repeated_in_the_older_fields() -> None:
    async with world(Machines) as made:
        await make(made)
        await made.patch(TEST_MACHINES, "m1", {"status": {"failureReason": "CreateError", "failureMessage": "no room"}}, "status")
        await made.settle()
        deprecated = (await made.get(MACHINES, "m1"))["status"]["deprecated"]["v1beta1"]
        assert deprecated["failureReason"] == "CreateError"
        assert deprecated["failureMessage"] == (
            f'Failure detected from referenced resource {INFRA}/v1, Kind=TestMachine with name "m1": no room'
        )


# --- certificates ----------------------------------------------------------------------------------------------------------


async def test_a_control_planes_machine_says_when_its_certificates_expire() -> None:
    async with world(Machines) as made:
        await made.cluster()
        await made.machine("m1", labels={"cluster.x-k8s.io/control-plane": ""})
        expiry = "machine.cluster.x-k8s.io/certificates-expiry"
        await made.patch(TEST_CONFIGS, "m1", {"metadata": {"annotations": {expiry: "2028-01-01T02:00:00+02:00"}}})
        await made.settle()
        assert (await made.get(MACHINES, "m1"))["status"]["certificatesExpiryDate"] == "2028-01-01T00:00:00Z"
        await made.patch(MACHINES, "m1", {"metadata": {"annotations": {expiry: "2029-01-01T00:00:00Z"}}})
        await made.settle()
        assert (await made.get(MACHINES, "m1"))["status"]["certificatesExpiryDate"] == "2029-01-01T00:00:00Z"
        await made.patch(MACHINES, "m1", {"metadata": {"annotations": {expiry: None}}})
        await made.patch(TEST_CONFIGS, "m1", {"metadata": {"annotations": {expiry: "soon"}}})
        await made.settle()
        await made.patch(TEST_CONFIGS, "m1", {"metadata": {"annotations": {expiry: None}}})
        await made.settle()
        assert "certificatesExpiryDate" not in (await made.get(MACHINES, "m1"))["status"]


# --- pause -----------------------------------------------------------------------------------------------------------------


async def test_a_paused_machine_only_says_that_it_is() -> None:
    async with world(Machines) as made:
        await made.cluster(paused=True)
        await made.machine("m1")
        await made.settle()
        machine = await made.get(MACHINES, "m1")
        assert told(machine, "Paused") == ("True", "Paused", "Cluster spec.paused is set to true")
        assert [each["type"] for each in machine["status"]["conditions"]] == ["Paused"]
        assert owners(await made.get(TEST_MACHINES, "m1")) == []
        await made.patch(CLUSTERS, "c1", {"spec": {"paused": False}})
        await made.settle(0.5)
        machine = await made.get(MACHINES, "m1")
        assert told(machine, "Paused") == ("False", "NotPaused", "")
        assert machine["status"]["phase"] == "Pending"


# --- few writes ------------------------------------------------------------------------------------------------------------


async def test_a_machine_costs_few_writes() -> None:
    async with world(Machines) as made:
        sent: list[str] = []
        patch = made.core.client.patch

        async def counted(resource: GroupVersionResource, name: str, *rest: Any, **options: Any) -> Obj:
            sent.append("/".join(filter(None, (resource.resource, options.get("subresource")))))
            return await patch(resource, name, *rest, **options)

        made.core.client.patch = counted  # type: ignore[method-assign]
        workload = await initialized(made, (await make(made))["spec"]["clusterName"])
        for step in (made.bootstrap, made.provision):
            await step("m1")
            await made.settle()
        await workload.client.create(NODES, node("n", "test:///m1"))
        await made.settle()
        assert (await made.get(MACHINES, "m1"))["status"]["phase"] == "Running"
        assert Counter(sent) == {
            "machines": 3,  # its finalizer and owner, its data secret, its providerID
            "machines/status": 5,  # waiting, with a cluster, bootstrapped, provisioned, running
            "testmachines": 1,
            "testconfigs": 1,
        }


async def test_a_control_planes_word_on_its_machine_is_left_as_it_is() -> None:
    async with world(Machines) as made:
        machine = await make(made)
        since = machine["status"]["conditions"][0]["lastTransitionTime"]
        said = {
            "type": "UpToDate",
            "status": "True",
            "reason": "R",
            "message": "",
            "lastTransitionTime": since,
            "observedGeneration": 1,
        }
        await made.patch(MACHINES, "m1", {"status": {"conditions": [*machine["status"]["conditions"], said]}}, "status")
        await made.bootstrap("m1")
        await made.settle()
        machine = await made.get(MACHINES, "m1")
        seen = {each["type"]: each["observedGeneration"] for each in machine["status"]["conditions"]}
        assert seen.pop("UpToDate") == 1 and set(seen.values()) == {2}
        assert machine["status"]["observedGeneration"] == 2


async def test_a_machine_whose_cluster_is_gone_goes_with_all_that_is_its_own() -> None:
    async with world(Machines) as made:
        await make(made)
        await made.delete(CLUSTERS, "c1")
        await made.settle(60)
        assert await made.find(MACHINES, "m1") is None
        assert await made.find(TEST_MACHINES, "m1") is None


async def test_a_machine_that_is_done_is_not_written_again() -> None:
    async with world(Machines) as made:
        await make(made)
        await made.bootstrap("m1")
        await made.provision("m1")
        await initialized(made)
        await made.settle(5)
        before = [resource_version_of(await made.get(resource, "m1")) for resource in (MACHINES, TEST_MACHINES, TEST_CONFIGS)]
        await made.settle(2000)
        after = [resource_version_of(await made.get(resource, "m1")) for resource in (MACHINES, TEST_MACHINES, TEST_CONFIGS)]
        assert before == after
