"""Trying to have the server run something, with its own Job runner on: as each kind of user, with tokens that are real.

There is a cluster whose one machine a Job has made, a process beside the server. So every token that such a cluster brings is
there: of its owners and members, of its node and its agent, of the Job itself.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Iterator
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest

from remuda.access.roles.cluster_access import EDITING
from remuda.hosts.hosts import Hosts
from remuda.machines.machineprovision.well_known import JOB_UID, job_name, state_name
from remuda.provisioning.well_known import BOOTSTRAP_TOKEN

from .fronted import FROM_NOWHERE, fronted
from .harness import CLUSTERS, MANAGEMENT, Cluster, Gateway, Person, until
from .test_node_drivers import BOTH, CONFIGS, CRDS, DRIVERS, JSON_PATCH, MACHINES, SCHEMAS, config, driver
from .test_node_drivers import _knows_who_holds_what as knows_who_holds_what
from .test_security import WEBSOCKET

pytestmark = pytest.mark.timeout(900)

Obj = dict[str, Any]
NAME, WORKSPACE = "prey", "fleet-default"
CORE = f"/api/v1/namespaces/{WORKSPACE}"
JOBS = f"/apis/batch/v1/namespaces/{WORKSPACE}/jobs"
RBAC = f"/apis/rbac.authorization.k8s.io/v1/namespaces/{WORKSPACE}"
CAPI_MACHINES = f"/apis/cluster.x-k8s.io/v1beta2/namespaces/{WORKSPACE}/machines"
PATIENCE = 300.0
# By their global roles; the last one is made here.
USERS = {"standard": "user", "reader": "read-only", "base": "user-base", "drivers": "drivers-of-all-kinds"}

EVERYBODY = [*USERS, "owner", "member", "node's", "agent's", "bootstrap's", "plan's", "Job's", "nobody"]


@dataclass
class World:
    gateway: Gateway
    hosts: Hosts
    marker: Path
    cluster: Cluster
    # The machine of the driver's kind, as it was when it was made.
    infra: Obj
    callers: dict[str, Person] = field(default_factory=dict)

    def get(self, path: str) -> Obj:
        answer = self.gateway.endpoint.request("GET", path)
        assert answer.status == 200, (path, answer.body)
        found: Obj = answer.json
        return found

    def machines(self) -> dict[str, Obj]:
        return {each["metadata"]["name"]: each for each in self.get(f"{MACHINES}/localmachines")["items"]}

    def made(self) -> dict[str, Obj]:
        """Those that their Job has made."""
        return {name: each for name, each in self.machines().items() if _is_ready(each)}


def _is_ready(infra: Obj) -> bool:
    return any(each["type"] == "Ready" and each["status"] == "True" for each in infra.get("status", {}).get("conditions") or [])


def on_our_own(directory: Path) -> Gateway:
    return Gateway(directory / "gateway", "--controllers=*", "--job-runner=local", environ=FROM_NOWHERE)


def on_kubernetes(directory: Path) -> AbstractContextManager[Gateway]:
    return fronted(directory, FROM_NOWHERE, "--job-runner=local")


@pytest.fixture(scope="module", params=BOTH)
def world(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    directory = tmp_path_factory.mktemp(request.param)
    with on_our_own(directory) if request.param == "embedded" else on_kubernetes(directory) as gateway:
        gateway.announced()
        until(lambda: knows_who_holds_what(gateway))
        hosts = Hosts(gateway.directory / "hosts")
        try:
            yield _world(gateway, hosts, directory / "evil")
            assert gateway.tracebacks() == [], gateway.told()[-8000:]
        finally:
            for host in hosts.all():
                hosts.remove(host.name)


def _world(gateway: Gateway, hosts: Hosts, marker: Path) -> World:
    gateway.there(CORE)
    gateway.there(f"{CONFIGS}/localconfigs")
    gateway.made(f"{CONFIGS}/localconfigs", config("LocalConfig", NAME))
    gateway.made(CLUSTERS, wanted(NAME, pool("all", "LocalConfig", NAME)))
    until(lambda: bool(gateway.endpoint.request("GET", f"{CLUSTERS}/{NAME}").json.get("status", {}).get("clusterName")))
    identity = gateway.endpoint.request("GET", f"{CLUSTERS}/{NAME}").json["status"]["clusterName"]
    world = World(gateway, hosts, marker, Cluster(gateway, NAME, identity), {})
    until(lambda: len(world.made()) == 1, PATIENCE, log=gateway)
    (world.infra,) = world.made().values()
    rule = {"apiGroups": ["management.cattle.io"], "resources": ["nodedrivers"], "verbs": [*EDITING, "create"]}
    gateway.made(f"{MANAGEMENT}/globalroles", {"kind": "GlobalRole", "metadata": {"name": USERS["drivers"]}, "rules": [rule]})
    world.callers = {name: gateway.user(name, role) for name, role in USERS.items()}
    for name in ("owner", "member"):
        person = world.callers[name] = gateway.user(name)
        gateway.bind(identity, person, f"cluster-{name}")
        until(lambda person=person: person.request("GET", f"{CLUSTERS}/{NAME}").status == 200, log=gateway)  # type: ignore[misc]
    world.callers |= {name: Person(gateway, token) for name, token in _tokens(world).items()}
    return world


def _tokens(world: World) -> dict[str, str]:
    """What hosts, agents and Jobs show, as the server gave it to them."""
    found: dict[str, str] = {}
    selector = "type%3Dkubernetes.io/service-account-token"

    def all_given() -> bool:
        """Each is made by somebody else, in its own time."""
        found.update({"node's": world.cluster.token("node-token"), "agent's": world.cluster.token()})
        for secret in world.get(f"{CORE}/secrets?fieldSelector={selector}")["items"]:
            marks = secret["metadata"]["annotations"]
            kind = "bootstrap's" if marks.get(BOOTSTRAP_TOKEN) == "true" else "plan's"
            found[kind] = base64.b64decode((secret.get("data") or {}).get("token") or "").decode()
        return len(found) == 4 and all(found.values())

    until(all_given, PATIENCE, log=world.gateway)
    account = f"{CORE}/serviceaccounts/{job_name(world.infra['metadata']['name'])}/token"
    asked = json.dumps({"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": {}}).encode()
    given = world.gateway.endpoint.request("POST", account, asked, {"Content-Type": "application/json"})
    assert given.status == 201, given.body
    found["Job's"] = given.json["status"]["token"]
    assert set(found) == {"node's", "agent's", "bootstrap's", "plan's", "Job's"} and all(found.values())
    return found


def pool(name: str, kind: str, named: str) -> Obj:
    roles = dict.fromkeys(("etcdRole", "controlPlaneRole", "workerRole"), True)
    return {"name": name, "quantity": 1, **roles, "machineConfigRef": {"kind": kind, "name": named}}


def wanted(name: str, *pools: Obj) -> Obj:
    spec = {"kubernetesVersion": "v1.34.1+remuda1", "rkeConfig": {"machinePools": list(pools)}}
    metadata = {"name": name, "namespace": WORKSPACE}
    return {"apiVersion": "provisioning.cattle.io/v1", "kind": "Cluster", "metadata": metadata, "spec": spec}


def job(world: World, name: str, infra: Obj) -> Obj:
    """One that looks like the machine's own, and does something else."""
    own = infra["metadata"]["name"]
    labels = {
        "rke.cattle.io/infra-machine-group": "rke-machine.cattle.io",
        "rke.cattle.io/infra-machine-version": "v1",
        "rke.cattle.io/infra-machine-kind": "LocalMachine",
        "rke.cattle.io/infra-machine-name": own,
        "rke.cattle.io/capi-machine-name": own,
        "rke.cattle.io/infra-remove": "false",
    }
    owner = {"apiVersion": infra["apiVersion"], "kind": infra["kind"], "name": own, "uid": infra["metadata"]["uid"]}
    template = {"metadata": {"labels": labels}, "spec": evil(world)}
    metadata = {"name": name, "namespace": WORKSPACE, "labels": labels, "ownerReferences": [{**owner, "controller": True}]}
    spec = {"managedBy": "remuda.dev/job-runner", "template": template}
    return {"apiVersion": "batch/v1", "kind": "Job", "metadata": metadata, "spec": spec}


def evil(world: World) -> Obj:
    container = {"name": "machine", "image": "evil", "command": ["touch", str(world.marker)]}
    return {"restartPolicy": "Never", "containers": [container]}


def named(kind: str, version: str, name: str = "evil", **fields: Any) -> Obj:
    return {"apiVersion": version, "kind": kind, "metadata": {"name": name}, **fields}


def attempts(world: World) -> list[tuple[str, str, Any]]:
    """Each of these would be a way, if it were let through."""
    infra, own = world.infra, world.infra["metadata"]["name"]
    machine = f"{MACHINES}/localmachines/{own}"
    account = job_name(own)
    everything = {"apiGroups": ["*"], "resources": ["*"], "verbs": ["*"]}
    token = {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": {}}
    of_account = {"name": "evil", "annotations": {"kubernetes.io/service-account.name": account}}
    secret = {"apiVersion": "v1", "kind": "Secret", "metadata": of_account, "type": "kubernetes.io/service-account-token"}
    elsewhere = {"url": "https://example.com/evil", "checksum": "0" * 64}
    webhook = named("MutatingWebhookConfiguration", "admissionregistration.k8s.io/v1")
    tries: list[tuple[str, str, Any]] = []
    # Jobs and pods.
    for namespace in (WORKSPACE, world.cluster.id, "default", "kube-system", "cattle-global-data"):
        tries.append(("POST", f"/apis/batch/v1/namespaces/{namespace}/jobs", job(world, "evil", infra)))
        tries.append(("POST", f"/api/v1/namespaces/{namespace}/pods", named("Pod", "v1", spec=evil(world))))
    tries += [
        ("PATCH", f"{JOBS}/{account}", {"spec": {"suspend": True}}),
        ("PATCH", f"{JOBS}/{account}/status", {"status": {"conditions": []}}),
        ("DELETE", f"{JOBS}/{account}", None),
        # Drivers and their kinds.
        ("POST", DRIVERS, driver("evil")),
        ("PATCH", f"{DRIVERS}/digitalocean", {"spec": {**elsewhere, "builtin": False}}),
        ("PATCH", f"{DRIVERS}/azure", {"spec": elsewhere}),
        ("PATCH", f"{SCHEMAS}/azureconfig", {"spec": {"resourceFields": {"evil": {"type": "string"}}}}),
        ("POST", CRDS, {}),
        ("POST", "/apis/admissionregistration.k8s.io/v1/mutatingwebhookconfigurations", webhook),
        # Machines on this machine, and what they are made from.
        ("POST", f"{CONFIGS}/localconfigs", config("LocalConfig", "evil")),
        ("POST", CLUSTERS, wanted("evil", pool("all", "LocalConfig", "evil"))),
        ("POST", f"{MACHINES}/localmachines", {**infra, "metadata": {"name": "evil", "namespace": WORKSPACE}}),
        ("POST", f"{MACHINES}/localmachinetemplates", named("LocalMachineTemplate", infra["apiVersion"], spec={})),
        ("PATCH", machine, {"metadata": {"annotations": {JOB_UID: "evil"}}}),
        ("PATCH", f"{machine}/status", {"status": {"conditions": []}}),
        ("POST", CAPI_MACHINES, {}),
        # Being who may.
        ("POST", f"{CORE}/serviceaccounts/{account}/token", token),
        ("POST", f"{CORE}/serviceaccounts/default/token", token),
        ("POST", f"{CORE}/secrets", secret),
        ("POST", f"{RBAC}/roles", named("Role", "rbac.authorization.k8s.io/v1", rules=[everything])),
        ("PATCH", f"{RBAC}/roles/{account}", {"rules": [everything]}),
    ]
    return tries


@pytest.mark.parametrize("who", EVERYBODY)
def test_no_user_gets_a_program_run(world: World, who: str) -> None:
    caller = world.callers.get(who) or world.gateway.nobody()
    for method, path, body in attempts(world):
        answer = caller.request(method, path, body, **(JSON_PATCH if method == "PATCH" else {}))
        assert answer.status in (401, 403) or _refused_by_rule(answer.status, answer.body), (method, path, answer.body)
    assert not world.marker.exists()
    assert list(world.machines()) == [world.infra["metadata"]["name"]]


@pytest.mark.parametrize("who", EVERYBODY)
def test_no_user_gets_a_shell_beside_the_server(world: World, who: str) -> None:
    """What leads its owners into other machines leads nobody into those that are directories of the server's."""
    own = world.infra["metadata"]["name"]
    path = f"/v1/cluster.x-k8s.io.machines/{WORKSPACE}/{own}?link=shell&command=touch%20{quote(str(world.marker))}"
    caller = world.callers.get(who) or world.gateway.nobody()
    if who == "owner":
        # Before they have what an owner has they are refused as others are.
        until(lambda: "none is given from elsewhere" in str(caller.request("GET", path, **WEBSOCKET).body), log=world.gateway)
    answer = caller.request("GET", path, **WEBSOCKET)
    if who == "owner":
        assert answer.status == 403 and "none is given from elsewhere" in str(answer.body), answer.body
    else:
        assert answer.status in (401, 403), (answer.status, answer.body)
    assert not world.marker.exists()


def _refused_by_rule(status: int, body: bytes | str) -> bool:
    """One of ours, that names the field."""
    return status == 422 and any(each in str(body) for each in ("the verb use on nodedrivers local", "the driver came with"))


def test_an_owner_gets_no_other_machines_here(world: World) -> None:
    """Who was given a cluster of such machines may have more of the same, and none that are made otherwise."""
    owner = world.callers["owner"]
    for pools in (
        [pool("all", "LocalConfig", NAME), pool("more", "LocalConfig", NAME)],
        [pool("all", "ContainerConfig", "evil")],
    ):
        refused = owner.request("PATCH", f"{CLUSTERS}/{NAME}", {"spec": {"rkeConfig": {"machinePools": pools}}}, **JSON_PATCH)
        assert refused.status in (403, 422) and "the verb use on nodedrivers" in refused.json["message"], refused.body
    refused = owner.request("PATCH", f"{CONFIGS}/localconfigs/{NAME}", {"evil": "yes"}, **JSON_PATCH)
    assert refused.status != 200 or "evil" not in refused.json
    state = owner.request("PATCH", f"{CORE}/secrets/{state_name(world.infra['metadata']['name'])}", {"data": {}}, **JSON_PATCH)
    assert state.status == 403


def test_who_may_make_jobs_and_pods_gets_none_run_here(world: World) -> None:
    """Not even under the name of the machine's own Job; and it keeps no machine from being made and removed."""
    gateway = world.gateway
    mallory = gateway.user("mallory")
    rights = [{"apiGroups": ["", "batch"], "resources": ["jobs", "jobs/status", "pods"], "verbs": ["*"]}]
    gateway.made(f"{RBAC}/roles", {"kind": "Role", "metadata": {"name": "jobs"}, "rules": rights})
    subject = {"apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": gateway.user_id(mallory)}
    role = {"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": "jobs"}
    gateway.made(
        f"{RBAC}/rolebindings", {"kind": "RoleBinding", "metadata": {"name": "jobs"}, "roleRef": role, "subjects": [subject]}
    )
    until(lambda: mallory.request("GET", JOBS).status == 200)
    own = world.infra["metadata"]["name"]
    assert mallory.request("POST", f"{CORE}/pods", named("Pod", "v1", spec=evil(world))).status in (201, 403)
    assert mallory.request("POST", JOBS, job(world, "evil", world.infra)).status == 201
    # In the place of the one that made the machine, and of the one that will remove it.
    assert mallory.request("DELETE", f"{JOBS}/{job_name(own)}?propagationPolicy=Background").status == 200
    until(lambda: mallory.request("POST", JOBS, job(world, job_name(own), world.infra)).status in (201, 409))
    removed = gateway.endpoint.request("DELETE", f"{CAPI_MACHINES}/{own}")
    assert removed.status in (200, 202), removed.body
    until(lambda: own not in world.machines() and len(world.made()) == 1, PATIENCE, log=gateway)
    assert [host.name for host in world.hosts.all()] == list(world.made())
    left = mallory.request("GET", f"{JOBS}/evil")
    assert left.status == 404 or not left.json.get("status", {}).get("startTime")
    assert not world.marker.exists()
