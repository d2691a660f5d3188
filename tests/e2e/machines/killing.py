"""Servers that die at a step (:mod:`.mortal`), a cluster of one machine on them, and what must be true of it in the end."""

from __future__ import annotations

import base64
import itertools
import json
import time
from collections.abc import Iterator
from contextlib import contextmanager
from http.client import HTTPException
from pathlib import Path
from typing import Any

from remuda.hosts.environment import MARK
from remuda.hosts.hosts import Host, Hosts
from remuda.machines import machine_state
from remuda.machines import machine_state as config
from remuda.machines.machineprovision.well_known import JOB_UID, STATE_KEY, state_name
from tests.e2e.access.fronted import MACHINES, Fronted
from tests.e2e.access.harness import MANAGEMENT, Gateway
from tests.e2e.serving import eventually, send
from tests.e2e.test_controllers_command import Replica
from tests.real import need
from tests.real.cluster import RealCluster

Obj = dict[str, Any]
FLEET = "fleet-default"
_CONFIGS = f"/apis/rke-machine-config.cattle.io/v1/namespaces/{FLEET}/localconfigs"
_INFRA = f"/apis/rke-machine.cattle.io/v1/namespaces/{FLEET}/localmachines"
_MACHINES = f"/apis/cluster.x-k8s.io/v1beta2/namespaces/{FLEET}/machines"
_CLUSTERS = f"/apis/provisioning.cattle.io/v1/namespaces/{FLEET}/clusters"
# A machine that others use, too, takes its time.
_PATIENCE = 300.0


def mortal(command: list[str], plan: Path) -> list[str]:
    """The command of a server, with the hook in it."""
    python, dash_m, remuda, *words = command
    assert (dash_m, remuda) == ("-m", "remuda")
    return [python, "-P", str(Path(__file__).with_name("mortal.py")), str(plan), *words]


class MortalServer(Gateway):
    """`remuda serve`."""

    def command(self) -> list[str]:
        return mortal(super().command(), self.directory.parent / "plan.json")


class MortalGateway(Fronted):
    """`remuda gateway` on a real kube-apiserver: what runs Jobs dies, and the API does not."""

    def command(self) -> list[str]:
        return [*mortal(super().command(), self.directory.parent / "plan.json"), "--job-runner=local"]


@contextmanager
def on_kubernetes(directory: Path) -> Iterator[MortalGateway]:
    need.programs("kubernetes", "etcd")
    with RealCluster(controllers=True, fsync=False) as real:
        core = Replica(real.kubeconfig, directory, "controllers")
        gateway = MortalGateway(real, directory / "gateway", {})
        try:
            eventually(lambda: real.request("GET", MACHINES)[0] == 200, _PATIENCE, core.log.read_text()[-4000:])
            gateway.start()
            eventually(lambda: real.request("GET", f"{MANAGEMENT}/globalroles/admin")[0] == 200, _PATIENCE)
            gateway.announced()
            yield gateway
        finally:
            gateway.end()
            core.process.kill()
            core.process.wait(30)


class Story:
    """One cluster after the other on one server, each with one machine. It has etcd's role alone: so its host is registered, and
    then waits for the others of its cluster instead of costing anything."""

    def __init__(self, server: Gateway) -> None:
        self.server = server
        self._directory = server.directory / "hosts"
        self.hosts = Hosts(self._directory)
        self._plan = server.directory.parent / "plan.json"
        self._numbers = itertools.count(1)

    # --- when to die ------------------------------------------------------------------------------------------------------

    def die(self, run: str, victim: str, at: int, *, before: bool = False) -> None:
        half = self._plan.with_suffix(".half")
        half.write_text(json.dumps({"run": run, "victim": victim, "at": at, "before": before}))
        half.replace(self._plan)

    def steps(self, run: str) -> list[str]:
        path = self._plan.with_name(run)
        return path.read_text().splitlines() if path.exists() else []

    def killed(self) -> int:
        """How many processes were killed so far."""
        return sum(len(path.read_text().split()) for path in self._plan.parent.glob("*.killed"))

    def live(self) -> None:
        """From now on nobody dies; and whoever did is started again."""
        self._plan.unlink(missing_ok=True)
        if not self.server.alive:
            self.server.process.wait(60)  # type: ignore[union-attr]
            self.server.start()

    def _revive(self) -> None:
        """Where somebody did die; who is only slow may do so yet."""
        time.sleep(0.1)
        if not self.server.alive:
            self.live()

    # --- the cluster ------------------------------------------------------------------------------------------------------

    def whole(self, victim: str, making: int, removing: int, *, before: bool = False) -> tuple[list[str], list[str]]:
        """A cluster is declared and deleted; the victim dies at these steps (0: never). Which steps they were, up to then."""
        name = f"c{next(self._numbers)}"
        self.die(f"{name}-making", victim, making, before=before)
        self._declare(name)
        self._outlived(lambda: self.is_made(name))
        self.check_made(name)
        self.die(f"{name}-removing", victim, removing, before=before)
        self._delete(name)
        self._outlived(lambda: self.is_gone(name))
        self.check_gone(name)
        return self.steps(f"{name}-making"), self.steps(f"{name}-removing")

    def _outlived(self, true: Any) -> None:
        """It becomes true, whoever dies of the plan, and is so when nobody can any more."""
        self._until(true)
        self.live()
        self._until(true)
        # Who had read the plan before it was taken away may have died since.
        while not self.server.alive:
            self.live()
            self._until(true)

    def _until(self, true: Any) -> None:
        """Or until the server is dead, which is as good an end of a first life."""
        end = time.monotonic() + _PATIENCE
        while self.server.alive:
            try:
                if true():
                    return
            except (OSError, HTTPException):
                # It died under the question.
                pass
            assert time.monotonic() < end, f"it did not become true:\n{self._said()}"
            time.sleep(0.1)

    def _declare(self, name: str) -> None:
        config = {"apiVersion": "rke-machine-config.cattle.io/v1", "kind": "LocalConfig", "metadata": {"name": name}}
        reference = {"kind": "LocalConfig", "name": name}
        pool = {"name": "all", "quantity": 1, "etcdRole": True, "machineConfigRef": reference}
        spec = {"kubernetesVersion": "v1.34.1+remuda1", "rkeConfig": {"machinePools": [pool]}}
        cluster = {"apiVersion": "provisioning.cattle.io/v1", "kind": "Cluster", "metadata": {"name": name}, "spec": spec}
        for path in (f"/api/v1/namespaces/{FLEET}", _CONFIGS, _INFRA):
            eventually(lambda path=path: self._answers(path), _PATIENCE)  # type: ignore[misc]
        for path, body in ((_CONFIGS, config), (_CLUSTERS, cluster)):
            self._sent("POST", path, body, (201, 409))

    def _answers(self, path: str) -> bool:
        try:
            return self.server.endpoint.request("GET", path).status == 200
        except (OSError, HTTPException):
            # What is left to be done of the cluster before may be the step to die at.
            self._revive()
            return False

    def _delete(self, name: str) -> None:
        self._sent("DELETE", f"{_CLUSTERS}/{name}", None, (200, 202, 404))

    def _sent(self, method: str, path: str, body: Any, good: tuple[int, ...]) -> None:
        """As somebody does it who tries again when there is no answer: the server may have died of the question."""
        end = time.monotonic() + _PATIENCE
        while True:
            try:
                answer = send(self.server.endpoint, method, path, body)
            except (OSError, HTTPException):
                self._revive()
                continue
            # Who has just started does not know yet what to allow; and who has just died can't be asked by the API.
            if (answer.status == 503 or b"failed calling webhook" in answer.raw) and time.monotonic() < end:
                self._revive()
                continue
            assert answer.status in good, (path, answer.status, answer.body)
            return

    # --- what there is ----------------------------------------------------------------------------------------------------

    def _items(self, path: str, cluster: str) -> list[Obj]:
        answer = self.server.endpoint.request("GET", f"{path}?labelSelector=cluster.x-k8s.io/cluster-name={cluster}")
        if answer.status != 200:
            raise OSError(answer.status)
        found: list[Obj] = answer.json["items"]
        return found

    def _hosts(self, cluster: str) -> list[Host]:
        return [host for host in self.hosts.all() if host.name.startswith(f"{cluster}-")]

    def is_made(self, cluster: str) -> bool:
        """One machine of one that is wanted, as far as the API says, and what was there for its Job is cleared away."""
        machines, infra = self._items(_MACHINES, cluster), self._items(_INFRA, cluster)
        if len(machines) != 1 or len(infra) != 1 or any("deletionTimestamp" in each["metadata"] for each in infra):
            return False
        conditions = (infra[0].get("status") or {}).get("conditions") or []
        if not any(each["type"] == "Ready" and each["status"] == "True" for each in conditions):
            return False
        if not infra[0]["spec"].get("providerID"):
            # What its node would say, which never comes: there is no cluster without the other roles.
            path, patch = f"{_INFRA}/{infra[0]['metadata']['name']}", {"spec": {"providerID": f"remuda://{cluster}"}}
            send(self.server.endpoint, "PATCH", path, patch, "application/merge-patch+json")
            return False
        return JOB_UID not in (infra[0]["metadata"].get("annotations") or {})

    def check_made(self, cluster: str) -> None:
        """The provider has it, it is ours, and we know that it is this one."""
        (infra,) = self._items(_INFRA, cluster)
        name = infra["metadata"]["name"]
        (host,) = self._hosts(cluster)
        assert host.running and host.name == name
        note = json.loads(host.record.note)
        owner = self.server.endpoint.request("GET", "/api/v1/namespaces/kube-system").json["metadata"]["uid"]
        secret = self.server.endpoint.request("GET", f"/api/v1/namespaces/{FLEET}/secrets/{state_name(name)}").json
        kept = config.loads(machine_state.read(base64.b64decode(secret["data"][STATE_KEY]), name)[1], name)
        assert kept is not None and kept.token, "its state is kept"
        assert note == {"machine": name, "owner": owner, "token": kept.token}
        assert kept.state["IPAddress"] == host.record.address

    def is_gone(self, cluster: str) -> bool:
        if self.server.endpoint.request("GET", f"{_CLUSTERS}/{cluster}").status != 404:
            return False
        return not self._items(_MACHINES, cluster) and not self._items(_INFRA, cluster)

    def check_gone(self, cluster: str) -> None:
        """Nothing of it is left at the provider: no host, no half of one, no process."""
        left = [path.name for path in self._directory.glob(f"*{cluster}-*")]
        assert [name for name in left if not name.endswith(".lock")] == [], left
        # Who looks for hosts that are to be started may be about to find that there is none of this name.
        eventually(lambda: not list(self._directory.glob(f"*{cluster}-*")), _PATIENCE, f"something is left of {left}")
        assert list(self._processes()) == []

    def _processes(self) -> Iterator[str]:
        """Of hosts that are no more."""
        known = {host.record.id for host in self.hosts.all()}
        for entry in Path("/proc").iterdir():
            try:
                variables = (entry / "environ").read_bytes().split(b"\0") if entry.name.isdigit() else []
                command = (entry / "cmdline").read_bytes() if variables else b""
            except OSError:
                continue
            said = dict(each.decode(errors="replace").partition("=")[::2] for each in variables)
            if said.get("CATTLE_HOST_ROOT", "").startswith(str(self._directory)) and said.get(MARK) not in known:
                yield command.replace(b"\0", b" ").decode()

    def _said(self) -> str:
        return self.server.told()[-6000:]

    def close(self) -> None:
        for host in self.hosts.all():
            self.hosts.remove(host.name)
