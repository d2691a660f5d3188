"""The agent of a cluster whose servers have different roles and taints, and what is left of its hosts when it is deleted."""

from __future__ import annotations

from typing import Any

import pytest

from remuda.access.agent_objects import AGENT
from remuda.access.agent_objects import NAMESPACE as SYSTEM
from remuda.kube.objects import dig, name_of
from remuda.provisioning.releases.distributions import REMUDA

from .conftest import PATIENCE, Ranch, eventually
from .test_whole_way import FROM

pytestmark = [pytest.mark.real, pytest.mark.hosts, pytest.mark.timeout(2400)]

Obj = dict[str, Any]
# A server that also works has no taint, one that only serves has.
ALL, SERVING, SERVERS = "h0", "c0", ("h0", "c0")
_DEPLOYMENT = f"/apis/apps/v1/namespaces/{SYSTEM}/deployments/{AGENT}"
_REVISIONS = f"/apis/apps/v1/namespaces/{SYSTEM}/replicasets"
_PODS = f"/api/v1/namespaces/{SYSTEM}/pods"


def test_servers_of_different_roles_have_one_agent_manifest_and_uninstall(own_ranch: Ranch) -> None:
    ranch = own_ranch
    ranch.want(FROM)
    ranch.host(ALL, "etcd", "controlplane", "worker")
    ranch.host(SERVING, "controlplane")
    ranch.until_ready()
    eventually(lambda: set(ranch.nodes()) == set(SERVERS), PATIENCE)
    assert [bool(_taints(ranch, name)) for name in SERVERS] == [False, True]
    eventually(lambda: _nodes_of_agents(ranch) == sorted(SERVERS), PATIENCE, "the two agents are not on two nodes")
    assert dig(_asked(ranch, _DEPLOYMENT), "spec", "replicas") == 2
    assert len({_manifest(ranch, name) for name in SERVERS}) == 1

    # Each server applies its copy when it starts; none of them changes what the other has applied.
    before, revisions = _template(ranch), _revisions(ranch)
    for name in SERVERS:
        _restart(ranch, name)
        eventually(lambda: _nodes_of_agents(ranch) == sorted(SERVERS), PATIENCE, "the agents do not come back")
    assert (_template(ranch), _revisions(ranch)) == (before, revisions)

    ranch.delete(uninstall=True)
    assert {name: _left(ranch, name) for name in SERVERS} == {name: [] for name in SERVERS}, "it is deleted after they are done"


def _asked(ranch: Ranch, path: str) -> Obj:
    answers: list[Obj] = []

    def answered() -> bool:
        answer = ranch.through(path)
        if answer.status == 200:
            answers.append(answer.json)
        return bool(answers)

    # The tunnel may be opening.
    eventually(answered, PATIENCE, f"no answer to {path}")
    return answers[-1]


def _taints(ranch: Ranch, node: str) -> list[Obj]:
    return dig(_asked(ranch, f"/api/v1/nodes/{node}"), "spec", "taints") or []


def _nodes_of_agents(ranch: Ranch) -> list[str]:
    """The nodes of the agent's running pods."""
    answer = ranch.through(f"{_PODS}?labelSelector=app%3D{AGENT}")
    pods = answer.json["items"] if answer.status == 200 else []
    return sorted(str(dig(pod, "spec", "nodeName")) for pod in pods if dig(pod, "status", "phase") == "Running")


def _manifest(ranch: Ranch, host: str) -> bytes:
    directory = ranch.on(host).place.root / REMUDA.data_directory.lstrip("/") / "server/manifests"
    (found,) = directory.rglob("cluster-agent.yaml")
    return found.read_bytes()


def _template(ranch: Ranch) -> Obj:
    found: Obj = _asked(ranch, _DEPLOYMENT)["spec"]["template"]
    return found


def _revisions(ranch: Ranch) -> list[str]:
    return sorted(name_of(each) for each in _asked(ranch, _REVISIONS)["items"])


def _restart(ranch: Ranch, host: str) -> None:
    before = ranch.pid(host, REMUDA.server_unit)
    done = ranch.on(host).systemctl("restart", REMUDA.server_unit, seconds=PATIENCE)
    assert done[0] == 0, done
    eventually(lambda: ranch.pid(host, REMUDA.server_unit) not in (0, before), PATIENCE)


def _left(ranch: Ranch, host: str) -> list[str]:
    """What is left of Kubernetes on a host: programs, data, configuration, a unit that runs. The agent itself ends
    when its watch does, minutes later; only systemd can remove it sooner."""
    on = ranch.on(host)
    places = ("usr/local/bin/remuda", REMUDA.data_directory, REMUDA.config_directory, "usr/local/bin/remuda-uninstall.sh")
    left = [place for place in places if (on.place.root / place.lstrip("/")).exists()]
    runs = on.systemctl("is-active", REMUDA.server_unit, seconds=60)[1].strip() == "active"
    return [*left, REMUDA.server_unit] if runs else left
