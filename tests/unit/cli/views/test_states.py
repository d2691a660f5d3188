"""How clusters and machines are, in one word and a sentence."""

from __future__ import annotations

from typing import Any

import pytest

from remuda.gateway.explain import states

from .shown_clusters import VERSION, condition, done, machine, managed, plane, waiting, wanted

Obj = dict[str, Any]

ROLES = "waiting for at least one control plane, etcd, and worker node to be registered"
UP = condition("Connected", "True")
DOWN = condition("Connected", "False", "the agent has gone")


def says(message: str, reason: str = "Waiting", status: str = "Unknown") -> Obj:
    return condition("Ready", status, message, reason)


@pytest.mark.parametrize(
    ("cluster", "of_management", "state"),
    [
        (wanted(), None, ("provisioning", "")),
        (wanted(says(ROLES)), None, ("waiting-for-machines", ROLES)),
        (wanted(says("configuring bootstrap node(s) m1")), None, ("provisioning", "configuring bootstrap node(s) m1")),
        (wanted(says("configuring worker node(s) m2"), ready=True), managed(UP), ("updating", "configuring worker node(s) m2")),
        (wanted(condition("Ready", "True"), ready=True), managed(UP), ("active", "")),
        (
            wanted(condition("Ready", "True"), condition("Reconciling", "True", "not applied yet"), ready=True),
            managed(UP),
            ("updating", "not applied yet"),
        ),
        (wanted(says("the tokens are lost", "Error", "False")), None, ("error", "the tokens are lost")),
        (wanted(condition("Stalled", "True", "there is no such workspace")), None, ("error", "there is no such workspace")),
        (wanted(condition("Ready", "True"), ready=True), managed(DOWN), ("disconnected", "the agent has gone")),
        # An agent that restarts with its host is what an update does.
        (wanted(says("configuring etcd node(s) m1"), ready=True), managed(DOWN), ("updating", "configuring etcd node(s) m1")),
        (
            wanted(condition("Removed", "Unknown", "waiting for machine [m1] to delete"), deleting=True, ready=True),
            None,
            ("removing", "waiting for machine [m1] to delete"),
        ),
        (wanted(rkeConfig=None, ready=True), managed(UP), ("active", "")),
        (wanted(rkeConfig=None, ready=True), managed(DOWN), ("disconnected", "the agent has gone")),
    ],
)
def test_a_cluster(cluster: Obj, of_management: Obj | None, state: tuple[str, str]) -> None:
    assert states.of_cluster(cluster, of_management) == state


def test_what_was_never_done_is_not_updated() -> None:
    """However soon its agent connects."""
    cluster, before = wanted(says("configuring worker node(s) m2"), ready=True), plane(says("x"))
    after = {**before, "status": {**before["status"], "appliedSpec": {}}}
    assert [states.of_cluster(cluster, managed(UP), each).word for each in (before, after)] == ["provisioning", "updating"]
    assert [states.of_plane(each).word for each in (before, after)] == ["provisioning", "updating"]
    assert states.of_plane(plane(condition("Ready", "True"))).word == "ready"


def test_an_imported_cluster_waits_for_its_agent() -> None:
    found = states.of_cluster(wanted(rkeConfig=None), None)
    assert found.word == "waiting-for-agent" and "registration-command" in found.message


@pytest.mark.parametrize(
    ("found", "state"),
    [
        (machine("m"), ("waiting", "waiting for BootstrapConfigReady")),
        (
            machine("m", condition("BootstrapConfigReady", "True"), condition("InfrastructureReady", "False", "no host yet")),
            ("waiting", "no host yet"),
        ),
        (waiting("m", "waiting for plan to be applied"), ("configuring", "waiting for plan to be applied")),
        (waiting("m", "failure while applying plan (once)"), ("failed", "failure while applying plan (once)")),
        (done("m"), ("ready", "")),
        (
            machine("m", condition("Reconciled", "True"), condition("Ready", "False", "* NodeHealthy: gone\n* x: y")),
            ("not-ready", "NodeHealthy: gone; x: y"),
        ),
        (machine("m", condition("Deleting", "True", "draining"), deleting=True), ("removing", "draining")),
    ],
)
def test_a_machine(found: Obj, state: tuple[str, str]) -> None:
    assert states.of_machine(found) == state


def test_machines_are_counted_against_what_is_asked_for() -> None:
    some = [done("a"), waiting("b", "x"), machine("c", deleting=True)]
    assert states.count(wanted(), None, some) == "1/2"
    assert states.count(wanted(), None, []) == "0/0"
    pools = wanted(rkeConfig={"machinePools": [{"quantity": 3}, {"quantity": 2}, {"name": "none"}]})
    assert states.count(pools, None, some) == "1/5"
    assert states.count(wanted(), None, None) == ""
    assert states.count(wanted(rkeConfig=None), managed(nodeCount=4), None) == "4"
    assert states.count(wanted(rkeConfig=None), None, None) == ""


def test_versions_are_those_that_are_asked_for_or_said() -> None:
    assert states.version_of(wanted(), managed(version={"gitVersion": "v1.33.0"})) == VERSION
    assert states.version_of(wanted(rkeConfig=None), managed(version={"gitVersion": "v1.33.0"})) == "v1.33.0"


def test_what_a_host_says_is_one_line_that_no_terminal_obeys() -> None:
    assert states.of_machine(waiting("m", "a\x1b[31m\x07\nb")).message == "a [31m ; b"


def test_no_word_has_a_space_in_it() -> None:
    words = [value for name, value in vars(states).items() if name.isupper() and not name.startswith("_") and name != "ROLES"]
    assert all(isinstance(word, str) and " " not in word for word in words if "/" not in word)
    assert [states.StateText(word).colour for word in ("active", "error", "updating")] == ["green", "red", "yellow"]
