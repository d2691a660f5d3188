"""A recovery that can't begin is refused when it is requested."""

from __future__ import annotations

from typing import Any

import pytest

from remuda.kube.objects import with_metadata
from remuda.provisioning.admission.provider_objects import ClusterRules
from remuda.provisioning.etcd.recovery_request import RecoveryRequest
from remuda.provisioning.well_known import ETCD_ROLE, IMPORT_SNAPSHOT, RECOVER

from .test_provider_objects import Stored, asked, made, named

Obj = dict[str, Any]


def machine(name: str, cluster: str = "demo", etcd: bool = True) -> Obj:
    found = named(name, spec={"clusterName": cluster})
    return with_metadata(found, labels={ETCD_ROLE: "true"} if etcd else {})


RULES = ClusterRules(
    Stored(
        etcdsnapshots=[named("snap", spec={"clusterName": "demo"}), named("other", spec={"clusterName": "other"})],
        machines=[machine("m"), machine("w", etcd=False), machine("x", "other")],
    )
)


def errors(text: str, old: bool = True, **config: Any) -> list[str]:
    obj = with_metadata(made(**config), annotations={RECOVER: text})
    return [f"{error.field}: {error.detail}" for error in RULES.errors(asked(obj, made() if old else None))]


@pytest.mark.parametrize("text", ['{"generation":1,"snapshot":"snap"}', '{"generation":1,"machine":"m"}'])
def test_a_snapshot_and_a_machine_of_the_cluster_are_taken(text: str) -> None:
    assert errors(text) == []


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("now", "it is not JSON"),
        ('{"generation":1,"snapshot":"none"}', "there is no ETCDSnapshot none of this cluster in fleet-default"),
        ('{"generation":1,"snapshot":"other"}', "there is no ETCDSnapshot other of this cluster in fleet-default"),
        ('{"generation":1,"machine":"w"}', "there is no Machine w with etcd of this cluster in fleet-default"),
        ('{"generation":1,"machine":"x"}', "there is no Machine x with etcd of this cluster in fleet-default"),
    ],
)
def test_others_are_not(text: str, why: str) -> None:
    assert errors(text) == [f"metadata.annotations[remuda.dev/recover]: {why}"]


def test_a_copy_of_a_recovered_cluster_may_be_made_but_nothing_malformed() -> None:
    assert errors('{"generation":1,"snapshot":"none"}', old=False) == []
    assert len(errors("now", old=False)) == 1


def test_a_request_that_stays_is_not_judged_again() -> None:
    gone = with_metadata(made(), annotations={RECOVER: '{"generation":1,"snapshot":"gone"}'})
    assert list(RULES.errors(asked({**gone, "spec": {**gone["spec"], "agentEnvVars": []}}, gone))) == []


def test_a_reset_without_a_snapshot_is_only_part_of_a_recovery() -> None:
    reset = {"fromMachine": "m", "generation": 1}
    (why,) = errors("", etcdSnapshotRestore=reset)
    assert "request a recovery instead" in why
    assert errors(RecoveryRequest(1, machine="m").text(), etcdSnapshotRestore=reset) == []
    assert errors(RecoveryRequest(1, machine="m").text(), etcdSnapshotRestore={**reset, "fromMachine": "w"})


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ('{"location":"s3://old/a/snap","at":"1"}', []),
        ('{"location":"/etc/passwd","at":"1"}', ["location: must be s3://BUCKET/FOLDER/FILE"]),
        ('{"location":"s3://old/a/snap","at":"1","endpoint":"x"}', ["endpoint: unknown field"]),
    ],
)
def test_a_malformed_request_to_import_a_snapshot_is_refused(text: str, why: list[str]) -> None:
    obj = with_metadata(made(), annotations={IMPORT_SNAPSHOT: text})
    found = [f"{error.field}: {error.detail}" for error in RULES.errors(asked(obj, made()))]
    assert found == [f"metadata.annotations[{IMPORT_SNAPSHOT}]: {each}" for each in why]
    assert list(RULES.errors(asked({**obj, "spec": {**obj["spec"], "agentEnvVars": []}}, obj))) == [], "not judged again"
