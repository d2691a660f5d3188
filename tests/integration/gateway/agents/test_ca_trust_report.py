"""Which hosts and cluster agents the server knows, and what it knows of the CAs that they trust."""

from __future__ import annotations

import base64
import json

from remuda.api import cluster_x_k8s_io as capi
from remuda.api import rke_cattle_io as rke
from remuda.apiserver.keys.ca_followers import NO_REPORT
from remuda.gateway.agents.ca_trust_report import NOT_REGISTERED, KnownClients
from tests.integration.gateway.running_gateway import standing
from tests.unit.gateway.agents.test_agent_claims import authority
from tests.unit.provisioning.plans.test_plansecret import controllers
from tests.unit.provisioning.rke_machines import DEMO, ETCD, FLEET, machines

ONE = "a" * 64
OTHER = base64.b64decode(authority()).decode()


async def test_hosts_are_known_by_what_they_say_in_their_plans() -> None:
    async with machines(controllers) as made:
        await made.demo()
        for name in ("says", "silent", "theirs", "coming", "leaving"):
            await made.machine(name, labels=ETCD)
        await made.settle(3)
        for name in ("says", "silent", "theirs"):
            await made.give_plan(name)
            await made.answer(name, plan_revision="1")
        for name in ("says", "silent"):
            await made.answer(name, agent=json.dumps({"trusts": [ONE]}))
        healthy = {"type": "NodeHealthy", "reason": "x", "message": "", "lastTransitionTime": "2026-01-01T00:00:00Z"}
        for name, status in (("says", "True"), ("silent", "Unknown")):
            said = {"status": {"conditions": [{**healthy, "status": status}]}}
            await made.patch(capi.MACHINES, name, said, FLEET, "status")
        await made.patch(rke.RKE_BOOTSTRAPS, "leaving", {"metadata": {"finalizers": ["a.b/c"]}}, FLEET)
        await made.client.delete(rke.RKE_BOOTSTRAPS, "leaving", FLEET)
        found = {each.name: each for each in await KnownClients(made.client).all()}
        assert {each.kind for each in found.values()} == {"host"} and {each.cluster for each in found.values()} == {DEMO}
        assert {name: (each.trusts, each.silent_since) for name, each in found.items()} == {
            f"{FLEET}/says": ((ONE,), ""),
            f"{FLEET}/silent": ((ONE,), "2026-01-01T00:00:00Z"),
            f"{FLEET}/theirs": (None, ""),
            f"{FLEET}/coming": (None, ""),
        }
        assert (found[f"{FLEET}/theirs"].why, found[f"{FLEET}/coming"].why) == (NO_REPORT, NOT_REGISTERED)
        # Who trusts another CA needs none of ours.
        assert await KnownClients(made.client, is_given=True).all() == []
        assert await KnownClients(made.client, environment={"CATTLE_CACERTS": OTHER}).all() == []


async def test_the_bundles_of_before_are_shown_unless_clients_trust_another_ca() -> None:
    async with standing() as place:
        (clients,) = place.server.followers
        assert await clients() == []
        place.server.former = ("the old one and the new one",)
        assert await (await place.get("/cacerts/former")).json() == {"bundles": ["the old one and the new one"]}
        place.server.certificate_is_given = True
        assert await (await place.get("/cacerts/former")).json() == {"bundles": []}
