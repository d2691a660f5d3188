"""What Cluster API's admission fills in and refuses, kind by kind: the specification that the tests here run against Remuda, and
`tests/real/test_capi_admission.py` against the upstream manager."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

Obj = dict[str, Any]

CLUSTER = "cluster.x-k8s.io/cluster-name"
MIN = "cluster.x-k8s.io/cluster-api-autoscaler-node-group-min-size"
MAX = "cluster.x-k8s.io/cluster-api-autoscaler-node-group-max-size"
SKIP = "machineset.cluster.x-k8s.io/skip-preflight-checks"
LONG = "a" * 64


def merged(base: Any, change: Any) -> Any:
    """`base` changed as a JSON merge patch changes it."""
    if not isinstance(change, dict):
        return change
    found = dict(base) if isinstance(base, dict) else {}
    for key, value in change.items():
        if value is None:
            found.pop(key, None)
        else:
            found[key] = merged(found.get(key), value)
    return found


def _object(kind: str, spec: Obj, labels: Obj | None = None) -> Obj:
    metadata: Obj = {"name": "one", "namespace": "herd"}
    if labels:
        metadata["labels"] = labels
    return {"apiVersion": "cluster.x-k8s.io/v1beta2", "kind": kind, "metadata": metadata, "spec": spec}


_REF = {"apiGroup": "infrastructure.test.io", "kind": "TestMachine", "name": "one"}
_MACHINE_SPEC = {
    "clusterName": "c1",
    "bootstrap": {"dataSecretName": "data"},
    "infrastructureRef": _REF,
}

# A valid object of each kind, with every default in place.
VALID: dict[str, Obj] = {
    "Cluster": _object(
        "Cluster",
        {
            "infrastructureRef": {"apiGroup": "infrastructure.test.io", "kind": "TestCluster", "name": "c1"},
            "controlPlaneRef": {"apiGroup": "controlplane.test.io", "kind": "TestControlPlane", "name": "c1"},
        },
    ),
    "Machine": _object("Machine", {**_MACHINE_SPEC, "deletion": {"nodeDeletionTimeoutSeconds": 10}}, {CLUSTER: "c1"}),
    "MachineSet": _object(
        "MachineSet",
        {
            "clusterName": "c1",
            "replicas": 1,
            "selector": {"matchLabels": {"cluster.x-k8s.io/set-name": "one"}},
            "template": {"metadata": {"labels": {"cluster.x-k8s.io/set-name": "one"}}, "spec": _MACHINE_SPEC},
        },
        {CLUSTER: "c1"},
    ),
    "MachineDeployment": _object(
        "MachineDeployment",
        {
            "clusterName": "c1",
            "replicas": 1,
            "rollout": {"strategy": {"type": "RollingUpdate", "rollingUpdate": {"maxSurge": 1, "maxUnavailable": 0}}},
            "selector": {"matchLabels": {"cluster.x-k8s.io/deployment-name": "one", CLUSTER: "c1"}},
            "template": {
                "metadata": {"labels": {"cluster.x-k8s.io/deployment-name": "one", CLUSTER: "c1"}},
                "spec": _MACHINE_SPEC,
            },
        },
        {CLUSTER: "c1"},
    ),
    "MachineHealthCheck": _object(
        "MachineHealthCheck",
        {
            "clusterName": "c1",
            "selector": {"matchLabels": {"role": "worker"}},
            "checks": {"nodeStartupTimeoutSeconds": 600},
        },
        {CLUSTER: "c1"},
    ),
    "MachineDrainRule": _object("MachineDrainRule", {"drain": {"behavior": "Drain", "order": 10}}),
}


@dataclass(frozen=True, slots=True)
class Defaulting:
    """`change` makes the object from the valid one, `before` the old object; `filled` is what defaulting changes."""

    kind: str
    title: str
    change: Obj
    filled: Obj
    before: Obj | None = None
    refused: str = ""


@dataclass(frozen=True, slots=True)
class Checking:
    """`errors` are what is said against the object; none means that it is taken."""

    kind: str
    title: str
    change: Obj
    errors: tuple[str, ...] = ()
    before: Obj | None = None


Case = Defaulting | Checking


def new_object(case: Case) -> Obj:
    found: Obj = merged(VALID[case.kind], case.change)
    return found


def old_object(case: Case) -> Obj | None:
    return None if case.before is None else merged(VALID[case.kind], case.before)


def case_name(case: Case) -> str:
    return f"{case.kind} {case.title}"


# --- what is filled in -------------------------------------------------------------------------------------------------------

_NO_LABEL: Obj = {"metadata": {"labels": None}}
_LABEL: Obj = {"metadata": {"labels": {CLUSTER: "c1"}}}
_SIZES: Obj = {"metadata": {"annotations": {MIN: "3", MAX: "7"}}, "spec": {"replicas": None}}
_UNBOUND = "could not parse the value of the"


def _of_sets(kind: str) -> tuple[Defaulting, ...]:
    parse_error = f'failed to caculate {kind} replicas value: {_UNBOUND} "{MIN}" annotation: strconv.ParseInt: parsing'
    return (
        Defaulting(kind, "is left alone when it is complete", {}, {}),
        Defaulting(kind, "is labelled with its cluster", _NO_LABEL, _LABEL),
        Defaulting(kind, "has its label set right", {"metadata": {"labels": {CLUSTER: "other", "a": "b"}}}, _LABEL),
        Defaulting(kind, "asks for one machine", {"spec": {"replicas": None}}, {"spec": {"replicas": 1}}),
        Defaulting(kind, "keeps zero machines", {"spec": {"replicas": 0}}, {}),
        Defaulting(kind, "asks for one machine even if it had more", {"spec": {"replicas": None}}, {"spec": {"replicas": 1}}, {}),
        Defaulting(kind, "begins with the autoscaler's least", _SIZES, {"spec": {"replicas": 3}}),
        Defaulting(kind, "rises to the autoscaler's least", _SIZES, {"spec": {"replicas": 3}}, {"spec": {"replicas": 2}}),
        Defaulting(kind, "falls to the autoscaler's most", _SIZES, {"spec": {"replicas": 7}}, {"spec": {"replicas": 9}}),
        Defaulting(kind, "keeps what the autoscaler may take", _SIZES, {"spec": {"replicas": 5}}, {"spec": {"replicas": 5}}),
        Defaulting(kind, "had no number", _SIZES, {"spec": {"replicas": 3}}, {"spec": {"replicas": None}}),
        Defaulting(
            kind,
            "needs both of the autoscaler's bounds",
            {"metadata": {"annotations": {MIN: "3"}}, "spec": {"replicas": None}},
            {"spec": {"replicas": 1}},
        ),
        Defaulting(
            kind,
            "is refused when a bound is no number",
            merged(_SIZES, {"metadata": {"annotations": {MIN: "three"}}}),
            {},
            refused=f'{parse_error} "three": invalid syntax',
        ),
        Defaulting(
            kind,
            "is refused when a bound is too large",
            merged(_SIZES, {"metadata": {"annotations": {MIN: "2147483648"}}}),
            {},
            refused=f'{parse_error} "2147483648": value out of range',
        ),
        Defaulting(
            kind,
            "does not read the bounds when the number is given",
            {"metadata": {"annotations": {MIN: "three", MAX: ""}}},
            {},
        ),
        Defaulting(
            kind,
            "gets the v of its version",
            {"spec": {"template": {"spec": {"version": "1.33.1"}}}},
            {"spec": {"template": {"spec": {"version": "v1.33.1"}}}},
        ),
        Defaulting(kind, "keeps its version", {"spec": {"template": {"spec": {"version": "v1.33.1"}}}}, {}),
    )


_NOTHING_SELECTED: Obj = {"spec": {"selector": {"matchLabels": None}, "template": {"metadata": None}}}
_DEPLOYMENT_LABELS = {"cluster.x-k8s.io/deployment-name": "one", CLUSTER: "c1"}

DEFAULTING: tuple[Defaulting, ...] = (
    Defaulting("Machine", "is left alone when it is complete", {}, {}),
    Defaulting("Machine", "is labelled with its cluster", _NO_LABEL, _LABEL),
    Defaulting("Machine", "has its label set right", {"metadata": {"labels": {CLUSTER: "other", "a": "b"}}}, _LABEL),
    Defaulting("Machine", "gets the v of its version", {"spec": {"version": "1.33.1"}}, {"spec": {"version": "v1.33.1"}}),
    Defaulting("Machine", "keeps its version", {"spec": {"version": "v1.33.1"}}, {}),
    Defaulting(
        "Machine",
        "gives up deleting its node after ten seconds",
        {"spec": {"deletion": None}},
        {"spec": {"deletion": {"nodeDeletionTimeoutSeconds": 10}}},
    ),
    Defaulting(
        "Machine",
        "keeps other timeouts",
        {"spec": {"deletion": {"nodeDeletionTimeoutSeconds": None, "nodeDrainTimeoutSeconds": 5}}},
        {"spec": {"deletion": {"nodeDeletionTimeoutSeconds": 10}}},
    ),
    Defaulting("Machine", "may wait for ever", {"spec": {"deletion": {"nodeDeletionTimeoutSeconds": 0}}}, {}),
    *_of_sets("MachineSet"),
    Defaulting(
        "MachineSet",
        "selects by its own name",
        _NOTHING_SELECTED,
        {
            "spec": {
                "selector": {"matchLabels": {"cluster.x-k8s.io/set-name": "one"}},
                "template": {"metadata": {"labels": {"cluster.x-k8s.io/set-name": "one"}}},
            }
        },
    ),
    Defaulting(
        "MachineSet",
        "selects by a hash of a long name",
        merged(_NOTHING_SELECTED, {"metadata": {"name": LONG}}),
        {
            "spec": {
                "selector": {"matchLabels": {"cluster.x-k8s.io/set-name": "hash_2W8PhQ_z"}},
                "template": {"metadata": {"labels": {"cluster.x-k8s.io/set-name": "hash_2W8PhQ_z"}}},
            }
        },
    ),
    Defaulting(
        "MachineSet",
        "has no name yet",
        {**_NOTHING_SELECTED, "metadata": {"name": None, "generateName": "one-"}},
        {
            "spec": {
                "selector": {"matchLabels": {"cluster.x-k8s.io/set-name": ""}},
                "template": {"metadata": {"labels": {"cluster.x-k8s.io/set-name": ""}}},
            }
        },
    ),
    Defaulting(
        "MachineSet",
        "keeps its selector of expressions",
        merged(_NOTHING_SELECTED, {"spec": {"selector": {"matchExpressions": [{"key": "a", "operator": "Exists"}]}}}),
        {},
    ),
    *_of_sets("MachineDeployment"),
    Defaulting(
        "MachineDeployment",
        "selects by its own name",
        _NOTHING_SELECTED,
        {
            "spec": {
                "selector": {"matchLabels": _DEPLOYMENT_LABELS},
                "template": {"metadata": {"labels": _DEPLOYMENT_LABELS}},
            }
        },
    ),
    Defaulting(
        "MachineDeployment",
        "selects within its cluster",
        merged(_NOTHING_SELECTED, {"spec": {"selector": {"matchExpressions": [{"key": "a", "operator": "Exists"}]}}}),
        {"spec": {"selector": {"matchLabels": {CLUSTER: "c1"}}, "template": {"metadata": {"labels": {CLUSTER: "c1"}}}}},
    ),
    Defaulting(
        "MachineDeployment",
        "rolls out with one machine more",
        {"spec": {"rollout": None}},
        {"spec": {"rollout": {"strategy": {"type": "RollingUpdate", "rollingUpdate": {"maxSurge": 1, "maxUnavailable": 0}}}}},
    ),
    Defaulting(
        "MachineDeployment",
        "keeps how many may be missing",
        {"spec": {"rollout": {"strategy": {"rollingUpdate": {"maxSurge": None, "maxUnavailable": "20%"}}}}},
        {"spec": {"rollout": {"strategy": {"rollingUpdate": {"maxSurge": 1}}}}},
    ),
    Defaulting(
        "MachineDeployment",
        "needs no numbers when it rolls out on delete",
        {"spec": {"rollout": {"strategy": {"type": "OnDelete", "rollingUpdate": None}}}},
        {},
    ),
    Defaulting("MachineHealthCheck", "is left alone when it is complete", {}, {}),
    Defaulting("MachineHealthCheck", "is labelled with its cluster", _NO_LABEL, _LABEL),
    Defaulting(
        "MachineHealthCheck",
        "gives a node ten minutes to start",
        {"spec": {"checks": None}},
        {"spec": {"checks": {"nodeStartupTimeoutSeconds": 600}}},
    ),
    Defaulting("MachineHealthCheck", "may not look at the start", {"spec": {"checks": {"nodeStartupTimeoutSeconds": 0}}}, {}),
)
