"""From Pending to Ready and back: what each thing that was seen makes of a cluster's conditions."""

from __future__ import annotations

from typing import Any

from remuda.access.health.cluster_conditions import NOT_CONNECTED, ClusterObservation, judged
from remuda.access.health.cluster_resources import ClusterCapacity
from remuda.access.rancher_conditions import condition_of

Obj = dict[str, Any]
NOW = 1_800_000_000.0
NOTHING = ClusterObservation(NOT_CONNECTED)
_PARTS = ("status", "reason", "message")
WELL = ClusterObservation("", "", {"gitVersion": "v1.33.1"})


def cluster(annotations: dict[str, str] | None = None, **status: Any) -> Obj:
    return {"metadata": {"name": "c-m-a", "annotations": annotations or {}}, "spec": {}, "status": status}


def told(obj: Obj) -> dict[str, tuple[str, ...]]:
    kinds = ("Pending", "Provisioned", "Waiting", "Connected", "Ready", "AgentDeployed")
    found = {kind: condition_of(obj, kind) for kind in kinds}
    return {kind: tuple(each.get(part, "") for part in _PARTS) for kind, each in found.items() if each is not None}


def test_an_import_that_was_never_connected() -> None:
    assert told(judged(cluster(), NOTHING, NOW)) == {
        "Pending": ("Unknown", "", ""),
        "Provisioned": ("Unknown", "Pending", "waiting for full cluster configuration"),
        "Waiting": ("Unknown", "", "Waiting for API to be available"),
        "Connected": ("False", "Disconnected", NOT_CONNECTED),
        "Ready": ("False", "", "Waiting for API to be available"),
    }


def test_with_first_contact_it_is_provisioned_and_waits_for_its_api() -> None:
    found = told(judged(cluster(apiEndpoint="https://a:1"), ClusterObservation(""), NOW))
    assert found == {
        "Pending": ("True", "", ""),
        "Provisioned": ("True", "", ""),
        "Waiting": ("Unknown", "", "Waiting for API to be available"),
        "Connected": ("True", "", ""),
        "AgentDeployed": ("True", "", ""),
    }


def test_with_an_answer_of_its_api_it_is_ready() -> None:
    found = judged(cluster(apiEndpoint="https://a:1"), WELL, NOW)
    assert {kind: said[0] for kind, said in told(found).items()} == dict.fromkeys(
        ("Pending", "Provisioned", "Waiting", "Connected", "Ready", "AgentDeployed"), "True"
    )
    assert found["status"]["version"] == {"gitVersion": "v1.33.1"} and found["status"]["connected"] is True
    assert judged(found, WELL, NOW + 60) is found, "nothing new, nothing to write"


def test_a_cut_is_told_with_its_reason_and_heals() -> None:
    ready = judged(cluster(apiEndpoint="https://a:1"), WELL, NOW)
    cut = judged(ready, ClusterObservation("no answer to /ping within 5 s"), NOW + 15)
    assert told(cut)["Connected"] == ("False", "Disconnected", "no answer to /ping within 5 s")
    assert told(cut)["Ready"] == ("False", "Disconnected", "Cluster agent is not connected")
    assert told(cut)["Waiting"][0] == told(cut)["Provisioned"][0] == told(cut)["AgentDeployed"][0] == "True"
    assert told(judged(cut, WELL, NOW + 30)) == told(ready)


def test_an_api_that_is_ill() -> None:
    ready = judged(cluster(apiEndpoint="https://a:1"), WELL, NOW)
    assert judged(ready, ClusterObservation("", None), NOW) is ready, "once is not often enough"
    ill = judged(ready, ClusterObservation("", "etcd is down"), NOW)
    assert told(ill)["Ready"] == (
        "False",
        "ComponentStatusFetchingFailure",
        "Failed to communicate with API server: etcd is down",
    )
    assert told(ill)["Connected"][0] == "True"


def test_a_cluster_that_we_provisioned_says_itself_what_it_is() -> None:
    ours = cluster({"provisioning.cattle.io/administrated": "true"}, apiEndpoint="https://a:1")
    assert set(told(judged(ours, WELL, NOW))) == {"Connected", "AgentDeployed"}
    changing = cluster(
        {"provisioning.cattle.io/administrated": "true"},
        readyReconciling=True,
        conditions=[{"type": "Provisioned", "status": "True"}, {"type": "Ready", "status": "Unknown"}],
    )
    assert told(judged(changing, NOTHING, NOW))["Ready"][0] == "Unknown"
    steady = cluster({"provisioning.cattle.io/administrated": "true"}, conditions=[{"type": "Provisioned", "status": "True"}])
    assert told(judged(steady, NOTHING, NOW))["Ready"] == ("False", "Disconnected", NOT_CONNECTED)


def test_the_cluster_that_the_server_runs_on_needs_no_agent() -> None:
    local = cluster() | {"spec": {"internal": True}}
    assert told(judged(local, WELL, NOW))["Ready"][0] == "True"


def test_what_it_consists_of() -> None:
    summary = ClusterCapacity(2, 1, 1, "amd64", ("linux",), "aws", "k3s", {"cpu": "4"}, {"cpu": "3"}, {"cpu": "1"}, {"cpu": "2"})
    seen = ClusterObservation("", "", {"gitVersion": "v1.33.1"}, summary)
    status = judged(cluster(apiEndpoint="https://a:1", info={"machineProvider": "imported"}), seen, NOW)["status"]
    assert (status["nodeCount"], status["provider"], status["capacity"], status["limits"]) == (
        2,
        "k3s",
        {"cpu": "4"},
        {"cpu": "2"},
    )
    assert status["info"] == {
        "machineProvider": "imported",
        "kubernetesVersion": "v1.33.1",
        "nodeCount": 2,
        "arch": "amd64",
        "cloudProvider": "aws",
        "operatingSystems": ["linux"],
    }
    ours = judged(cluster({"provisioning.cattle.io/administrated": "true"}), seen, NOW)["status"]
    assert "nodeCount" not in ours and "info" not in ours and ours["requested"] == {"cpu": "1"}
