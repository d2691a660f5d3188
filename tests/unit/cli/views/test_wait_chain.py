"""The chain of waits that `remuda explain` prints, as text: told by controllers, or read off conditions."""

from __future__ import annotations

import base64
from collections.abc import Iterable, Iterator

import pytest

from remuda.cli.views import chain_tree, cluster_tree
from remuda.gateway.explain import states, wait_advice, wait_chain, waits
from remuda.gateway.explain.states import ClusterView, LastLine
from remuda.gateway.explain.wait_chain import Link
from remuda.gateway.explain.waits import waits_in
from remuda.gateway.server.remuda_api import shown
from remuda.kube.waits import Actor, Code, Ref
from remuda.provisioning.planner import waits as texts
from remuda.provisioning.planner.waits import AGENTS_RESPONDING
from remuda.provisioning.plans.machine_plan_secret import packed
from remuda.provisioning.plans.plan import Plan, encode

from .shown_clusters import (
    DEMO,
    FLEET,
    ID,
    NOW,
    PLANE,
    ago,
    condition,
    machine,
    machine_ref,
    managed,
    plane,
    sight,
    wait,
    waiting,
    wanted,
)

CHECK_IN, TIER = texts.CHECK_IN, texts.BOOTSTRAP_ETCD
HEAD = f"configuring bootstrap node(s) m1: {CHECK_IN}"
CLUSTER = wanted(condition("Ready", "Unknown", HEAD, "Waiting"))
M1, M2 = machine_ref("m1"), machine_ref("m2")
TOLD = (
    wait(Code.CHECK_IN, PLANE, Actor.USER, HEAD, M1, 190),
    wait(Code.CHECK_IN, M1, Actor.USER, CHECK_IN, None, 190),
    wait(Code.TIER, M2, Actor.REMUDA, TIER, M1, 20),
)
AGAIN = "request a restore once more, of this or another snapshot (with a new generation)"
MACHINES = (waiting("m1", CHECK_IN, "etcd"), waiting("m2", TIER, "etcd"))


def explained(found: ClusterView) -> str:
    links = wait_chain.chain(found, NOW)
    lines = [cluster_tree.plain(line) for line in cluster_tree.drawn(chain_tree.of_chain(found, links, NOW))]
    return "\n".join([*lines, *_to_do(links, found)])


def _to_do(links: Iterable[Link], found: ClusterView) -> Iterator[str]:
    for each in wait_chain.to_do(links, found):
        yield f"- {each.text}"
        yield from (f"  $ {command}" for command in each.commands)


def _general(code: Code) -> str:
    """The advice about a code where nothing more is known."""
    return wait_advice.about(wait(code, PLANE, Actor.USER, ""), sight(CLUSTER)).text


def test_what_controllers_tell_is_followed_to_its_end() -> None:
    assert (
        explained(sight(CLUSTER, *MACHINES, waits=TOLD))
        == f"""\
cluster demo  provisioning
├─ RKEControlPlane demo: {HEAD}
│  │  CheckIn, for 3m10s; action: you
│  └─ Machine m1: {CHECK_IN}
│        CheckIn, for 3m10s; action: you
│        host: no recent output
└─ behind that
   └─ Machine m2: {TIER}  Tier, for 20s
- m1: {_general(Code.CHECK_IN)}"""
    )


def test_a_host_that_can_not_come_in_is_told_by_the_name_of_its_machine_with_how_often_since_when_and_why() -> None:
    """As the controllers tell it when the token of a machine's script has expired."""
    lost = "host 0123456789ab was refused 12 times since 2026-01-01T00:00:00Z: the token has expired; it is to be replaced"
    late = "no host has come with the token in its install script, which expires at 2026-01-01T00:30:00Z"
    told = (
        wait(Code.CHECK_IN, M1, Actor.REMUDA, lost, None, 190),
        wait(Code.CHECK_IN, M2, Actor.PROVIDER, late, None, 700),
    )
    text = explained(sight(CLUSTER, *MACHINES, waits=told))
    assert f"Machine m1: {lost}" in text and f"Machine m2: {late}" in text
    assert "- m1: Nothing: no host can become this machine any more, and its pool replaces it automatically." in text
    assert "- m2: Check at its provider that the host runs" in text


def test_what_follows_from_something_else_is_no_cause() -> None:
    """As a server tells it while the first host has not come."""
    capi = Ref("cluster.x-k8s.io", "Cluster", FLEET, "demo")
    told = (
        wait(Code.CONNECTION, Ref("management.cattle.io", "Cluster", "", ID), Actor.REMUDA, "its agent is not connected"),
        wait(Code.PROVISIONING, capi, Actor.PROVIDER, "it is not initialized yet", PLANE),
        wait(Code.PROVISIONING, M1, Actor.PROVIDER, "not ready", Ref("rke.cattle.io", "CustomMachine", FLEET, "m1")),
        wait(Code.CONNECTION, M1, Actor.REMUDA, "it can't be reached", capi),
        *TOLD,
    )
    assert (
        explained(sight(CLUSTER, *MACHINES, waits=told))
        == f"""\
cluster demo  provisioning
├─ RKEControlPlane demo: {HEAD}
│  │  CheckIn, for 3m10s; action: you
│  └─ Machine m1: {CHECK_IN}
│        CheckIn, for 3m10s; action: you
│        therefore also: Connection, Provisioning
│        host: no recent output
└─ behind that
   ├─ Cluster API's Cluster demo: it is not initialized yet  Provisioning, for 60s
   ├─ management Cluster {ID}: its agent is not connected  Connection, for 60s
   └─ Machine m2: {TIER}  Tier, for 20s
- m1: {_general(Code.CHECK_IN)}"""
    )


def test_of_many_that_wait_for_one_some_are_told() -> None:
    many = tuple(wait(Code.TIER, machine_ref(f"w{number}"), Actor.REMUDA, TIER, M1) for number in range(30))
    told = explained(sight(CLUSTER, *MACHINES, waits=(*TOLD[:2], *many)))
    assert "w9: " in told and "w10: " not in told and "and 20 more" in told


def test_conditions_say_the_same_where_controllers_can_not_be_asked() -> None:
    found = sight(CLUSTER, *MACHINES, plane=plane(condition("Ready", "Unknown", HEAD, "Waiting", 190)))
    assert (
        explained(found)
        == f"""\
cluster demo  provisioning
├─ RKEControlPlane demo: {HEAD}
│  │  CheckIn, for 3m10s; action: you
│  └─ Machine m1: {CHECK_IN}
│        CheckIn, for 60s; action: you
│        host: no recent output
└─ Machine m2: {TIER}
      Tier, for 60s; action: remuda (automatic)
      host: no recent output
- m1: {_general(Code.CHECK_IN)}"""
    )


def test_the_output_of_a_plan_that_failed_is_shown() -> None:
    text = f"{texts.PLAN_FAILED} (once, next try at 2026-01-01T01:00:10Z): no space left"
    output = packed({"install": "ZG93bmxvYWRpbmcKChtbMzFtbm8gc3BhY2UgbGVmdAo="})
    secret = {
        "type": "rke.cattle.io/machine-plan",
        "metadata": {
            "name": "m1-machine-plan",
            "annotations": {
                "rke.cattle.io/plan-last-updated": ago(120),
                "remuda.dev/plan-failure": '{"attempts": 1, "retryAt": "2026-01-01T01:00:10Z", "revision": 1}',
            },
        },
        "data": {
            "plan": base64.b64encode(encode(Plan())).decode(),
            "plan-state": base64.b64encode(b"failed").decode(),
            "failure-count": base64.b64encode(b"1").decode(),
            "failed-output": base64.b64encode(output).decode(),
        },
    }
    told = (wait(Code.PLAN_FAILED, M1, Actor.MACHINE, text, None, 30),)
    said = {"m1": LastLine(ago(2), "no space left")}
    found = sight(CLUSTER, waiting("m1", text, "etcd"), waits=told, said=said, plans={"m1": secret})
    assert (
        explained(found)
        == f"""\
cluster demo  provisioning
└─ Machine m1: {text}
      PlanFailed, for 30s; action: the host (automatic)
      plan: failed, written 2m ago, failed 1 times, next try at 2026-01-01T01:00:10Z
      install: downloading
      install:  [31mno space left
      host, 2s ago: no space left
- m1: {_general(Code.PLAN_FAILED)}"""
    )


def test_a_cluster_without_hosts_says_how_to_get_some() -> None:
    found = sight(wanted(), plane=plane(condition("Ready", "Unknown", texts.ROLES, "Waiting")))
    assert "\n  $ remuda cluster registration-command demo -n fleet-default" in explained(found)


def test_an_imported_cluster_waits_for_its_agent() -> None:
    links = wait_chain.chain(sight(wanted(rkeConfig=None), managed=managed()), NOW)
    assert [(link.wait.code, link.wait.subject.name) for link in links] == [(Code.CLUSTER_AGENT, ID)]


def test_a_circle_is_walked_once() -> None:
    told = (wait(Code.HOOK, M1, Actor.USER, "a", M2), wait(Code.HOOK, M2, Actor.USER, "b", M1))
    links = wait_chain.chain(sight(CLUSTER, *MACHINES, waits=told), NOW)
    assert [link.wait.evidence for link in links] == ["a"] and [each.wait.evidence for each in links[0].below] == ["b"]
    assert [each.evidence for each in wait_chain.causes(links)] == ["a"], "there is something to do in any case"
    assert links[0].below[0].again and wait_chain.data(links[0], sight(CLUSTER))["waits"][0]["message"] == "b"


def test_a_cluster_that_is_done_waits_for_nothing() -> None:
    active = wanted(condition("Ready", "True"), ready=True)
    assert wait_chain.chain(sight(active, managed=managed(condition("Connected", "True")), waits=()), NOW) == ()
    assert wait_chain.to_do((), sight(active)) == []


def test_what_nobody_tells_is_read_off_what_is_going() -> None:
    going = machine("m1", condition("Deleting", "True", "* draining\n* detaching"), deleting=True)
    found = sight(wanted(condition("Removed", "Unknown", "waiting for machine [m1]"), deleting=True), going)
    assert [(each.code, each.evidence) for each in waits.read_off(found)] == [
        (Code.DELETION, "waiting for machine [m1]"),
        (Code.DELETION, "draining; detaching"),
    ]


@pytest.mark.parametrize(
    ("text", "code"),
    [
        (texts.NO_CLUSTER, Code.REFERENCE),
        (texts.INFRASTRUCTURE, Code.PROVISIONING),
        (texts.PAUSED, Code.PAUSED),
        (texts.ROLES, Code.ROLES),
        (texts.ETCD_GOING, Code.DELETION),
        (texts.ETCD_REPLACED, Code.RESTORE),
        (texts.RESTORED_GONE, Code.RESTORE),
        (f"Restore on m1: {texts.PLAN_FAILED}: exit code 1; the cluster is stopped: {AGAIN}", Code.RESTORE),
        (f"restoring etcd (Shutdown): the request was withdrawn, but the cluster is stopped: {AGAIN}", Code.RESTORE),
        ("restoring etcd (Shutdown): shutting down cluster", Code.STEP),
        (f"restoring etcd (Shutdown): shutting down cluster on m1: {texts.PLAN}", Code.PLAN),
        (f"restoring etcd (Restore): restoring the snapshot on m1: {texts.PLAN_FAILED}: exit code 1", Code.PLAN_FAILED),
        (f"restoring etcd (Restore): {texts.PAUSED}", Code.PAUSED),
        (f"taking a snapshot of etcd on m1: {texts.PLAN}", Code.PLAN),
        ("recovering (Survey): waiting for an answer of m1", Code.STEP),
        ("recovering (Machines): waiting until lost servers are deleted: m1", Code.DELETION),
        ("recovering (Hosts): waiting for machines of the pools: 0 of 3 with etcd (missing: etcd)", Code.PROVISIONING),
        ("recovering (Hosts): waiting for hosts to be registered: missing: etcd; on each, run what x prints", Code.ROLES),
        ("taking a snapshot of etcd on m1,m2", Code.STEP),
        ("taking a snapshot of etcd before the upgrade to v1.35.0+k3s1 on m1: waiting for plan to be applied", Code.PLAN),
        (
            "the upgrade to v1.35.0+k3s1 waits: the snapshot of etcd before it failed (m1: failure)",
            Code.SNAPSHOT,
        ),
        ("rotating certificates: waiting until m1 is uncordoned", Code.STEP),
        ("rotating encryption keys, stage 2 of 3 (Rotate) on m1: the servers do not use the same keys yet", Code.STEP),
        (f"{texts.INIT_NODE} (m1: has not joined)", Code.INIT_NODE),
        (texts.JOIN_URL, Code.JOIN_URL),
        (texts.CONTROL_PLANE, Code.TIER),
        (texts.ETCD, Code.TIER),
        (texts.BOOTSTRAP_ETCD, Code.TIER),
        (texts.CHECK_IN, Code.CHECK_IN),
        (texts.PLAN, Code.PLAN),
        (texts.PLAN_FAILED, Code.PLAN_FAILED),
        (texts.UNCORDON, Code.UNCORDON),
        (texts.KUBELET, Code.KUBELET),
        (texts.PRE_BOOTSTRAP, Code.PRE_BOOTSTRAP),
        (texts.CLUSTER_AGENT, Code.CLUSTER_AGENT),
        ("configuring etcd node(s) m1: waiting for probes: etcd, kubelet", Code.PROBES),
        ("draining worker node(s) m1,m2", Code.DRAIN),
        ("non-ready etcd machine(s) m1: NodeHealthy: gone", Code.MACHINES),
        ("electing m1 as init node", Code.STEP),
        ("KDM release data is empty for v9.9.9", Code.RELEASE),
        ("something new", Code.MALFORMED),
    ],
)
def test_every_text_of_the_planner_has_its_code(text: str, code: Code) -> None:
    assert waits.meaning(text)[0] is code


@pytest.mark.parametrize("code", list(Code))
def test_there_is_something_to_say_about_every_wait(code: Code) -> None:
    assert _general(code).endswith(".")


@pytest.mark.parametrize("actor", list(Actor))
def test_there_is_a_name_for_whoever_acts(actor: Actor) -> None:
    assert wait_advice.who(wait(Code.STEP, PLANE, actor, ""))


def test_what_a_server_tells_is_understood() -> None:
    told = {"cluster": f"{FLEET}/demo", "complete": True, "waits": [shown(each) for each in TOLD]}
    assert waits_in(told) == TOLD
    assert waits_in({**told, "complete": False}) is None and waits_in(None) is None and waits_in("x") is None
    newer = {**shown(TOLD[0]), "code": "Tomorrow"}
    assert waits_in({**told, "waits": [newer, shown(TOLD[1])]}) == TOLD[1:2]
    assert waits_in({**told, "waits": [{"code": "Tier"}]}) == ()


def test_another_kind_of_the_same_name_is_another_object() -> None:
    other = Ref("rke.cattle.io", "RKEBootstrap", FLEET, "m1")
    told = (wait(Code.CONTENT, other, Actor.USER, "the address of this server for hosts is not known"),)
    found = sight(CLUSTER, MACHINES[0], waits=told)
    assert [link.wait.subject.kind for link in wait_chain.chain(found, NOW)] == ["Machine", "RKEBootstrap"]


# --- machines that do not go ----------------------------------------------------------------------------------------------------

INFRA = Ref("rke-machine.cattle.io", "PaperMachine", FLEET, "m1")
GOING = wait(Code.DELETION, M1, Actor.OTHER_CONTROLLER, "waiting for its infrastructure to go", INFRA)
FORCED = (
    "kubectl -n fleet-default annotate papermachine.rke-machine.cattle.io m1 provisioning.cattle.io/force-machine-remove=true"
)


@pytest.mark.parametrize(
    ("why", "actor", "on"),
    [
        ("its removal failed (PermissionDenied: no)", Actor.USER, None),
        ("it can't be removed, for there is no cloud credential cc-x", Actor.USER, Ref("", "Secret", FLEET, "cc-x")),
    ],
)
def test_a_machine_that_can_not_be_removed_says_who_must_act_and_what_that_risks(why: str, actor: Actor, on: Ref | None) -> None:
    told = (GOING, wait(Code.DELETION, INFRA, actor, why, on))
    text = explained(sight(CLUSTER, machine("m1", deleting=True), waits=told))
    assert f"PaperMachine m1: {why}" in text and "action: you" in text
    (todo,) = [line for line in text.splitlines() if line.startswith("- m1: ")]
    assert "Correct what the text says" in todo and f"\n  $ {FORCED}" in text
    assert "remuda machine logs m1" in todo and "cost money" in todo and "remuda machine orphans" in todo


def test_a_removal_that_a_provider_holds_up_is_no_business_of_yours_yet() -> None:
    told = (GOING, wait(Code.DELETION, INFRA, Actor.PROVIDER, "its removal failed (Throttled: later) and is tried again"))
    text = explained(sight(CLUSTER, machine("m1", deleting=True), waits=told))
    assert "action: the infrastructure provider" in text and "- m1: Nothing yet: it is tried again" in text
    at_work = (GOING, wait(Code.DELETION, INFRA, Actor.PROVIDER, "the Job is still running", Ref("batch", "Job", FLEET, "j")))
    text = explained(sight(CLUSTER, machine("m1", deleting=True), waits=at_work))
    assert "- m1: Nothing, unless it takes long" in text and "remuda machine logs m1 --follow" in text and FORCED not in text


def test_many_machines_that_can_not_be_removed_are_told_once() -> None:
    told = [
        wait(Code.DELETION, Ref("rke-machine.cattle.io", "PaperMachine", FLEET, name), Actor.USER, "its removal failed")
        for name in ("m1", "m2")
    ]
    lines = explained(sight(CLUSTER, waits=tuple(told))).splitlines()
    (todo,) = [line for line in lines if line.startswith("- m1")]
    assert todo.startswith("- m1,m2: ") and "remuda machine logs MACHINE" in todo
    assert lines[lines.index(todo) + 1 :] == [f"  $ {FORCED}", f"  $ {FORCED.replace(' m1 ', ' m2 ')}"]


def test_what_goes_when_a_machine_is_gone_is_not_for_anybody_to_do() -> None:
    capi = Ref("cluster.x-k8s.io", "Cluster", FLEET, DEMO)
    told = (
        wait(Code.DELETION, PLANE, Actor.OTHER_CONTROLLER, "waiting for control plane to delete", Ref("x", "Plane", FLEET, DEMO)),
        wait(Code.DELETION, capi, Actor.REMUDA, "", Ref("cluster.x-k8s.io", "MachineDeployment", FLEET, "demo-w")),
        GOING,
        wait(Code.DELETION, INFRA, Actor.USER, "its removal failed"),
    )
    text = explained(sight(CLUSTER, machine("m1", deleting=True), waits=told))
    assert [line.partition(":")[0] for line in text.splitlines() if line.startswith("- ")] == ["- m1"]
    assert "- demo: " in explained(sight(CLUSTER, waits=told[:2])), "it is all that is known"


# --- agents that are silent while all else is done ------------------------------------------------------------------------------


def test_a_cluster_that_is_ready_says_whose_agent_does_not_answer() -> None:
    text = "m1: its agent does not answer, since 2026-01-01T00:00:00Z"
    head = plane(condition("Ready", "True"), condition(AGENTS_RESPONDING, "False", text, "NoAnswer"))
    up = wanted(condition("Ready", "True"), ready=True)
    found = states.of_cluster(up, managed(condition("Connected", "True")), head)
    assert found == (states.ACTIVE, text) and states.of_plane(head) == (states.READY, text)
    # Where the controllers' waits are known, the machine itself says it.
    links = wait_chain.chain(sight(up, plane=head), NOW)
    assert [(link.wait.code, link.wait.subject, link.wait.evidence) for link in links] == [(Code.SILENT, PLANE, text)]
    assert not wait_chain.chain(sight(up, plane=head, waits=()), NOW)
