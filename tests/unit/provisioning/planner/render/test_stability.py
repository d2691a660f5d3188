"""A plan must not change when nothing has: a node restarts for every byte."""

from __future__ import annotations

import random
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from remuda.kube.objects import Key
from remuda.provisioning.planner.render import NamedObject, PlanInputs, renderer
from remuda.provisioning.planner.snapshot import Join, Machine
from remuda.provisioning.plans import plan

from . import inputs
from .inputs import INIT, JOINED, desired_plan, facts, machine, snapshot

AUTHORIZED = {"rke.cattle.io/object-authorized-for-clusters": "demo"}
SPEC: dict[str, Any] = {
    "agentEnvVars": [{"name": "B", "value": "1"}, {"name": "A", "value": "2"}],
    "chartValues": {"z": {"y": {"x": 1, "w": 2}}, "a": {}},
    "machineGlobalConfig": {
        "cni": "cilium",
        "kubelet-arg": ["b=1", "a=2"],
        "tls-san": ["x"],
        "audit-policy-file": "p",
        "selinux": True,
    },
    "machineSelectorConfig": [
        {"machineLabelSelector": {"matchLabels": {"l": "1", "k": "2"}}, "config": {"snapshotter": "native", "resolv-conf": "/x"}}
    ],
    "machineSelectorFiles": [
        {"fileSources": [{"secret": {"name": "own", "items": [{"key": "b", "path": "/b"}, {"key": "a", "path": "/a"}]}}]}
    ],
    "registries": {
        "mirrors": {
            "z": {"endpoint": ["https://2", "https://1"], "rewrite": {"b": "1", "a": "2"}},
            "a": {"endpoint": ["https://3"]},
        },
        "configs": {"z": {"caBundle": "Q0E="}, "a": {"authConfigSecretName": "auth", "insecureSkipVerify": True}},
    },
    "etcd": {"snapshotRetention": 5, "s3": {"bucket": "b", "endpointCA": "PEM"}},
    "localClusterAuthEndpoint": {"enabled": True},
    "dataDirectories": {"k8sDistro": "/data/x", "provisioning": "/data/y"},
}
KNOWN = facts(
    agent_manifest=lambda taints: ",".join(map(str, taints)),
    secrets={
        Key("fleet-default", "own"): NamedObject(annotations=AUTHORIZED, data={"a": b"1", "b": b"2"}),
        Key("fleet-default", "auth"): NamedObject("kubernetes.io/basic-auth", data={"username": b"u", "password": b"p"}),
    },
)
ANNOTATIONS = {
    "rke.cattle.io/labels": '{"z":"1","a":"2"}',
    "rke.cattle.io/taints": '[{"key":"b","effect":"NoSchedule"},{"key":"a","effect":"NoExecute"}]',
    "rke.cattle.io/internal-address": "10.0.0.5",
    "rke.cattle.io/address": "203.0.113.5",
}


def shuffled(value: Any, by: random.Random) -> Any:
    """The same value, its maps in another order."""
    if isinstance(value, Mapping):
        pairs = [(key, shuffled(member, by)) for key, member in value.items()]
        by.shuffle(pairs)
        return dict(pairs)
    return [shuffled(member, by) for member in value] if isinstance(value, list) else value


def shuffled_machine(one: Machine, by: random.Random) -> Machine:
    assert one.secret is not None
    secret = replace(one.secret, labels=shuffled(one.secret.labels, by), annotations=shuffled(one.secret.annotations, by))
    return replace(one, secret=secret, labels=shuffled(one.labels, by))


def shuffled_facts(known: PlanInputs, by: random.Random) -> PlanInputs:
    def over(sources: Mapping[Key, NamedObject]) -> dict[Key, NamedObject]:
        pairs = [(key, replace(source, data=shuffled(source.data, by))) for key, source in sources.items()]
        by.shuffle(pairs)
        return dict(pairs)

    return replace(known, secrets=over(known.secrets), config_maps=over(known.config_maps))


@settings(max_examples=30, deadline=None)
@given(
    seed=st.integers(),
    roles=st.sampled_from(["etcd", "control-plane", "worker", "etcd,control-plane,worker"]),
    first=st.booleans(),
)
def test_the_order_in_which_things_come_does_not_matter(seed: int, roles: str, first: bool) -> None:
    by = random.Random(seed)
    one = machine(roles, labels={"k": "2", "l": "1"}, annotations=ANNOTATIONS)
    join: Join = INIT if first and "etcd" in roles else JOINED
    straight = plan.encode(desired_plan(KNOWN, snapshot(SPEC), one, join))
    other = plan.encode(desired_plan(shuffled_facts(KNOWN, by), snapshot(shuffled(SPEC, by)), shuffled_machine(one, by), join))
    assert straight == other


EMPTIES: dict[str, list[Any]] = {
    "agentEnvVars": [None, []],
    "chartValues": [None, {}],
    "machineGlobalConfig": [None, {}],
    "machineSelectorConfig": [None, []],
    "machineSelectorFiles": [None, []],
    "registries": [None, {}],
    "etcd": [None, {}],
    "localClusterAuthEndpoint": [None, {}, {"enabled": False}],
    "dataDirectories": [None, {}, {"k8sDistro": ""}],
    "networking": [None, {}, {"stackPreference": ""}],
    "additionalManifest": [None, ""],
    "provisionGeneration": [None, 0],
    "unmanagedConfig": [None, False],
}


@pytest.mark.parametrize("name", sorted(EMPTIES))
@pytest.mark.parametrize("roles", ["etcd,control-plane", "worker"])
def test_nothing_and_empty_are_the_same(name: str, roles: str) -> None:
    without = plan.encode(inputs.plan(machine(roles), JOINED))
    for empty in EMPTIES[name]:
        assert plan.encode(inputs.plan(machine(roles), JOINED, {name: empty})) == without


# Fields that may be absent, by the path of the object that has them.
OPTIONAL: dict[tuple[str | int, ...], tuple[str, ...]] = {
    (): ("networking", "upgradeStrategy", "additionalManifest"),
    ("agentEnvVars", 0): ("valueFrom",),
    ("dataDirectories",): ("systemAgent",),
    ("etcd",): ("disableSnapshots", "snapshotScheduleCron"),
    ("etcd", "s3"): ("folder", "region", "endpoint", "cloudCredentialName", "skipSSLVerify"),
    ("localClusterAuthEndpoint",): ("fqdn", "caCerts"),
    ("machineGlobalConfig",): ("disable", "kube-apiserver-arg", "debug", "node-label"),
    ("machineSelectorConfig", 0, "config"): ("protect-kernel-defaults", "kube-proxy-arg"),
    ("machineSelectorConfig", 0, "machineLabelSelector"): ("matchExpressions",),
    ("machineSelectorFiles", 0, "fileSources", 0): ("configMap",),
    ("machineSelectorFiles", 0, "fileSources", 0, "secret"): ("defaultPermissions",),
    ("machineSelectorFiles", 0, "fileSources", 0, "secret", "items", 0): ("permissions", "hash", "dynamic"),
    ("registries", "configs", "a"): ("caBundle", "tlsSecretName"),
    ("registries", "configs", "z"): ("authConfigSecretName", "insecureSkipVerify"),
    ("registries", "mirrors", "a"): ("rewrite",),
}
# What is nothing for them, where that is more or less than null and "".
_NOTHING: dict[str, tuple[Any, ...]] = {
    "configMap": (None,),
    "valueFrom": (None,),
    "disable": (None, "", []),
    "kube-apiserver-arg": (None, "", []),
    "matchExpressions": (None, []),
    "rewrite": (None, {}),
    "skipSSLVerify": (None, False),
    "insecureSkipVerify": (None, False),
}


def respelled(spec: dict[str, Any], by: random.Random) -> dict[str, Any]:
    """The same spec as another program writes it: maps in another order, absent fields as null or empty, booleans of arguments
    as text, and lists of one as their member."""
    found = shuffled(spec, by)
    for path, fields in OPTIONAL.items():
        place = found
        for part in path:
            place = place[part]
        for field in fields:
            if by.random() < 0.5:
                place[field] = by.choice(_NOTHING.get(field, (None, "")))
    arguments = found["machineGlobalConfig"]
    arguments["selinux"] = by.choice((True, "true", "True"))
    arguments["tls-san"] = by.choice(("x", ["x"], ["x", ""], ["x", None]))
    return shuffled(found, by)  # type: ignore[no-any-return]


@settings(max_examples=60, deadline=None)
@given(seed=st.integers(), roles=st.sampled_from(["etcd,control-plane", "worker", "etcd,control-plane,worker"]))
def test_every_spelling_of_a_spec_gives_the_same_bytes(seed: int, roles: str) -> None:
    one = machine(roles, labels={"k": "2", "l": "1"}, annotations=ANNOTATIONS)
    straight = plan.encode(desired_plan(KNOWN, snapshot(SPEC), one, JOINED))
    other = plan.encode(desired_plan(KNOWN, snapshot(respelled(SPEC, random.Random(seed))), one, JOINED))
    assert straight == other


def test_one_renderer_does_not_mix_up_machines_or_clusters() -> None:
    render = renderer(KNOWN)
    one, other = snapshot(SPEC), snapshot({"machineGlobalConfig": {"selinux": True}})
    for _ in range(2):
        for seen in (one, other):
            for roles in ("etcd,control-plane", "worker"):
                found = render(seen, machine(roles), JOINED)
                assert found == desired_plan(KNOWN, seen, machine(roles), JOINED)


def test_a_plan_is_read_back_as_it_was_rendered() -> None:
    found = desired_plan(KNOWN, snapshot(SPEC), machine(annotations=ANNOTATIONS), INIT)
    assert plan.same(plan.decode(plan.encode(found)), found)


def test_rendering_changes_nothing_that_it_was_given() -> None:
    spec = shuffled(SPEC, random.Random(1))
    before = repr(spec)
    desired_plan(KNOWN, snapshot(spec), machine(annotations=ANNOTATIONS), INIT)
    assert repr(spec) == before
