"""Namespaces: what comes with them, and what goes with them."""

from __future__ import annotations

from typing import Any

import pytest

from .builders import NAMESPACES, cm, deployment, namespace, pod, with_meta
from .harness import OURS, REAL, Answer, Pair

SIDES = (OURS, REAL)


def gone(answer: Answer) -> bool:
    return answer.status == 404


@pytest.fixture
def other(pair: Pair) -> str:
    name = f"{pair.ns}-x"
    pair.post(NAMESPACES, namespace(name))
    # Pods need the one, and the other would be counted: a namespace that is going can't get them any more.
    for made in ("serviceaccounts/default", "configmaps/kube-root-ca.crt"):
        pair.eventually(f"{NAMESPACES}/{name}/{made}", lambda answer: answer.status == 200, compare=False)
    return name


def test_a_namespace_is_labelled_with_its_name(pair: Pair, other: str) -> None:
    pair.get(f"{NAMESPACES}/{other}")


def test_a_namespace_gets_a_service_account_and_the_root_certificate(pair: Pair, other: str) -> None:
    pair.eventually(f"{NAMESPACES}/{other}/serviceaccounts/default", lambda answer: answer.status == 200)
    pair.eventually(f"{NAMESPACES}/{other}/configmaps/kube-root-ca.crt", lambda answer: answer.status == 200)


def test_they_come_back_when_deleted(pair: Pair, other: str) -> None:
    for path in (f"{NAMESPACES}/{other}/serviceaccounts/default", f"{NAMESPACES}/{other}/configmaps/kube-root-ca.crt"):
        first = pair.eventually(path, lambda answer: answer.status == 200, compare=False)
        uids = {first[side].json["metadata"]["uid"] for side in SIDES}
        pair.delete(path, compare=False)
        pair.eventually(path, lambda answer, uids=uids: answer.status == 200 and answer.json["metadata"]["uid"] not in uids)


def test_a_namespace_that_is_deleted_says_terminating(pair: Pair, other: str) -> None:
    pair.post(f"{NAMESPACES}/{other}/configmaps", with_meta(cm("held"), finalizers=["example.com/hold"]))
    answer = pair.delete(f"{NAMESPACES}/{other}")
    assert answer.json["status"]["phase"] == "Terminating"
    pair.patch(f"{NAMESPACES}/{other}/configmaps/held", {"metadata": {"finalizers": None}}, compare=False)


def test_an_empty_namespace_goes(pair: Pair, other: str) -> None:
    pair.delete(f"{NAMESPACES}/{other}", compare=False)
    pair.eventually(f"{NAMESPACES}/{other}", gone)


def test_a_namespace_takes_its_content_along(pair: Pair, other: str) -> None:
    pair.post(f"{NAMESPACES}/{other}/configmaps", cm("a"))
    pair.post(f"{NAMESPACES}/{other}/pods", pod("p"))
    pair.post(f"/apis/apps/v1/namespaces/{other}/deployments", deployment("d"))
    pair.delete(f"{NAMESPACES}/{other}", compare=False)
    pair.eventually(f"{NAMESPACES}/{other}", gone)
    for path in (f"{NAMESPACES}/{other}/configmaps", f"/apis/apps/v1/namespaces/{other}/deployments"):
        assert pair.get(path).json["items"] == []


def conditions(answer: Answer) -> dict[str, str]:
    return {c["type"]: c["status"] for c in (answer.json.get("status") or {}).get("conditions") or ()}


def test_a_namespace_tells_what_it_waits_for(pair: Pair, other: str) -> None:
    pair.post(f"{NAMESPACES}/{other}/configmaps", with_meta(cm("held"), finalizers=["example.com/hold"]))
    pair.post(f"{NAMESPACES}/{other}/configmaps", cm("free"))
    pair.delete(f"{NAMESPACES}/{other}", compare=False)

    def held(answer: Answer) -> bool:
        # Discovery fails for a moment while a group comes or goes, as those of other tests do; the next round gets over that.
        remaining = {"NamespaceContentRemaining", "NamespaceFinalizersRemaining"}
        return {kind for kind, status in conditions(answer).items() if status == "True"} == remaining

    def in_order(body: Any) -> Any:
        body["status"]["conditions"].sort(key=lambda each: each["type"])
        body["metadata"].pop("managedFields")
        return body

    pair.eventually(f"{NAMESPACES}/{other}", held, ignore=in_order)
    pair.eventually(f"{NAMESPACES}/{other}/configmaps/free", gone)
    pair.patch(f"{NAMESPACES}/{other}/configmaps/held", {"metadata": {"finalizers": None}}, compare=False)
    pair.eventually(f"{NAMESPACES}/{other}", gone)


def test_a_pod_with_grace_holds_its_namespace(pair: Pair, other: str) -> None:
    pair.post(f"{NAMESPACES}/{other}/pods", pod("p", node="n1"))
    pair.delete(f"{NAMESPACES}/{other}", compare=False)
    pair.eventually(f"{NAMESPACES}/{other}/pods/p", lambda answer: "deletionTimestamp" in answer.json["metadata"], compare=False)
    assert pair.get(f"{NAMESPACES}/{other}", ignore=lambda body: body["status"]["phase"]).status == 200
    pair.delete(f"{NAMESPACES}/{other}/pods/p?gracePeriodSeconds=0", compare=False)
    pair.eventually(f"{NAMESPACES}/{other}", gone)


@pytest.mark.parametrize("name", ["default", "kube-system", "kube-public"])
def test_some_namespaces_can_not_be_deleted(pair: Pair, name: str) -> None:
    assert pair.delete(f"{NAMESPACES}/{name}").status == 403


def test_namespaces_can_not_be_deleted_as_a_collection(pair: Pair) -> None:
    assert pair.delete(NAMESPACES).status == 405


def test_deleting_a_namespace_twice(pair: Pair, other: str) -> None:
    pair.post(f"{NAMESPACES}/{other}/configmaps", with_meta(cm("held"), finalizers=["example.com/hold"]))
    pair.delete(f"{NAMESPACES}/{other}", compare=False)

    def phase(body: Any) -> Any:
        return body.get("status", {}).get("phase") if isinstance(body.get("status"), dict) else body

    pair.delete(f"{NAMESPACES}/{other}", ignore=phase)
    pair.patch(f"{NAMESPACES}/{other}/configmaps/held", {"metadata": {"finalizers": None}}, compare=False)


def test_what_exists_can_still_be_changed_while_terminating(pair: Pair, other: str) -> None:
    pair.post(f"{NAMESPACES}/{other}/configmaps", with_meta(cm("held"), finalizers=["example.com/hold"]))
    pair.delete(f"{NAMESPACES}/{other}", compare=False)
    pair.eventually(f"{NAMESPACES}/{other}/configmaps/held", lambda a: "deletionTimestamp" in a.json["metadata"], compare=False)
    pair.patch(f"{NAMESPACES}/{other}/configmaps/held", {"data": {"x": "1"}})
    assert (
        pair.apply(
            f"{NAMESPACES}/{other}/configmaps/new", {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "new"}}
        ).status
        == 403
    )
    pair.patch(f"{NAMESPACES}/{other}/configmaps/held", {"metadata": {"finalizers": None}}, compare=False)


def test_a_finalizer_on_the_namespace_itself_holds_it(pair: Pair) -> None:
    name = f"{pair.ns}-f"
    pair.post(NAMESPACES, with_meta(namespace(name), finalizers=["example.com/hold"]))
    pair.delete(f"{NAMESPACES}/{name}", compare=False)
    pair.eventually(f"{NAMESPACES}/{name}", lambda answer: not answer.json["spec"].get("finalizers"), compare=False)
    pair.patch(f"{NAMESPACES}/{name}", {"metadata": {"finalizers": None}}, compare=False)
    pair.eventually(f"{NAMESPACES}/{name}", gone)


def test_spec_finalizers_are_changed_only_through_finalize(pair: Pair, other: str) -> None:
    pair.put(f"{NAMESPACES}/{other}", {**namespace(other), "spec": {"finalizers": []}})
    pair.put(f"{NAMESPACES}/{other}/finalize", {**namespace(other), "spec": {"finalizers": ["kubernetes", "example.com/x"]}})
    pair.get(f"{NAMESPACES}/{other}")
    pair.put(f"{NAMESPACES}/{other}/finalize", {**namespace(other), "spec": {"finalizers": ["kubernetes"]}})


def test_the_status_of_a_namespace_by_itself(pair: Pair, other: str) -> None:
    pair.get(f"{NAMESPACES}/{other}/status")
    pair.patch(f"{NAMESPACES}/{other}/status", {"status": {"phase": "Nonsense"}})


def test_the_name_label_can_not_be_changed(pair: Pair, other: str) -> None:
    pair.patch(f"{NAMESPACES}/{other}", {"metadata": {"labels": {"kubernetes.io/metadata.name": "wrong"}}})
    pair.patch(f"{NAMESPACES}/{other}", {"metadata": {"labels": {"kubernetes.io/metadata.name": None}}})


def test_a_namespace_that_comes_again_is_a_new_one(pair: Pair, other: str) -> None:
    pair.post(f"{NAMESPACES}/{other}/configmaps", cm("old"))
    pair.delete(f"{NAMESPACES}/{other}", compare=False)
    pair.eventually(f"{NAMESPACES}/{other}", gone)
    pair.post(NAMESPACES, namespace(other))
    assert pair.get(f"{NAMESPACES}/{other}/configmaps/old").status == 404
