"""kubectl on who may do what: auth, create token, impersonation."""

from __future__ import annotations

import base64
import json
import shlex

import pytest

from .harness import SIDES
from .kubectl import Kubectl, sorted_lines


@pytest.mark.parametrize(
    "args",
    [
        "auth can-i get pods",
        "auth can-i '*' '*'",
        "auth can-i get pods --as=nobody",
        "auth can-i get pods -A --as=nobody",
        "auth can-i get pods/log",
        "auth can-i get pods --subresource=log --as=nobody -q",
        "auth can-i get /healthz --as=nobody",
        "auth can-i get /logs --as=nobody",
        "auth can-i get nopes",
        "auth can-i get nodes",
        "auth can-i list deployments.apps",
        "auth can-i list nope.example.com --as=nobody",
        "auth can-i create pods --as=system:serviceaccount:{ns}:default",
        "auth can-i get cm --as=u --as-group=system:masters",
        "auth can-i get cm/a --as=u",
        "auth can-i",
        "auth whoami --as=u --as-group=g1 --as-group=g2",
        "auth whoami --as=u -o yaml",
        "auth whoami --as=u -o json",
        "auth whoami --as=u --as-uid=7 --as-user-extra=a=b",
        "auth whoami --as-group=g",
        "get pods --as=nobody",
        "get pods --as=system:serviceaccount:{ns}:default",
        "get ns --as=nobody",
        "get pod x --as=nobody",
        "create cm x --as=nobody",
        "delete cm x --as=nobody",
        "get --raw /metrics --as=nobody",
        "get --raw /healthz --as=nobody",
    ],
)
def test_access(kubectl: Kubectl, args: str) -> None:
    kubectl(*shlex.split(args))


def test_whoami_of_an_administrator_names_the_groups(kubectl: Kubectl) -> None:
    kubectl("auth", "whoami", "-o", "jsonpath={.status.userInfo.groups}", code=0)


@pytest.mark.parametrize("who", ["nobody", "system:serviceaccount:{ns}:reader", "admin-like"])
def test_list_of_what_one_may_do(kubectl: Kubectl, who: str) -> None:
    kubectl("create", "sa", "reader", code=0)
    kubectl("create", "role", "r", "--verb=get,list", "--resource=pods,configmaps", "--resource-name=a", code=0)
    kubectl("create", "rolebinding", "b", "--role=r", "--serviceaccount={ns}:reader", code=0)
    kubectl("create", "rolebinding", "c", "--clusterrole=admin", "--user=admin-like", code=0)
    kubectl.until("auth", "can-i", "get", "cm/a", "--as=system:serviceaccount:{ns}:reader", shows="yes")
    kubectl.until("auth", "can-i", "create", "pods", "--as=admin-like", shows="yes")
    kubectl("auth", "can-i", "--list", f"--as={who}", shape=sorted_lines, code=0)


def test_list_of_what_a_system_master_may_do(kubectl: Kubectl) -> None:
    kubectl("auth", "can-i", "--list", shape=sorted_lines, code=0)


def test_reconcile(kubectl: Kubectl) -> None:
    rbac = "rbac.authorization.k8s.io"
    role = {
        "apiVersion": f"{rbac}/v1",
        "kind": "Role",
        "metadata": {"name": "r", "namespace": "{ns}"},
        "rules": [{"apiGroups": [""], "resources": ["pods"], "verbs": ["get"]}],
    }
    binding = {
        "apiVersion": f"{rbac}/v1",
        "kind": "RoleBinding",
        "metadata": {"name": "b", "namespace": "{ns}"},
        "roleRef": {"apiGroup": rbac, "kind": "Role", "name": "r"},
        "subjects": [{"apiGroup": rbac, "kind": "User", "name": "u"}],
    }
    kubectl.write("a.yaml", role, binding)
    kubectl("auth", "reconcile", "-f", "a.yaml", code=0)
    kubectl("auth", "reconcile", "-f", "a.yaml", code=0)
    role["rules"] = [{"apiGroups": [""], "resources": ["secrets"], "verbs": ["get"]}]
    binding["subjects"] = [{"apiGroup": rbac, "kind": "User", "name": "v"}]
    kubectl.write("a.yaml", role, binding)
    kubectl("auth", "reconcile", "-f", "a.yaml", "--dry-run=client", code=0)
    kubectl("auth", "reconcile", "-f", "a.yaml", "--remove-extra-permissions", code=0)
    kubectl("get", "role/r", "rolebinding/b", "-o", "yaml", code=0)


def _claims(token: str) -> dict[str, object]:
    part = token.split(".")[1]
    claims = json.loads(base64.urlsafe_b64decode(part + "=" * (-len(part) % 4)))
    return dict(claims)


def test_create_token(kubectl: Kubectl) -> None:
    kubectl("create", "sa", "x", code=0)
    said = kubectl("create", "token", "x", code=0)
    shapes = []
    for side in SIDES:
        claims = _claims(said[side].out.strip())
        who = claims["kubernetes.io"]
        assert isinstance(who, dict)
        times = int(str(claims["exp"])) - int(str(claims["iat"]))
        shapes.append((sorted(claims), claims["iss"], claims["sub"], claims["aud"], times, who["namespace"], sorted(who)))
    assert shapes[0] == shapes[1]
    kubectl("create", "token", "x", "--duration=10m", "--audience=a", "--audience=b", code=0)
    kubectl("create", "token", "x", "--duration=1s", code=1)
    kubectl("create", "token", "nope", code=1)
    kubectl("create", "token", "x", "--bound-object-kind=Pod", "--bound-object-name=nope", code=1)
    kubectl("create", "token", "x", "--bound-object-kind=Nope", "--bound-object-name=nope", code=1)
    kubectl("create", "token", "x", "--as=nobody", code=1)


def test_a_token_works_as_its_service_account(kubectl: Kubectl) -> None:
    kubectl("create", "sa", "x", code=0)
    kubectl("create", "rolebinding", "b", "--clusterrole=view", "--serviceaccount={ns}:x", code=0)
    kubectl.until("auth", "can-i", "get", "cm", "--as=system:serviceaccount:{ns}:x", shows="yes")
    tokens = {side: kubectl.on(side, "create", "token", "x").out.strip() for side in SIDES}
    for args in (["auth", "whoami"], ["get", "cm", "-o", "name"], ["get", "secrets"], ["auth", "can-i", "--list"]):
        said = {side: kubectl.with_token(side, tokens[side], *args) for side in SIDES}
        kubectl.compare(said, tuple(args), sorted_lines)
