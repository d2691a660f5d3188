"""Service accounts: the one every namespace has, what pods get from theirs, and the CA they trust."""

from __future__ import annotations

import re
from typing import Any

import pytest

from .builders import PODS, SECRETS, namespace, pod
from .callers import ACCOUNTS, account
from .harness import Pair


def volumes_named(body: Any) -> Any:
    """A token volume has a generated name."""
    import json

    return json.loads(re.sub(r"kube-api-access-[a-z0-9]{5}", "kube-api-access-<name>", json.dumps(body)))


def mounting(name: str, **spec: Any) -> dict[str, Any]:
    found = pod(name, **spec)
    if "automountServiceAccountToken" not in spec:
        del found["spec"]["automountServiceAccountToken"]
    return found


def test_a_namespace_gets_a_default_account(pair: Pair) -> None:
    pair.get(ACCOUNTS + "/default")


def test_a_deleted_default_account_comes_back(pair: Pair) -> None:
    before = pair.get(ACCOUNTS + "/default")
    pair.delete(ACCOUNTS + "/default")

    def back(side: str) -> Any:
        old = before[side].json["metadata"]["uid"]
        return lambda answer: answer.status == 200 and answer.json["metadata"]["uid"] != old

    pair.eventually(ACCOUNTS + "/default", lambda answer: back("ours")(answer) and back("real")(answer))


def test_a_namespace_gets_the_servers_ca(pair: Pair) -> None:
    def shown(body: Any) -> Any:
        body["data"] = sorted(body["data"])
        return body

    where = "/api/v1/namespaces/{ns}/configmaps/kube-root-ca.crt"
    both = pair.eventually(where, lambda answer: answer.status == 200, ignore=shown)
    for side in ("ours", "real"):
        assert both[side].json["data"]["ca.crt"].startswith("-----BEGIN CERTIFICATE-----")


def test_a_changed_ca_is_put_right(pair: Pair) -> None:
    where = "/api/v1/namespaces/{ns}/configmaps/kube-root-ca.crt"
    pair.eventually(where, lambda answer: answer.status == 200, compare=False)
    pair.patch(where, {"data": {"ca.crt": "wrong"}}, ignore=lambda body: body["data"])
    pair.eventually(where, lambda answer: answer.json["data"]["ca.crt"] != "wrong", compare=False)
    pair.delete(where, compare=False)
    pair.eventually(where, lambda answer: answer.status == 200, compare=False)


def test_a_new_namespace_is_furnished_at_once(pair: Pair) -> None:
    other = f"{pair.ns}-new"
    pair.post("/api/v1/namespaces", namespace(other))
    for path in ("serviceaccounts/default", "configmaps/kube-root-ca.crt"):
        pair.eventually(f"/api/v1/namespaces/{other}/{path}", lambda answer: answer.status == 200, compare=False)
    pair.delete(f"/api/v1/namespaces/{other}", compare=False)


def test_a_pod_gets_its_accounts_token(pair: Pair) -> None:
    pair.post(PODS, mounting("p"), ignore=volumes_named)


def test_every_container_gets_the_token(pair: Pair) -> None:
    body = mounting("p", initContainers=[{"name": "i", "image": "x"}])
    body["spec"]["containers"].append(
        {
            "name": "own",
            "image": "x",
            "volumeMounts": [{"name": "mine", "mountPath": "/var/run/secrets/kubernetes.io/serviceaccount"}],
        }
    )
    body["spec"]["volumes"] = [{"name": "mine", "emptyDir": {}}]
    pair.post(PODS, body, ignore=volumes_named)


@pytest.mark.parametrize("of_account", [None, True, False])
@pytest.mark.parametrize("of_pod", [None, True, False])
def test_pod_and_account_say_whether_the_token_is_mounted(pair: Pair, of_account: bool | None, of_pod: bool | None) -> None:
    fields = {} if of_account is None else {"automountServiceAccountToken": of_account}
    pair.post(ACCOUNTS, account("a", **fields))
    spec = {} if of_pod is None else {"automountServiceAccountToken": of_pod}
    pair.post(PODS, mounting("p", serviceAccountName="a", **spec), ignore=volumes_named)


def test_a_pod_needs_an_account_that_exists(pair: Pair) -> None:
    assert pair.post(PODS, mounting("p", serviceAccountName="missing")).status == 403
    generated = mounting("p", serviceAccountName="missing")
    generated["metadata"] = {"generateName": "p-"}
    assert pair.post(PODS, generated).status == 403


def test_a_pod_names_its_account_once(pair: Pair) -> None:
    pair.post(ACCOUNTS, account("a"))
    pair.post(PODS, mounting("p", serviceAccountName="a", serviceAccount="b"), ignore=volumes_named)
    pair.post(PODS, mounting("q", serviceAccount="a"), ignore=volumes_named)


def test_pull_secrets_come_from_the_account(pair: Pair) -> None:
    pair.post(ACCOUNTS, account("a", imagePullSecrets=[{"name": "one"}, {"name": "two"}]))
    pair.post(PODS, pod("p", serviceAccountName="a"))
    pair.post(PODS, pod("q", serviceAccountName="a", imagePullSecrets=[{"name": "own"}]))


def test_an_account_may_narrow_the_secrets_its_pods_mount(pair: Pair) -> None:
    body = account("a", secrets=[{"name": "mine"}], imagePullSecrets=[{"name": "pull"}])
    body["metadata"]["annotations"] = {"kubernetes.io/enforce-mountable-secrets": "true"}
    pair.post(ACCOUNTS, body)
    volume = [{"name": "v", "secret": {"secretName": "other"}}]
    assert pair.post(PODS, pod("p", serviceAccountName="a", volumes=volume)).status == 403
    env = [{"name": "E", "valueFrom": {"secretKeyRef": {"name": "other", "key": "k"}}}]
    containers = [{"name": "c", "image": "x", "env": env}]
    assert pair.post(PODS, pod("p", serviceAccountName="a", containers=containers)).status == 403
    containers = [{"name": "c", "image": "x", "envFrom": [{"secretRef": {"name": "other"}}]}]
    assert pair.post(PODS, pod("p", serviceAccountName="a", containers=containers)).status == 403
    assert pair.post(PODS, pod("p", serviceAccountName="a", imagePullSecrets=[{"name": "other"}])).status == 403
    volume = [{"name": "v", "secret": {"secretName": "mine"}}]
    assert pair.post(PODS, pod("p", serviceAccountName="a", volumes=volume)).status == 201


def test_a_mirror_pod_takes_nothing_from_an_account(pair: Pair) -> None:
    body = mounting("p", node="n1")
    body["metadata"]["annotations"] = {"kubernetes.io/config.mirror": "x"}
    pair.post(PODS, body)
    refused = mounting("q", serviceAccountName="default", node="n1")
    refused["metadata"]["annotations"] = {"kubernetes.io/config.mirror": "x"}
    assert pair.post(PODS, refused).status == 403
    refused = mounting("q", volumes=[{"name": "s", "secret": {"secretName": "x"}}], node="n1")
    refused["metadata"]["annotations"] = {"kubernetes.io/config.mirror": "x"}
    assert pair.post(PODS, refused).status == 403


def test_an_account_takes_references_as_they_are(pair: Pair) -> None:
    body = account("a", secrets=[{"name": "x", "namespace": "y"}], imagePullSecrets=[{"name": ""}])
    pair.post(ACCOUNTS, body)
    pair.patch(ACCOUNTS + "/a", {"secrets": [{"name": "z"}]})
    pair.patch(
        ACCOUNTS + "/a",
        {"secrets": [{"name": "w"}], "imagePullSecrets": [{"name": "v"}]},
        "application/strategic-merge-patch+json",
    )


def test_the_accounts_of_the_controllers_secret_type(pair: Pair) -> None:
    body = {"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "s"}, "type": "kubernetes.io/service-account-token"}
    assert pair.post(SECRETS, body).status == 422
