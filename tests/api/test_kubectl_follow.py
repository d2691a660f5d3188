"""kubectl that follows: `get -w`, `wait`, `rollout`, `events -w`."""

from __future__ import annotations

from .builders import cm, deployment, pod
from .kubectl import Kubectl
from .zoo import define, event, pony, service, undefine


def test_watch_of_a_kind(kubectl: Kubectl) -> None:
    kubectl.apply(deployment("a", 1))
    kubectl.watch(
        "get",
        "deploy",
        "-w",
        first=2,
        act=[
            lambda: kubectl("scale", "deploy/a", "--replicas=2", code=0),
            lambda: kubectl.apply(deployment("b", 0)),
            lambda: kubectl("delete", "deploy", "a", "--wait=false", code=0),
        ],
    )


def test_watch_with_labels_and_wide(kubectl: Kubectl) -> None:
    kubectl.apply(pod("p", labels={"a": "b"}), pod("q"))
    kubectl.watch(
        "get",
        "pods",
        "-w",
        "-o",
        "wide",
        "--show-labels",
        "-l",
        "a=b",
        first=2,
        act=[
            lambda: kubectl("label", "pod", "p", "c=d", code=0),
            lambda: kubectl("label", "pod", "q", "a=b", code=0),
            lambda: kubectl("label", "pod", "p", "a-", code=0),
        ],
    )


def test_watch_only(kubectl: Kubectl) -> None:
    kubectl.apply(cm("a"))
    kubectl.watch(
        "get",
        "cm",
        "a",
        "--watch-only",
        "--no-headers",
        first=0,
        act=[
            lambda: kubectl("patch", "cm", "a", "-p", '{"data":{"x":"1"}}', code=0),
            lambda: kubectl("delete", "cm", "a", code=0),
        ],
    )


def test_watch_with_kinds_of_event(kubectl: Kubectl) -> None:
    kubectl.apply(cm("a"))
    kubectl.watch(
        "get",
        "cm",
        "-w",
        "--output-watch-events",
        "--field-selector",
        "metadata.name!=kube-root-ca.crt",
        first=2,
        act=[
            lambda: kubectl.apply(cm("b", x="1")),
            lambda: kubectl("label", "cm", "b", "k=v", code=0),
            lambda: kubectl("delete", "cm", "b", code=0),
        ],
    )


def test_watch_as_names_and_templates(kubectl: Kubectl) -> None:
    kubectl.apply(cm("a", x="0"))
    changes = [lambda: kubectl("patch", "cm", "a", "-p", '{"data":{"x":"1"}}', code=0)]
    kubectl.watch("get", "cm", "a", "-w", "-o", "name", first=1, act=changes)
    changes = [lambda: kubectl("patch", "cm", "a", "-p", '{"data":{"x":"2"}}', code=0)]
    kubectl.watch("get", "cm", "a", "-w", "-o", 'jsonpath={.data.x}{"\\n"}', first=1, act=changes)
    changes = [lambda: kubectl("patch", "cm", "a", "-p", '{"data":{"x":"3"}}', code=0)]
    kubectl.watch("get", "cm", "a", "-w", "-o", "custom-columns=N:.metadata.name,X:.data.x", first=2, act=changes)


def test_watch_of_a_custom_kind(kubectl: Kubectl) -> None:
    define(kubectl)
    kubectl.apply(pony(kubectl.ns, "merry"))
    ready = '{"status":{"conditions":[{"type":"Ready","status":"True"}]}}'
    kubectl.watch(
        "get",
        "ponies",
        "-w",
        first=2,
        act=[
            lambda: kubectl("patch", "pn", "merry", "--subresource=status", "--type=merge", "-p", ready, code=0),
            lambda: kubectl("delete", "pn", "merry", code=0),
        ],
    )
    undefine(kubectl)


def test_watch_of_events(kubectl: Kubectl) -> None:
    kubectl.apply(event("e1", kubectl.ns))
    kubectl.watch("events", "-w", first=2, act=[lambda: kubectl.apply(event("e2", kubectl.ns, "Washed"))])


# --- wait ------------------------------------------------------------------------------------------------------------


def _condition(kind: str, status: str) -> str:
    return f'{{"status":{{"conditions":[{{"type":"{kind}","status":"{status}"}}]}}}}'


def test_wait_for_a_condition(kubectl: Kubectl) -> None:
    kubectl.apply(deployment("d"))
    kubectl("wait", "--for=condition=Available", "deploy/d", "--timeout=3s", code=1)
    with kubectl.meanwhile("wait", "--for=condition=Available", "deploy/d", "--timeout=90s"):
        kubectl("patch", "deploy", "d", "--subresource=status", "-p", _condition("Available", "True"), code=0)
    kubectl("wait", "--for=condition=Available=False", "deploy/d", "--timeout=3s", code=1)
    kubectl("wait", "--for=condition=available", "deploy", "--all", "--timeout=60s", code=0)
    kubectl("wait", "--for=condition=Available", "deploy/nope", "--timeout=1s", code=1)
    kubectl("wait", "--for=condition=Available", "deploy", "-l", "no=such", "--timeout=1s", code=1)


def test_wait_for_a_value(kubectl: Kubectl) -> None:
    kubectl.apply(cm("a", x="1"))
    kubectl("wait", "--for=jsonpath={.data.x}=1", "cm/a", "--timeout=60s", code=0)
    kubectl("wait", "--for=jsonpath={.data.y}", "cm/a", "--timeout=3s", code=1)
    with kubectl.meanwhile("wait", "--for=jsonpath={.data.x}=2", "cm/a", "--timeout=90s"):
        kubectl("patch", "cm", "a", "-p", '{"data":{"x":"2"}}', code=0)


def test_wait_for_deletion(kubectl: Kubectl) -> None:
    kubectl.apply(cm("a"), cm("b"))
    kubectl("wait", "--for=delete", "cm/a", "--timeout=5s", code=1)
    with kubectl.meanwhile("wait", "--for=delete", "cm/a", "--timeout=90s"):
        kubectl("delete", "cm", "a", code=0)
    kubectl("wait", "--for=delete", "cm/a", "--timeout=1s", code=0)


def test_wait_for_creation(kubectl: Kubectl) -> None:
    kubectl.apply(cm("a"))
    kubectl("wait", "--for=create", "cm/a", "--timeout=60s", code=0)
    with kubectl.meanwhile("wait", "--for=create", "cm/b", "--timeout=90s"):
        kubectl.apply(cm("b"))


# --- rollout ---------------------------------------------------------------------------------------------------------


def _rolled(replicas: int, generation: int = 1) -> str:
    counts = f'"replicas":{replicas},"updatedReplicas":{replicas},"availableReplicas":{replicas},"readyReplicas":{replicas}'
    return f'{{"status":{{"observedGeneration":{generation},{counts}}}}}'


def test_rollout_status(kubectl: Kubectl) -> None:
    kubectl.apply(deployment("d", 2))
    kubectl("rollout", "status", "deploy/d", "--watch=false", code=0)
    with kubectl.meanwhile("rollout", "status", "deploy/d", "--timeout=90s"):
        kubectl("patch", "deploy", "d", "--subresource=status", "-p", _rolled(2), code=0)
    kubectl("rollout", "status", "deploy/nope", code=1)


def test_rollout_history_restart_and_pause(kubectl: Kubectl) -> None:
    kubectl.apply(deployment("d", 2), service("s"))
    kubectl("rollout", "history", "deploy/d")
    kubectl("rollout", "pause", "deploy/d", code=0)
    kubectl("rollout", "pause", "deploy/d", code=1)
    kubectl("rollout", "restart", "deploy/d", code=1)
    kubectl("rollout", "resume", "deploy/d", code=0)
    kubectl("rollout", "restart", "deploy/d", code=0)
    kubectl("rollout", "undo", "deploy/d", code=1)
    kubectl("rollout", "status", "svc/s", code=1)
    kubectl("get", "deploy", "d", "-o", "yaml", "--show-managed-fields", code=0)
