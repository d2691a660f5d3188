"""`remuda get` and `remuda history`: how kinds are named, and what is refused before anybody is asked."""

from __future__ import annotations

import pytest

from remuda.cli.remote.resource_kinds import Kind, matching, shown, split
from tests.integration.cli.running import Shell


def kind(plural: str, name: str, group: str = "", version: str = "v1", *more: str, namespaced: bool = True) -> Kind:
    return Kind(group, version, plural, name, namespaced, frozenset((name.lower(), *more)))


KINDS = [
    kind("pods", "Pod", "", "v1", "po"),
    kind("namespaces", "Namespace", "", "v1", "ns", namespaced=False),
    kind("deployments", "Deployment", "apps", "v1", "deploy"),
    kind("clusters", "Cluster", "cluster.x-k8s.io", "v1beta2", "cl"),
    kind("clusters", "Cluster", "cluster.x-k8s.io", "v1beta1", "cl"),
    kind("clusters", "Cluster", "provisioning.cattle.io"),
]


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("pods", ["v1 pods"]),
        ("Pod", ["v1 pods"]),
        ("po", ["v1 pods"]),
        ("pods.v1.", ["v1 pods"]),
        ("deploy.apps", ["v1 deployments.apps"]),
        ("deployments.v1.apps", ["v1 deployments.apps"]),
        ("deployments.batch", []),
        (
            "cluster",
            ["v1beta2 clusters.cluster.x-k8s.io", "v1beta1 clusters.cluster.x-k8s.io", "v1 clusters.provisioning.cattle.io"],
        ),
        ("clusters.v1beta1.cluster.x-k8s.io", ["v1beta1 clusters.cluster.x-k8s.io"]),
        ("cluster.provisioning.cattle.io", ["v1 clusters.provisioning.cattle.io"]),
        ("cluster.provisioning", ["v1 clusters.provisioning.cattle.io"]),
        ("", []),
    ],
)
def test_a_kind_answers_to_what_kubectl_calls_it(text: str, found: list[str]) -> None:
    assert [f"{each.version} {each.qualified}" for each in matching(KINDS, text)] == found


def test_paths_and_references() -> None:
    assert KINDS[0].path("default", "a") == "/api/v1/namespaces/default/pods/a"
    assert KINDS[0].path("") == "/api/v1/pods"
    assert KINDS[1].path("default", "system:x") == "/api/v1/namespaces/system%3Ax"
    assert KINDS[2].path("a/b", "../c") == "/apis/apps/v1/namespaces/a%2Fb/deployments/..%2Fc"
    assert (KINDS[0].reference, KINDS[2].reference) == ("pod", "deployment.apps")
    assert split("cm/a", "") == split("cm", "a") == ("cm", "a")


def test_what_others_wrote_does_nothing_to_a_terminal() -> None:
    assert shown("plain Ünïcode") == "plain Ünïcode"
    assert shown("red\x1b[31m\x9b0m") == "red\N{REPLACEMENT CHARACTER}[31m\N{REPLACEMENT CHARACTER}0m"
    assert shown("first\nsecond") == "first..."


@pytest.mark.parametrize(
    ("line", "why"),
    [
        ("get", "missing argument 'KIND[/NAME]'"),
        ("get cm/a b", "'cm/a' with 'b' names no object: give KIND, KIND NAME or KIND/NAME"),
        ("get cm a -A", "-A is only for lists: give the namespace of one object with -n"),
        ("get cm a -l x=y", "-l is only for lists: one object is selected by its name"),
        ("get cm -A -n x", "-A and -n exclude each other"),
        ("get cm --at tomorrow", "invalid value for '--at': 'tomorrow' is no moment: give a revision such as 4711"),
        ("get cm --at 0", "invalid value for '--at': '0' is no revision"),
        ("history cm", "name the object: KIND NAME, or KIND/NAME"),
        ("history cm a --limit 0", "invalid value for '--limit'"),
    ],
)
def test_what_makes_no_sense_is_refused(shell: Shell, line: str, why: str) -> None:
    (shell.home / "data").mkdir()
    server = "clusters: [{name: a, cluster: {server: 'https://127.0.0.1:1'}}]\ncontexts: [{name: a, context: {cluster: a}}]"
    (shell.home / "data" / "kubeconfig").write_text(f"{server}\ncurrent-context: a\n")
    done = shell.run(*line.split())
    assert done.returncode == 2 and why in done.stderr and len(done.stderr.splitlines()) == 1, done.stderr
