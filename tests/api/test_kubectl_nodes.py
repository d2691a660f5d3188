"""kubectl on nodes and on what would need a kubelet."""

from __future__ import annotations

import shlex
from collections.abc import Iterator

import pytest

from .builders import pod
from .kubectl import Kubectl
from .zoo import node


@pytest.fixture
def with_node(kubectl: Kubectl) -> Iterator[Kubectl]:
    name = f"{kubectl.ns}-n"
    kubectl.apply(node(name))
    kubectl.apply(pod("p", node=name, labels={"app": "p"}), pod("q"))
    yield kubectl
    kubectl("delete", "node", name, compare=False)


def test_cordon_and_uncordon(with_node: Kubectl) -> None:
    for verb in ("cordon", "cordon", "uncordon", "uncordon"):
        with_node(verb, "{ns}-n", code=0)
        with_node("get", "node", "{ns}-n", "-o", "yaml", code=0)
    with_node("cordon", "nope", code=1)
    with_node("cordon", "{ns}-n", "--dry-run=server", code=0)


@pytest.mark.parametrize(
    "args",
    [
        "drain {ns}-n --dry-run=client --force",
        "drain {ns}-n --dry-run=server --force",
        "drain {ns}-n",
        "drain nope",
    ],
)
def test_drain(with_node: Kubectl, args: str) -> None:
    with_node(*shlex.split(args))
    with_node("get", "pods", code=0)


def test_drain_evicts(with_node: Kubectl) -> None:
    with_node("drain", "{ns}-n", "--force", "--grace-period=0", "--timeout=80s", code=0)
    with_node("get", "pods", "-o", "name", code=0)


def test_drain_waits_for_a_budget(with_node: Kubectl) -> None:
    ready = '{"status":{"phase":"Running","conditions":[{"type":"Ready","status":"True"}]}}'
    with_node("patch", "pod", "p", "--subresource=status", "-p", ready, code=0)
    with_node("create", "pdb", "b", "--selector=app=p", "--min-available=1", code=0)
    with_node.until("get", "pdb", "b", "-o", "yaml", shows="currentHealthy: 1")
    with_node("drain", "{ns}-n", "--force", "--grace-period=0", "--timeout=4s", code=1)


@pytest.mark.parametrize(
    "args",
    [
        "taint node {ns}-n a=b:NoSchedule",
        "taint node {ns}-n a=b:NoSchedule a:NoExecute",
        "taint node {ns}-n a=b:Nope",
        "taint node {ns}-n a-",
        "taint node {ns}-n --overwrite a=c:NoSchedule",
        "taint node nope a=b:NoSchedule",
        "label node {ns}-n x=y",
        "annotate node {ns}-n x=y",
        "describe node {ns}-n",
    ],
)
def test_taints_and_labels(with_node: Kubectl, args: str) -> None:
    with_node(*shlex.split(args))
    with_node("get", "node", "{ns}-n", "-o", "yaml", "--show-managed-fields", code=0)


@pytest.mark.parametrize(
    "args",
    [
        "logs nope",
        "exec nope -- true",
        "attach nope",
        "port-forward nope 80",
        "cp nope:/a b",
        "top pods",
        "top nodes",
        "rollout status deploy/nope",
    ],
)
def test_what_is_not_there(with_node: Kubectl, args: str) -> None:
    with_node(*shlex.split(args))


@pytest.mark.xfail(strict=True, reason="certificate signing requests are not served")
def test_certificates(kubectl: Kubectl) -> None:
    kubectl("certificate", "approve", "nope")


@pytest.mark.parametrize(
    "args", ["logs p", "exec p -- true", "attach p", "port-forward p 8080:80", "cp p:/a b", "debug p --image=i"]
)
def test_what_needs_a_kubelet_fails_with_a_sentence(with_node: Kubectl, args: str) -> None:
    """There is none behind Remuda, so it answers something else than a server that tries to reach one."""
    # kubectl forwards ports of running pods only.
    assert with_node.on("ours", "patch", "pod", "p", "--subresource=status", "-p", '{"status":{"phase":"Running"}}').code == 0
    said = with_node.on("ours", *shlex.split(args))
    assert said.code == 1
    assert said.err.strip() and "panic" not in said.err and "Traceback" not in said.err and "Internal" not in said.err
    asked = {"logs": "log", "cp": "exec", "port-forward": "portforward", "debug": "ephemeralcontainers"}
    subresource = asked.get(args.split()[0], args.split()[0])
    assert f"pods/{subresource} is not served: this API server is connected to no kubelet" in said.err
