"""What needs a person: causes with the same remedy are one problem, and what ends by itself is none until it lasts."""

from __future__ import annotations

import pytest

from remuda.gateway.explain.attention import CERTIFICATES, needs_attention, problems, waiting_clusters
from remuda.gateway.explain.states import ClusterView
from remuda.kube.waits import Actor, Code, Ref, Wait
from tests.unit.cli.views.shown_clusters import (
    DEMO,
    FLEET,
    NOW,
    PLANE,
    ago,
    condition,
    done,
    machine,
    machine_ref,
    sight,
    wait,
    wanted,
)

CREDENTIAL = Ref("", "Secret", "cattle-global-data", "cc-1")


def named(name: str, *waits: Wait) -> ClusterView:
    cluster = wanted(condition("Ready", "Unknown", "waiting"))
    cluster["metadata"]["name"] = name
    return ClusterView(cluster, waits=waits)


def test_clusters_with_one_remedy_are_one_problem_and_the_largest_is_first() -> None:
    def stuck(name: str) -> ClusterView:
        return named(
            name, wait(Code.SILENT, Ref("rke.cattle.io", "RKEControlPlane", FLEET, name), Actor.USER, f"{name}-1 is silent")
        )

    alone = named("c", wait(Code.RELEASE, Ref("rke.cattle.io", "RKEControlPlane", FLEET, "c"), Actor.USER, "unknown version"))
    found = [each.shown() for each in problems([alone, stuck("a"), stuck("b")], NOW)]
    assert [(each["code"], each["count"], each["actor"]) for each in found] == [("Silent", 2, "user"), ("Release", 1, "user")]
    assert [case["cluster"]["name"] for case in found[0]["cases"]] == ["a", "b"]
    assert found[0]["cases"][0]["since"] == ago(60) and found[0]["cases"][0]["message"] == "a-1 is silent"


def test_every_problem_says_what_to_do_and_secrets_stay_secret() -> None:
    token = "b" * 54
    view = sight(wanted(), waits=(wait(Code.MALFORMED, PLANE, Actor.USER, f"token {token} is wrong"),))
    (found,) = problems([view], NOW)
    assert found.advice and token not in str(found.shown())


@pytest.mark.parametrize(
    ("code", "actor", "since", "expected"),
    [
        (Code.CHECK_IN, Actor.USER, 5, True),
        (Code.PLAN_FAILED, Actor.MACHINE, 5, True),
        (Code.PROVISIONING, Actor.PROVIDER, 60, False),
        (Code.PROVISIONING, Actor.PROVIDER, 3600, True),
        (Code.TIER, Actor.REMUDA, 60, False),
    ],
)
def test_what_ends_by_itself_is_left_alone_until_it_lasts(code: Code, actor: Actor, since: float, expected: bool) -> None:
    assert needs_attention(wait(code, PLANE, actor, "text", since=since), NOW) is expected
    assert needs_attention(Wait(Code.TIER, PLANE, Actor.REMUDA), NOW) is False


def test_certificates_that_expire_soon_are_a_problem_of_a_cluster_that_is_fine() -> None:
    view = sight(
        wanted(condition("Ready", "True"), condition("CertificatesExpiring", "True", "in 6 days: m1")), done("m1"), waits=()
    )
    (found,) = problems([view], NOW)
    assert (found.code, found.cases[0].message) == (CERTIFICATES, "in 6 days: m1")
    assert found.cases[0].commands == (f"remuda cluster rotate-certificates {DEMO} -n {FLEET}",)
    assert problems([sight(wanted(condition("Ready", "True")), done("m1"), waits=())], NOW) == []


def test_clusters_are_found_by_the_names_of_what_waits() -> None:
    clusters = [named(name).wanted for name in ("prod-eu", "prod", "custom", "calm")]
    clusters[3]["status"]["clusterName"] = "c-m-calm"
    hosts = [machine("custom-1a2b")]
    hosts[0]["spec"]["clusterName"] = "custom"

    def found(*refs: Ref) -> set[str]:
        return {key.name for key in waiting_clusters(clusters, hosts, refs)}

    assert found(machine_ref("prod-eu-pool-xyz")) == {"prod-eu", "prod"}  # a name may be that of either
    assert found(machine_ref("custom-1a2b")) == {"custom"}
    assert found(Ref("management.cattle.io", "Cluster", "", "c-m-calm")) == {"calm"}
    assert found(Ref("rke.cattle.io", "RKEControlPlane", "elsewhere", "prod")) == set()
    assert found(CREDENTIAL) == set()
