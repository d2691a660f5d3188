"""What a cluster's template for pod security becomes on its hosts."""

from __future__ import annotations

import pytest

from remuda.kube.objects import Key
from remuda.provisioning.graph.podsecurity import BUILT_IN, content, secret_name, with_admission
from remuda.provisioning.planner.render import NamedObject
from remuda.provisioning.plans.plan import Plan

from .inputs import INIT, JOINED, K3S, RKE2, desired_plan, facts, file_at, machine, snapshot

DATA = content(BUILT_IN["rancher-restricted"], K3S)


def plan(version: str, roles: str) -> Plan:
    spec = with_admission({"kubernetesVersion": version}, {"metadata": {"name": "demo"}}, DATA)
    source = NamedObject("Opaque", {"rke.cattle.io/object-authorized-for-clusters": "demo"}, {"admission-config-psact": DATA})
    labels = {f"rke.cattle.io/{role}-role": "true" for role in roles.split(",")}
    known = facts(version, secrets={Key("fleet-default", secret_name("demo")): source})
    join = INIT if "etcd" in roles else JOINED
    return desired_plan(known, snapshot(spec), machine(roles, labels=labels), join)


@pytest.mark.parametrize(("version", "runtime"), [(K3S, "k3s"), (RKE2, "rke2")])
def test_hosts_of_the_control_plane_get_the_file_and_the_argument(version: str, runtime: str) -> None:
    path = f"/etc/rancher/{runtime}/config/rancher-psact.yaml"
    found = plan(version, "etcd,control-plane,worker")
    file = file_at(found, path)
    assert file is not None and file.data == DATA and not file.dynamic, "another one restarts the API server"
    config = file_at(found, f"/etc/rancher/{runtime}/config.yaml.d/50-rancher.yaml")
    assert config is not None and f"admission-control-config-file={path}".encode() in config.data


def test_workers_hear_nothing_of_it() -> None:
    found = plan(K3S, "worker")
    assert file_at(found, "/etc/rancher/k3s/config/rancher-psact.yaml") is None
    config = file_at(found, "/etc/rancher/k3s/config.yaml.d/50-rancher.yaml")
    assert config is not None and b"admission-control" not in config.data
