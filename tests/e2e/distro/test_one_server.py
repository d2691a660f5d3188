"""One server: what it serves, what its commands do, and that it loses nothing."""

from __future__ import annotations

import shutil
import ssl
import subprocess
import urllib.request
from pathlib import Path

import pytest
import yaml

from tests.real import need

from .machines import TOKEN, Machine, Machines, eventually

pytestmark = [pytest.mark.real, pytest.mark.hosts, pytest.mark.timeout(900)]

MAPS = "/api/v1/namespaces/default/configmaps"
SECRETS = "/api/v1/namespaces/default/secrets"


def test_a_server_is_a_cluster(machines: Machines) -> None:
    first = machines.add("first").server(**{"cluster-init": True, "node-taint": ["a=b:NoSchedule"]}).ready()
    eventually(lambda: first.ready_nodes() == {"first"})
    node = first.node("first")
    assert node["metadata"]["labels"]["node-role.kubernetes.io/control-plane"] == "true"
    assert node["status"]["addresses"][0] == {"type": "InternalIP", "address": first.address}
    # Until a controller has seen that it is ready it is tainted for that, too.
    eventually(lambda: first.node("first")["spec"]["taints"] == [{"key": "a", "value": "b", "effect": "NoSchedule"}])
    kubectl = need.programs("kubernetes")["kubectl"]
    told = subprocess.run(
        [kubectl, "--kubeconfig", str(first.kubeconfig), "get", "nodes"], capture_output=True, text=True, timeout=60, check=True
    )
    assert "control-plane,etcd" in told.stdout
    _logs_and_commands_say_that_nodes_are_simulated(first, kubectl)
    _kinds_that_nothing_acts_on_are_warned_of(first)
    _probes_are_answered(first)
    _manifests_are_applied_and_pruned(first)

    # Killed at once and started again, it has everything, and its etcd did not outlive it.
    assert first.ask("POST", MAPS, {"metadata": {"name": "kept"}}).status == 201
    first.kill()
    with pytest.raises(OSError):
        first.supervisor("/ping")
    first.start().ready()
    assert first.get(f"{MAPS}/kept")

    # Certificates are made anew when they were rotated; authorities stay.
    before = {name: (first.tls / name).read_bytes() for name in ("client-admin.crt", "server-ca.crt", "etcd/client.crt")}
    assert first.stop() == 0, first.told()
    rotated = first.run("certificate", "rotate", "-s", "admin")
    assert rotated.returncode == 0, rotated.stderr
    first.start().ready()
    assert (first.tls / "client-admin.crt").read_bytes() != before["client-admin.crt"]
    assert (first.tls / "server-ca.crt").read_bytes() == before["server-ca.crt"]
    assert (first.tls / "etcd/client.crt").read_bytes() == before["etcd/client.crt"]
    assert "Traceback" not in first.told()


def _logs_and_commands_say_that_nodes_are_simulated(machine: Machine, kubectl: Path) -> None:
    pod = {"metadata": {"name": "web"}, "spec": {"containers": [{"name": "web", "image": "nginx"}]}}
    assert machine.ask("POST", "/api/v1/namespaces/default/pods", pod).status == 201
    for words in (("logs", "web"), ("exec", "web", "--", "true"), ("attach", "web")):
        command = [kubectl, "--kubeconfig", str(machine.kubeconfig), *words]
        done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
        assert done.returncode == 1
        assert "this cluster's nodes are simulated (remuda.dev/simulated=true)" in done.stderr, done.stderr
    assert machine.ask("DELETE", "/api/v1/namespaces/default/pods/web?gracePeriodSeconds=0").status == 200


def _kinds_that_nothing_acts_on_are_warned_of(machine: Machine) -> None:
    task = {"spec": {"restartPolicy": "Never", "containers": [{"name": "c", "image": "i"}]}}
    made = {"metadata": {"name": "nightly"}, "spec": {"schedule": "0 3 * * *", "jobTemplate": {"spec": {"template": task}}}}
    answer = machine.ask("POST", "/apis/batch/v1/namespaces/default/cronjobs?dryRun=All", made)
    assert answer.status == 201 and "in this simulated cluster no controller makes Jobs of it" in "".join(answer.warnings)


def _probes_are_answered(machine: Machine) -> None:
    """As the planner writes them: the file that is trusted is the component's own."""

    def ok(url: str, context: ssl.SSLContext | None = None) -> bool:
        with urllib.request.urlopen(url, context=context, timeout=30) as answer:
            return bool(answer.read() == b"ok")

    for port, name in ((10257, "kube-controller-manager"), (10259, "kube-scheduler")):
        own = ssl.create_default_context(cafile=str(machine.tls / name / f"{name}.crt"))
        # Each begins when its turn comes, which need not be before the server is ready.
        eventually(lambda port=port, own=own: ok(f"https://{machine.address}:{port}/healthz", own))  # type: ignore[misc]
    eventually(lambda: ok(f"http://{machine.address}:10248/healthz"))
    context = ssl.create_default_context(cafile=str(machine.tls / "server-ca.crt"))
    context.load_cert_chain(machine.tls / "client-kube-apiserver.crt", machine.tls / "client-kube-apiserver.key")
    eventually(lambda: ok(f"https://{machine.address}:6443/readyz", context))


def _manifests_are_applied_and_pruned(machine: Machine) -> None:
    path = machine.data / "server/manifests/rancher/addons.yaml"
    path.parent.mkdir(parents=True, exist_ok=True)

    def write(*names: str) -> None:
        documents = [{"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name}} for name in names]
        path.with_suffix(".new").write_text(yaml.safe_dump_all(documents))
        path.with_suffix(".new").rename(path)

    def there() -> set[str]:
        return {each["metadata"]["name"] for each in machine.get(MAPS)["items"]} - {"kube-root-ca.crt"}

    write("one", "two")
    eventually(lambda: there() == {"one", "two"})
    write("two", "three")
    eventually(lambda: there() == {"two", "three"})
    addon = machine.get("/apis/k3s.cattle.io/v1/namespaces/kube-system/addons/addons")
    assert addon["spec"]["source"] == str(path)
    path.unlink()
    eventually(lambda: there() == set())


def test_a_snapshot_brings_everything_back(machines: Machines) -> None:
    # None by itself, which would come at noon and at midnight.
    first = machines.add("first").server(**{"cluster-init": True, "etcd-disable-snapshots": True}).ready()
    extra = {"metadata": {"name": "remuda-etcd-snapshot-extra-metadata"}, "data": {"provisioning-cluster-spec": "some"}}
    assert first.ask("POST", "/api/v1/namespaces/kube-system/configmaps", extra).status == 201
    assert first.ask("POST", SECRETS, {"metadata": {"name": "before"}, "stringData": {"a": "b"}}).status == 201
    saved = first.run("etcd-snapshot", "save")
    assert saved.returncode == 0, saved.stderr
    name = saved.stdout.split()[1]
    assert name in first.run("etcd-snapshot", "ls").stdout
    files = "/apis/k3s.cattle.io/v1/etcdsnapshotfiles"
    listed = eventually(lambda: [each for each in first.get(files)["items"] if each.get("status", {}).get("readyToUse")])
    assert listed[0]["spec"]["snapshotName"] == name
    assert listed[0]["spec"]["metadata"] == {"provisioning-cluster-spec": "some"}
    assert first.ask("DELETE", f"{SECRETS}/before").status == 200
    assert first.ask("POST", SECRETS, {"metadata": {"name": "after"}}).status == 201
    revision = int(first.get(SECRETS)["metadata"]["resourceVersion"])
    assert "another server runs on" in first.run("server", "--cluster-reset").stderr
    # It is tried while the server runs, and nothing changes by that.
    verified = first.run("etcd-snapshot", "verify", name)
    assert verified.returncode == 0 and "can be restored here" in verified.stdout, verified.stderr
    refused = first.run("etcd-snapshot", "verify", f"db/snapshots/{name}", "--token", "not-the-token-of-these-tests")
    assert refused.returncode == 1 and "sealed with another token" in refused.stderr
    assert "there is no snapshot at" in first.run("etcd-snapshot", "verify", "never").stderr
    assert not (first.data / "server/db/verify-tmp").exists()

    # As a restore does it: all is stopped, and the authorities are gone but for what etcd holds.
    assert first.stop() == 0
    authority = (first.tls / "server-ca.crt").read_bytes()
    shutil.rmtree(first.tls)
    shutil.rmtree(first.data / "server/cred")
    shutil.rmtree(first.data / "server/db/etcd")
    reset = ("server", "--cluster-reset", f"--cluster-reset-restore-path=db/snapshots/{name}", "--etcd-s3=false")
    refused = first.run(*reset, "--token", "not-the-token-of-these-tests")
    assert refused.returncode == 1 and "sealed with another token" in refused.stderr
    done = first.run(*reset)
    assert done.returncode == 0, done.stderr
    assert "has been reset" in done.stdout
    first.start().ready()
    assert (first.tls / "server-ca.crt").read_bytes() == authority
    first.forget_connection()
    secret = first.get(f"{SECRETS}/before")
    assert secret["data"] == {"a": "Yg=="}
    assert first.ask("GET", f"{SECRETS}/after").status == 404
    # No client meets a revision for the second time.
    assert int(first.get(SECRETS)["metadata"]["resourceVersion"]) > revision
    eventually(lambda: first.ready_nodes() == {"first"})
    assert TOKEN in (first.data / "server/token").read_text()

    # Another key for the Secrets, while the server runs.
    _keys_are_rotated(first)
    assert first.run("etcd-snapshot", "delete", name).returncode == 0
    eventually(lambda: first.get(files)["items"] == [])


def _keys_are_rotated(machine: Machine) -> None:
    status = machine.run("secrets-encrypt", "status").stdout
    assert "Current Rotation Stage: start" in status and "All hashes match" in status
    assert "follows prepare" in machine.run("secrets-encrypt", "rotate").stderr
    for step, stage in (("prepare", "prepare"), ("rotate", "rotate"), ("reencrypt", "reencrypt_finished")):
        done = machine.run("secrets-encrypt", step)
        assert done.returncode == 0, done.stderr
        assert f"Current Rotation Stage: {stage}" in machine.run("secrets-encrypt", "status").stdout
    keys = (machine.data / "server/cred/encryption-config.yaml").read_text()
    assert keys.count("name:") == 1
    assert machine.get(f"{SECRETS}/before")["data"] == {"a": "Yg=="}
    machine.kill()
    machine.start().ready()
    assert machine.get(f"{SECRETS}/before")["data"] == {"a": "Yg=="}
