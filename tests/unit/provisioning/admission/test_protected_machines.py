"""Machines that one write must not take: the last of etcd or of the control plane, and more of etcd than a majority can spare."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from remuda.api import cluster_x_k8s_io as capi
from remuda.api import provisioning_cattle_io as provisioning
from remuda.api import rke_cattle_io as rke
from remuda.capi.well_known import DEPLOYMENT_NAME, MOVED_AWAY
from remuda.kube.admission_attributes import DELETE, UPDATE, Attributes
from remuda.kube.authorization.users import SYSTEM
from remuda.kube.errors import ApiError
from remuda.kube.objects import annotations_of, name_of, with_metadata
from remuda.provisioning.admission.machine_loss import majority, spare, why_last, why_no_majority
from remuda.provisioning.well_known import (
    DELETE_ETCD_MAJORITY,
    DELETE_LAST_CONTROL_PLANE,
    DELETE_LAST_ETCD,
    POOL_NAME,
    PRE_TERMINATE_HOOK,
)

from .test_provider_objects import FLEET, Stored, rules

Obj = dict[str, Any]
DEMO = "demo"
UP: Obj = {"status": {"initialization": {"controlPlaneInitialized": True}}}
GROUPS = {"clusters": provisioning.GROUP, "rkecontrolplanes": rke.GROUP}


def machine(name: str, roles: str = "ec", pool: str = "servers", node: str = "NodeReady", **annotations: str) -> Obj:
    """`node` is the reason of its condition NodeReady; "" if it never became a node."""
    roles_by_letter = {"e": "etcd", "c": "control-plane", "w": "worker"}
    labels = {f"rke.cattle.io/{roles_by_letter[letter]}-role": "true" for letter in roles}
    if pool:
        labels |= {POOL_NAME: pool, DEPLOYMENT_NAME: f"{DEMO}-{pool}"}
    states = {"NodeReady": "True", "NodeNotReady": "False"}
    ready = {"type": "NodeReady", "status": states.get(node, "Unknown"), "reason": node}
    return {
        "metadata": {"name": name, "namespace": FLEET, "uid": name, "labels": labels, "annotations": annotations},
        "spec": {"clusterName": DEMO},
        "status": {"nodeRef": {"name": name}, "conditions": [ready]} if node else {},
    }


def leaving(of: Obj, *, held: bool = True) -> Obj:
    annotations = {**annotations_of(of), **({PRE_TERMINATE_HOOK: "x"} if held else {})}
    return with_metadata(of, deletionTimestamp="2026-01-01T00:00:00Z", annotations=annotations)


def pool(name: str = "servers", roles: str = "ec", quantity: int = 3) -> Obj:
    fields = {"e": "etcdRole", "c": "controlPlaneRole", "w": "workerRole"}
    return {"name": name, "quantity": quantity, **{fields[letter]: True for letter in roles}}


WORKERS = pool("workers", "w", 2)


def cluster(*pools: Obj) -> Obj:
    return {"metadata": {"name": DEMO, "namespace": FLEET}, "spec": {"rkeConfig": {"machinePools": list(pools)}}, **UP}


def plane() -> Obj:
    return {"metadata": {"name": DEMO, "namespace": FLEET}, **UP}


def stored(*machines: Obj, of: Obj | None = None) -> Stored:
    wanted = of or cluster(pool(quantity=len(machines)), WORKERS)
    return Stored(machines=list(machines), rkecontrolplanes=[plane()], clusters=[wanted])


def why(there: Stored, resource: str, old: Obj, new: Obj | None = None, group: str = "") -> str:
    """The reason for which a write is refused; "" if it is not."""
    group = group or GROUPS.get(resource, capi.GROUP)
    operation = DELETE if new is None else UPDATE
    kind = rules(group, resource, there)
    asked = Attributes(operation, group, kind.version, resource, "", FLEET, name_of(old), SYSTEM, obj=new, old=old)
    try:
        kind.check(asked)
    except ApiError as error:
        return error.message
    return ""


THREE = [machine(name) for name in "abc"]
FIVE = [machine(name) for name in "abcde"]


# --- machines -----------------------------------------------------------------------------------------------------------------


def test_one_member_of_etcd_after_another_may_be_deleted() -> None:
    assert why(stored(*THREE), "machines", THREE[0]) == ""
    said = why(stored(leaving(THREE[0]), *THREE[1:]), "machines", THREE[1])
    assert "Machine b: etcd has 3 members and can spare 1 at a time, and a is leaving: wait until that is done" in said
    assert f"or annotate the Machines with {DELETE_ETCD_MAJORITY}=true" in said
    assert why(stored(leaving(THREE[0], held=False), *THREE[1:]), "machines", THREE[1]) == "", "its member has left"


def test_of_five_two_may_leave_at_once_and_of_two_one() -> None:
    assert why(stored(leaving(FIVE[0]), *FIVE[1:]), "machines", FIVE[1]) == ""
    assert "a, b are leaving" in why(stored(leaving(FIVE[0]), leaving(FIVE[1]), *FIVE[2:]), "machines", FIVE[2])
    assert why(stored(*THREE[:2]), "machines", THREE[0]) == ""


def test_a_member_must_stay_while_others_are_not_ready() -> None:
    down = machine("b", node="NodeNotReady")
    said = why(stored(THREE[0], down, THREE[2]), "machines", THREE[0])
    assert "Machine a: etcd needs 2 healthy members of the 2 that are left, and b is not ready: repair or delete it first" in said
    assert why(stored(THREE[0], down, THREE[2]), "machines", down) == "", "the one that is down may go"


def test_dead_machines_may_go_also_when_the_majority_is_lost() -> None:
    dead = [machine(name, node="NodeReadyUnknown") for name in "ab"]
    there = stored(*dead, THREE[2])
    assert why(there, "machines", dead[0]) == "" and why(stored(leaving(dead[0]), dead[1], THREE[2]), "machines", dead[1]) == ""
    assert "etcd has 3 members" in why(stored(leaving(dead[0]), dead[1], THREE[2]), "machines", THREE[2])


def test_a_lost_connection_does_not_make_members_dead() -> None:
    unknown = [machine(name, node="ConnectionDown") for name in "abc"]
    assert why(stored(*unknown), "machines", unknown[0]) == ""
    assert "a is leaving" in why(stored(leaving(unknown[0]), *unknown[1:]), "machines", unknown[1])


def test_an_annotation_allows_it() -> None:
    for key in (DELETE_ETCD_MAJORITY, DELETE_LAST_ETCD):
        second = machine("b", **{key: "true"})
        assert why(stored(leaving(THREE[0]), second, THREE[2]), "machines", second) == ""
    moved = machine("b", **{MOVED_AWAY: ""})
    assert why(stored(leaving(THREE[0]), moved, THREE[2]), "machines", moved) == ""


def test_the_last_control_plane_machine_stays() -> None:
    etcd, server = [machine(name, "e") for name in "abc"], machine("s", "c", "planes")
    said = why(stored(*etcd, server), "machines", server)
    assert "Machine s: no other control plane machine of its cluster is a node" in said
    assert f"annotate the Machine with {DELETE_LAST_CONTROL_PLANE}=true" in said
    for other in (leaving(machine("t", "c")), machine("t", "c", node=""), machine("t", "w")):
        assert "Machine s" in why(stored(*etcd, server, other), "machines", server)
    assert why(stored(*etcd, server, machine("t", "c")), "machines", server) == ""
    for free in (machine("s", "c", **{DELETE_LAST_CONTROL_PLANE: "true"}), machine("s", "c", node="NodeDeleted")):
        assert why(stored(*etcd, free), "machines", free) == ""


def test_workers_and_clusters_that_were_never_up_are_not_judged() -> None:
    worker = machine("w", "w", "workers")
    assert why(stored(*THREE, worker), "machines", worker) == ""
    young = Stored(machines=THREE, rkecontrolplanes=[{"metadata": {"name": DEMO, "namespace": FLEET}}])
    assert why(young, "machines", THREE[0]) == why(young, "machinedeployments", deployment()) == ""


def test_a_role_is_not_taken_from_the_last_machine_with_it() -> None:
    only, server = machine("a", "e"), machine("a", "w")
    assert "only etcd machine" in why(stored(only), "machines", only, server)
    assert why(stored(only, machine("b", "e")), "machines", only, server) == ""
    renamed = with_metadata(only, annotations={"x": "y"})
    assert why(stored(only), "machines", only, renamed) == ""


# --- sets, deployments --------------------------------------------------------------------------------------------------------


def deployment(name: str = "servers", replicas: int = 3) -> Obj:
    return {
        "metadata": {"name": f"{DEMO}-{name}", "namespace": FLEET, "uid": "md"},
        "spec": {"clusterName": DEMO, "replicas": replicas},
    }


def test_a_deployment_that_is_made_smaller_by_hand_keeps_what_its_cluster_asks_for() -> None:
    there = stored(*THREE)
    said = why(there, "machinedeployments", deployment(), deployment(replicas=1))
    assert (
        "2 of the Machines a, b, c: 1 of the 3 etcd machines that the cluster asks for would be left, and a majority is 2" in said
    )
    assert "change the machine pools of the cluster instead" in said
    assert why(there, "machinedeployments", deployment(), deployment(replicas=2)) == ""
    assert why(there, "machinedeployments", deployment(), deployment(replicas=5)) == ""
    # The cluster's pool was made smaller before.
    smaller = stored(*THREE, of=cluster(pool(quantity=1), WORKERS))
    assert why(smaller, "machinedeployments", deployment(), deployment(replicas=1)) == ""


def test_a_pool_that_was_replaced_goes_when_enough_of_the_other_one_are_members() -> None:
    wanted = cluster(pool("others"), WORKERS)
    others = [machine(name, pool="others") for name in "xyz"]
    assert "only etcd machine" in why(stored(*THREE, of=wanted), "machinedeployments", deployment())
    assert "1 of the 3" in why(stored(*THREE, others[0], of=wanted), "machinedeployments", deployment())
    assert why(stored(*THREE, *others[:2], of=wanted), "machinedeployments", deployment()) == ""


def test_a_set_of_a_rollout_is_left_to_its_deployment() -> None:
    owner = {"apiVersion": capi.API_VERSION, "kind": "MachineDeployment", "name": "x", "uid": "md", "controller": True}
    mine = {"apiVersion": capi.API_VERSION, "kind": "MachineSet", "name": "s", "uid": "ms", "controller": True}
    of_set = [with_metadata(each, ownerReferences=[mine]) for each in THREE]
    orphan = with_metadata(deployment(), name="s", uid="ms")
    owned = with_metadata(orphan, ownerReferences=[owner])
    there = stored(*of_set)
    smaller = {**orphan, "spec": {**orphan["spec"], "replicas": 1}}
    assert "2 of the Machines a, b, c" in why(there, "machinesets", orphan, smaller)
    assert why(there, "machinesets", owned, {**owned, "spec": smaller["spec"]}) == ""
    assert "only etcd machine" in why(there, "machinesets", owned), "its deletion is no rollout"


# --- the cluster --------------------------------------------------------------------------------------------------------------


def test_pools_are_not_made_smaller_by_more_than_a_majority_can_spare() -> None:
    before = cluster(pool(), WORKERS)
    there = stored(*THREE, of=before)
    said = why(there, "clusters", before, cluster(pool(quantity=1), WORKERS))
    assert "spec.rkeConfig.machinePools" in said
    assert (
        "2 of the Machines a, b, c: etcd has 3 members and can spare 1 at a time: take 1 first, and go on when it has left"
        in said
    )
    for fine in (
        cluster(pool(quantity=2), WORKERS),
        cluster(pool(), pool("workers", "w", 0)),
        cluster(pool(quantity=5), WORKERS),
    ):
        assert why(there, "clusters", before, fine) == ""
    allowed = [machine(name, **{DELETE_ETCD_MAJORITY: "true"}) for name in "ab"]
    assert why(stored(*allowed, THREE[2], of=before), "clusters", before, cluster(pool(quantity=1), WORKERS)) == ""


@pytest.mark.parametrize("changed", [[], [pool(roles="c")], [pool(roles="w")]], ids=["removed", "no etcd", "worker"])
def test_a_pool_is_not_taken_from_etcd(changed: list[Obj]) -> None:
    hosts = [machine(name, "ec", "") for name in "xy"]
    before = cluster(pool(), WORKERS)
    there = stored(*THREE, *hosts, of=before)
    assert "Machine a, b, c: etcd has 5 members and can spare 2" in why(there, "clusters", before, cluster(*changed, WORKERS))


def test_pools_that_take_each_others_place_are_admitted() -> None:
    before = cluster(pool(), WORKERS)
    there = stored(*THREE, of=before)
    assert why(there, "clusters", before, cluster(pool("others"), WORKERS)) == ""
    assert why(there, "clusters", before, cluster(pool(quantity=1), pool("others", quantity=2), WORKERS)) == ""


def test_the_pools_keep_a_control_plane() -> None:
    before = cluster(pool("etcd", "e"), pool("planes", "c", 2), WORKERS)
    servers = [machine(name, "c", "planes") for name in "st"]
    there = stored(*[machine(name, "e", "etcd") for name in "abc"], *servers, of=before)
    said = why(there, "clusters", before, cluster(pool("etcd", "e"), WORKERS))
    assert "Machine s, t: no other control plane machine of its cluster is a node" in said
    assert why(there, "clusters", before, cluster(pool("etcd", "e"), pool("planes", "c", 1), WORKERS)) == ""


def test_what_all_machines_depend_on_goes_with_the_cluster_only() -> None:
    there = stored(*THREE)
    said = why(there, "rkecontrolplanes", plane())
    assert "all etcd machines of the cluster demo depend on it (Machine a, b, c): to delete the cluster, delete " in said
    assert "clusters.provisioning.cattle.io demo" in said and f"{DELETE_LAST_CONTROL_PLANE}=true" in said
    assert "to delete the cluster" in why(there, "clusters", cluster(), group=capi.GROUP)
    for mark in (MOVED_AWAY, DELETE_LAST_CONTROL_PLANE):
        assert why(there, "rkecontrolplanes", with_metadata(plane(), annotations={mark: "true"})) == ""
    deleted = leaving(cluster(pool(), WORKERS))
    assert why(stored(*THREE, of=deleted), "rkecontrolplanes", plane()) == ""
    alone = Stored(machines=THREE, rkecontrolplanes=[plane()])
    assert why(alone, "clusters", cluster(), group=capi.GROUP) == "", "it is the whole cluster"


# --- the rule -----------------------------------------------------------------------------------------------------------------


@given(
    st.lists(st.tuples(st.booleans(), st.sampled_from(["NodeReady", "NodeNotReady", "NodeReadyUnknown"])), max_size=7), st.data()
)
def test_deletions_that_are_allowed_leave_a_majority(shape: list[tuple[bool, str]], data: st.DataObject) -> None:
    machines = [machine(f"m{index}", node=node) for index, (_, node) in enumerate(shape)]
    machines = [leaving(each) if going else each for each, (going, _) in zip(machines, shape, strict=True)]
    staying = [each for each in machines if "deletionTimestamp" not in each["metadata"]]
    if not staying:
        return
    one = data.draw(st.sampled_from(staying))
    if why_last([one], machines) or why_no_majority([one], machines):
        return
    left = [each for each in staying if each is not one]
    nodes = {name_of(each): node for each, (_, node) in zip(machines, shape, strict=True)}
    assert left
    if nodes[name_of(one)] != "NodeReadyUnknown":
        assert sum(nodes[name_of(each)] == "NodeReady" for each in left) >= majority(len(left))
        assert len(machines) - len(left) <= spare(len(machines))
