"""The tree that `remuda cluster show` draws, as text, and the lines that its changes are."""

from __future__ import annotations

from dataclasses import replace

from remuda.cli.views import cluster_tree
from remuda.gateway.explain.states import LastLine

from .shown_clusters import DEMO, ID, NOW, VERSION, ago, condition, done, machine, managed, plane, sight, waiting, wanted

TEXT = "configuring etcd node(s) m2: waiting for plan to be applied"
FIRST = sight(
    wanted(condition("Ready", "Unknown", TEXT, "Waiting")),
    waiting("m3", "waiting for control plane to be available"),
    waiting("m2", "waiting for plan to be applied", "etcd"),
    done("m1", "etcd,control-plane,worker"),
    plane=plane(condition("Ready", "Unknown", TEXT, "Waiting")),
    said={"m2": LastLine(ago(3), "extracting image rancher/system-agent"), "m1": LastLine(ago(99), "done long ago")},
)


def drawn(branch: cluster_tree.Branch) -> str:
    return "\n".join(cluster_tree.plain(line) for line in cluster_tree.drawn(branch))


def test_a_cluster_that_comes_up() -> None:
    assert (
        drawn(cluster_tree.of_cluster(FIRST, NOW))
        == f"""\
cluster demo  provisioning  {VERSION}  {ID}  in fleet-default  10m
├─ control plane  provisioning
│     {TEXT}
└─ machines 1/3
   ├─ m1  ready        etcd,controlplane,worker  h0       {VERSION}  5m
   ├─ m2  configuring  etcd                      no node                   5m
   │     waiting for plan to be applied
   │     3s ago: extracting image rancher/system-agent
   └─ m3  configuring  worker                    no node                   5m
         waiting for control plane to be available"""
    )


def test_meters_show_how_far_machines_have_come() -> None:
    made = condition("InfrastructureReady", "True")
    found = sight(
        wanted(condition("Ready", "True"), ready=True),
        machine("m1", roles="etcd"),
        machine("m2", made),
        machine("m3", made, condition("Reconciled", "Unknown", "a message", "Waiting")),
        machine("m4", made, condition("Reconciled", "True"), node="h0"),
        machine("m5", made, condition("Reconciled", "True"), condition("Ready", "True"), node="h0"),
    )
    lines = drawn(cluster_tree.of_cluster(found, NOW, metered=True)).splitlines()
    assert [line for line in lines if "▰" in line] == [
        "   ├─ m1  ▰▱▱▱▱ waiting      etcd                     5m",
        "   ├─ m2  ▰▰▱▱▱ waiting      worker                   5m",
        "   ├─ m3  ▰▰▰▱▱ configuring  worker                   5m",
        f"   ├─ m4  ▰▰▰▰▱ not-ready    worker  {VERSION}  5m",
        f"   └─ m5  ▰▰▰▰▰ ready        worker  {VERSION}  5m",
    ]


def test_a_cluster_that_waits_for_hosts() -> None:
    message = "waiting for at least one control plane, etcd, and worker node to be registered"
    assert (
        drawn(cluster_tree.of_cluster(sight(wanted(condition("Ready", "Unknown", message))), NOW))
        == f"""\
cluster demo  waiting-for-machines  {VERSION}  {ID}  in fleet-default  10m
│  {message}
└─ machines 0/0"""
    )


def test_an_imported_cluster_has_no_machines_to_show() -> None:
    found = sight(wanted(rkeConfig=None, ready=True), managed=managed(version={"gitVersion": "v1.33.0"}))
    assert drawn(cluster_tree.of_cluster(found, NOW)) == f"cluster demo  active  v1.33.0  {ID}  in fleet-default  10m"


def test_only_changes_are_told() -> None:
    before = cluster_tree.facts(FIRST)
    assert cluster_tree.news({}, before) == [
        f"cluster demo: provisioning ({VERSION})",
        f"control plane: provisioning: {TEXT}",
        f"machine m1: ready (etcd,controlplane,worker, node h0, {VERSION})",
        "host of m1: done long ago",
        "machine m2: configuring (etcd): waiting for plan to be applied",
        "host of m2: extracting image rancher/system-agent",
        "machine m3: configuring (worker): waiting for control plane to be available",
    ]
    assert cluster_tree.news(before, before) == []
    later = replace(FIRST, machines=FIRST.machines[:2], said={"m2": LastLine(ago(1), "starting etcd")})
    assert cluster_tree.news(before, cluster_tree.facts(later)) == ["host of m2: starting etcd", "machine m1: gone"]


def test_programs_get_all_of_it() -> None:
    found = cluster_tree.data(FIRST)
    assert (found["name"], found["id"], found["state"], found["ready"]) == (DEMO, ID, "provisioning", "1/3")
    assert found["controlPlane"] == {"name": DEMO, "state": "provisioning", "message": TEXT, "initialized": False}
    assert [(each["name"], each["roles"], each["node"]) for each in found["machines"]] == [
        ("m1", ["etcd", "controlplane", "worker"], "h0"),
        ("m2", ["etcd"], ""),
        ("m3", ["worker"], ""),
    ]
    assert found["machines"][1]["lastLine"] == {"time": ago(3), "text": "extracting image rancher/system-agent"}
