"""The planner with the plans that hosts really get: a cluster is built and upgraded by them, drained where it is asked for."""

from __future__ import annotations

from dataclasses import replace

import pytest

from remuda.provisioning import well_known
from remuda.provisioning.planner.decide import plan
from remuda.provisioning.planner.decision import Decision
from remuda.provisioning.planner.drain import drain_hash
from remuda.provisioning.planner.render import PlanInputs, renderer
from remuda.provisioning.planner.snapshot import ClusterSnapshot
from remuda.provisioning.plans.plan import Plan, instruction
from remuda.provisioning.releases import catalog

from .world import World, applied, machine, named, snapshot, url

FROM, TO = "v1.34.1+remuda1", "v1.34.2+remuda1"
DRAINED = {"controlPlaneDrainOptions": {"enabled": True}, "workerDrainOptions": {"enabled": True}}


class Hosts(World):
    """Hosts whose plans come from the real renderer."""

    def look(self) -> Decision:
        version = self.picture.control_plane.version
        decision = plan(self.picture, renderer(PlanInputs(catalog.built_in().release(version))))
        self.picture = applied(self.picture, decision)
        return decision

    def _version(self, of: Plan) -> str:
        found = instruction(of, "install")
        assert found is not None
        return found.image.rpartition(":")[2].replace("-", "+")

    def until_done(self) -> list[str]:
        """The names of machines in the order in which they got plans."""
        order: list[str] = []
        for _ in range(200):
            decision = self.look()
            order += [name for name, change in decision.secrets.items() if change.plan is not None]
            if decision.applied:
                return order
            self.act()
        raise AssertionError([wait.evidence for wait in decision.waits])


@pytest.mark.parametrize("roles", [["ecw"], ["ecw"] * 3, ["ec", "ec", "ec", "w", "w"]])
def test_a_cluster_is_built_and_upgraded_in_place(roles: list[str]) -> None:
    members = [machine(f"m{index}", role, infrastructure_kind="CustomMachine") for index, role in enumerate(roles)]
    place = Hosts(snapshot(*members, spec={"kubernetesVersion": FROM, "upgradeStrategy": DRAINED}))
    built = place.until_done()
    assert built[0] == "m0" and set(built) == {member.name for member in members}
    assert all(named(place.picture, name).joined_to == url("m0") for name in built[1:] if named(place.picture, name).is_etcd)
    assert not any(change.plan for change in place.look().secrets.values())
    before = {name: named(place.picture, name).node for name in built}
    place.picture = _with_version(place, TO)
    upgraded = place.until_done()
    assert upgraded == sorted(upgraded) and set(upgraded) == set(built)
    for name in built:
        old, new = before[name], named(place.picture, name).node
        assert old is not None and new is not None and drain_hash(old.plan) != drain_hash(new.plan)
        assert well_known.DRAIN_OPTIONS not in named(place.picture, name).plan_annotations


def _with_version(place: Hosts, version: str) -> ClusterSnapshot:
    head = place.picture.control_plane
    return replace(place.picture, control_plane=replace(head, spec={**head.spec, "kubernetesVersion": version}))
