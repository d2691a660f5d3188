"""`remuda manifests` on a real kube-apiserver: applied, let in by Pod Security, and enough for both programs as these accounts.

The programs run as processes here, each with a token of its account; the API server's audit log says what they were refused.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from remuda.kube.encoding import yamlio
from tests.e2e.access.fronted import MACHINES, Fronted
from tests.e2e.access.harness import MANAGEMENT, Embedded
from tests.e2e.serving import eventually
from tests.e2e.test_controllers_command import Replica
from tests.real import need
from tests.real.cluster import RealCluster

pytestmark = [pytest.mark.real, pytest.mark.timeout(900)]

Obj = dict[str, Any]
NAMESPACE = "remuda-system"
CONTROLLERS, GATEWAY = "remuda-controllers", "remuda-gateway"
WORKSPACE = "fleet-default"
CONFIGS = f"/apis/rke-machine-config.cattle.io/v1/namespaces/{WORKSPACE}/localconfigs"
LOCAL_MACHINES = f"/apis/rke-machine.cattle.io/v1/namespaces/{WORKSPACE}/localmachines"
CLUSTERS = f"/apis/provisioning.cattle.io/v1/namespaces/{WORKSPACE}/clusters"
POLICY = """\
apiVersion: audit.k8s.io/v1
kind: Policy
omitStages: [RequestReceived]
rules:
  - level: Metadata
    users: ["system:serviceaccount:remuda-system:remuda-controllers", "system:serviceaccount:remuda-system:remuda-gateway"]
  - level: None
"""


def printed(*options: str) -> str:
    command = [sys.executable, "-m", "remuda", "manifests", "--image", "registry.example.com/remuda:1", *options]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout


@dataclass
class Account:
    """The API as one of the accounts, with its token: what :class:`Fronted` takes."""

    real: RealCluster
    kubeconfig: Path

    def __getattr__(self, name: str) -> Any:
        return getattr(self.real, name)


class Place:
    def __init__(self, real: RealCluster, directory: Path) -> None:
        self.real = real
        self.directory = directory
        self.audit = directory / "audit.log"

    def account(self, name: str) -> Account:
        token = self.real.kubectl("create", "token", name, "-n", NAMESPACE).stdout.strip()
        config = yamlio.loads(self.real.kubeconfig.read_text())
        config["users"] = [{"name": each["name"], "user": {"token": token}} for each in config["users"]]
        path = self.directory / f"{name}.kubeconfig"
        path.touch(mode=0o600)
        path.write_text(json.dumps(config))
        return Account(self.real, path)

    def asked(self) -> list[Obj]:
        # What has no end yet is being written.
        return [json.loads(line) for line in self.audit.read_text().split("\n")[:-1]]

    def refused(self) -> list[str]:
        """What the accounts themselves were refused; whom the gateway acts for may be refused."""
        found = [
            each for each in self.asked() if each.get("responseStatus", {}).get("code") == 403 and "impersonatedUser" not in each
        ]
        return sorted({f"{each['user']['username'].rpartition(':')[2]} {each['verb']} {each['requestURI']}" for each in found})


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Place]:
    need.programs("kubernetes", "etcd")
    directory = tmp_path_factory.mktemp("manifests")
    (directory / "policy.yaml").write_text(POLICY)
    audit = [f"--audit-policy-file={directory / 'policy.yaml'}", f"--audit-log-path={directory / 'audit.log'}"]
    with RealCluster(controllers=True, fsync=False, apiserver_args=audit) as real:
        yield Place(real, directory)


def test_pod_security_lets_them_in_and_the_same_again_changes_nothing(place: Place) -> None:
    real = place.real
    text = printed("--hostname", "remuda.example.com")
    real.kubectl("apply", "-f", "-", stdin=text)
    # The role of the controllers is filled in by somebody else; applied again it stays so.
    _filled_in(real)
    again = real.kubectl("apply", "-f", "-", stdin=text).stdout.splitlines()
    # A budget's selector is replaced whole, which kubectl always counts as a change.
    changed = [line for line in again if not line.endswith("unchanged") and not line.startswith("poddisruptionbudget")]
    assert changed == [], changed
    assert json.loads(real.kubectl("get", "clusterrole", CONTROLLERS, "-o", "json").stdout)["rules"]
    for options in (
        ["--hostname", "remuda.example.com"],
        ["--tls-secret", "cert", "--private-ca", "--gateway-replicas", "3", "--service-type", "LoadBalancer"],
        ["--replicas", "1", "--storage-class", "fast", "--pull-secret", "pull"],
    ):
        text = printed(*options)
        real.kubectl("apply", "--dry-run=server", "-f", "-", stdin=text)
        for each in yamlio.loads_all(text):
            if each["kind"] == "Deployment":
                pod = {**each["spec"]["template"], "apiVersion": "v1", "kind": "Pod"}
                pod["metadata"] = {**pod["metadata"], "name": "a", "namespace": NAMESPACE}
                done = real.kubectl("create", "--dry-run=server", "-f", "-", stdin=json.dumps(pod))
                assert "Warning" not in done.stderr, done.stderr


def _filled_in(real: RealCluster) -> None:
    eventually(lambda: bool(json.loads(real.kubectl("get", "clusterrole", CONTROLLERS, "-o", "json").stdout).get("rules")), 240)


def test_no_role_is_more_than_it_says(place: Place) -> None:
    for each in yamlio.loads_all(printed()):
        for rule in each.get("rules") or ():
            assert "*" not in rule["apiGroups"] and "*" not in rule["verbs"] and "nonResourceURLs" not in rule
            if "*" in rule["resources"]:
                assert all(
                    group.endswith((".cattle.io", "cluster.x-k8s.io", "authentication.k8s.io")) for group in rule["apiGroups"]
                )
    # ConfigMaps are read and given an owner, since ClusterResourceSets name them.
    for verb, what in (("delete", "nodes"), ("create", "pods"), ("create", "clusterrolebindings"), ("delete", "configmaps")):
        who = f"system:serviceaccount:{NAMESPACE}:{CONTROLLERS}"
        assert place.real.kubectl("auth", "can-i", verb, what, "--as", who, check=False).stdout.strip() == "no"
    who = f"system:serviceaccount:{NAMESPACE}:{GATEWAY}"
    assert place.real.kubectl("auth", "can-i", "delete", "nodes", "--as", who, check=False).stdout.strip() == "no"


@pytest.mark.hosts
def test_both_work_as_their_accounts_and_are_refused_nothing(place: Place, tmp_path: Path) -> None:
    real = place.real
    real.kubectl("apply", "-f", "-", stdin=printed())
    _filled_in(real)
    gateway = Fronted(
        place.account(GATEWAY),
        tmp_path / "gateway",
        {"REMUDA_SYSTEM_DEFAULT_REGISTRY": "127.0.0.1:1"},
        *("--wait-for-cluster-api", "--job-runner=local", "--system-namespace", NAMESPACE),
    )
    core: Replica | None = None
    downstream = Embedded(tmp_path / "downstream")
    try:
        # In any order: the gateway waits for the controllers.
        _begin(gateway)
        eventually(lambda: "there is no Cluster API yet" in gateway.told(), 120)
        core = Replica(place.account(CONTROLLERS).kubeconfig, tmp_path, "controllers")
        eventually(lambda: real.request("GET", MACHINES)[0] == 200, 240)
        eventually(gateway.ready, 240, gateway.told)  # type: ignore[arg-type]
        eventually(lambda: real.request("GET", f"{MANAGEMENT}/globalroles/admin")[0] == 200, 240)
        gateway.announced()

        # The first user, whose password has to be changed. People, by roles that the gateway makes; an imported cluster.
        downstream.start()
        first = gateway.first_user()
        eventually(lambda: first.request("GET", "/api/v1/nodes").status == 200, 120)
        person = gateway.user("somebody")
        with gateway.imported(downstream, "far") as imported:
            gateway.bind(imported.id, person)
            eventually(lambda: person.request("GET", imported.path("/api/v1/namespaces")).status == 200, 120)
            # While its agent is there, or it would be waited for.
            real.request("DELETE", f"{CLUSTERS}/far")
            eventually(lambda: real.request("GET", f"{CLUSTERS}/far")[0] == 404, 240)
        assert person.request("GET", "/api/v1/nodes").status == 403

        # A cluster of machines: a Job makes one.
        eventually(lambda: real.request("GET", CONFIGS)[0] == 200, 120)
        gateway.made(CONFIGS, {"kind": "LocalConfig", "metadata": {"name": "small"}})
        roles = dict.fromkeys(("etcdRole", "controlPlaneRole", "workerRole"), True)
        pool = {"name": "all", "quantity": 1, **roles, "machineConfigRef": {"kind": "LocalConfig", "name": "small"}}
        spec = {"kubernetesVersion": "v1.34.1+remuda1", "rkeConfig": {"machinePools": [pool]}}
        gateway.made(CLUSTERS, {"kind": "Cluster", "metadata": {"name": "demo"}, "spec": spec})
        eventually(lambda: _made(real), 240)
        real.request("DELETE", f"{CLUSTERS}/demo")
        eventually(lambda: real.request("GET", f"{CLUSTERS}/demo")[0] == 404, 240)
    finally:
        downstream.kill()
        gateway.end()
        if core is not None:
            core.end()
    assert place.refused() == []
    assert "Traceback" not in gateway.told() + core.log.read_text()


def _begin(gateway: Fronted) -> None:
    """Without waiting until it is ready."""
    with gateway.log.open("ab") as log:
        gateway.process = subprocess.Popen(gateway.command(), stdout=log, stderr=log, env=_environment(gateway))


def _environment(gateway: Fronted) -> dict[str, str]:
    return {**os.environ, "PYTHONUNBUFFERED": "1", **gateway.environ}


def _made(real: RealCluster) -> bool:
    code, found = real.request("GET", LOCAL_MACHINES)
    conditions = (
        [each for item in found.get("items") or () for each in item.get("status", {}).get("conditions") or ()]
        if code == 200
        else []
    )
    return any(each["type"] == "CreateJob" and each["status"] == "True" for each in conditions)
