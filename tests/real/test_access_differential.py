"""Random roles, random questions: Remuda's access control answers as the real server does, word for word.

Three questions are put to both: may they (access reviews), may they grant this (escalation), may they act as somebody
else (impersonation). The roles are made in the real cluster and copied to our side. The questions are always the same ones, and
others under `make soak`; `REMUDA_SEED` repeats what that found, `REMUDA_SAMPLES` asks more.
"""

from __future__ import annotations

import http.client
import json
import os
import random
import ssl
import time
import urllib.parse
from collections.abc import Iterator, Sequence
from typing import Any

import pytest

from remuda.apiserver.auth.escalation import EscalationGuard
from remuda.apiserver.auth.impersonation import Impersonator, parse
from remuda.kube.authorization.actions import Action, forbidden_action
from remuda.kube.authorization.rbac import Rbac
from remuda.kube.authorization.users import User
from remuda.kube.errors import ApiError
from tests.real import need
from tests.real.cluster import HOST, RealCluster
from tests.scenarios.soaking import SEED
from tests.unit.kube.authorization.stored import RBAC, RESOURCES, Obj, Stored, rule, urls

pytestmark = [pytest.mark.real, pytest.mark.soak, pytest.mark.timeout(900)]

API = f"/apis/{RBAC}/v1"
AUTH = "authentication.k8s.io"
SAMPLES = int(os.environ.get("REMUDA_SAMPLES", "150"))
USERS = [f"user-{index}" for index in range(6)]
GROUPS = [f"group-{index}" for index in range(3)]
ROLES = [f"role-{index}" for index in range(10)]
ACTORS = [f"actor-{index}" for index in range(8)]
Headers = Sequence[tuple[str, str]]

IMPERSONATION_RULES = [
    rule("impersonate", "core", "users", "bob"),
    rule("impersonate", "core", "users"),
    rule("impersonate", "core", "groups", "g"),
    rule("impersonate", "core", "groups"),
    rule("impersonate", "core", "serviceaccounts"),
    rule("impersonate", AUTH, "uids"),
    rule("impersonate", AUTH, "userextras/x.io/a"),
    rule("impersonate", AUTH, "userextras/scopes"),
    rule("impersonate:user-info", AUTH, "users", "bob"),
    rule("impersonate:user-info", AUTH, "users groups"),
    rule("impersonate:user-info", AUTH, "groups", "*"),
    rule("impersonate:user-info", AUTH, "uids userextras/x.io/a"),
    rule("impersonate-on:user-info:create", AUTH, "selfsubjectreviews"),
    rule("impersonate-on:serviceaccount:create", AUTH, "selfsubjectreviews"),
    rule("impersonate:serviceaccount", AUTH, "serviceaccounts"),
    rule("impersonate-on:arbitrary-node:create", AUTH, "selfsubjectreviews"),
    rule("impersonate:arbitrary-node", AUTH, "nodes"),
    rule("*", "core", "users groups"),
]
WANTED_NAMES = ["bob", "eve", "system:node:n1", "system:node:N1", "system:serviceaccount:a:x", "system:serviceaccount:a",
                "system:anonymous", ""]  # fmt: skip
WANTED_GROUPS = [(), ("g",), ("g", "h"), ("a", "b", "c", "d"), ("system:masters",), ("",), ("system:unauthenticated",)]
WANTED_EXTRAS = [
    None,
    None,
    ("X.io%2fA", "1"),
    ("Scopes", "v"),
    ("x.io%2fa", ""),
    ("x.io%2f%41", "1"),
    ("x_y%2fa", "1"),
    ("50%", "1"),
]


class Both:
    """The real server, and our authorizer over a copy of its roles."""

    def __init__(self, cluster: RealCluster, seed: int) -> None:
        self.random = random.Random(seed)
        self._cluster = cluster
        self._port = urllib.parse.urlsplit(cluster.url).port
        self.tokens: dict[str, str] = {}
        self._fill()
        self._until_known()
        stored = Stored()
        for kind, (group, resource) in RESOURCES.items():
            if group == RBAC:
                for item in self.call("GET", f"{API}/{resource}")[1]["items"]:
                    stored.put({**item, "kind": kind})
        self.rbac = Rbac(stored)

    def call(self, method: str, path: str, body: Obj | None = None, headers: Headers = (), token: str = "") -> tuple[int, Any]:
        context = ssl.create_default_context(cafile=str(self._cluster.ca_pem))
        if not token:
            context.load_cert_chain(self._cluster.admin_cert, self._cluster.admin_key)
        connection = http.client.HTTPSConnection(HOST, self._port, context=context, timeout=60)
        content = json.dumps(body).encode() if body is not None else b""
        connection.putrequest(method, path)
        for name, value in (("Content-Type", "application/json"), ("Content-Length", str(len(content))), *headers):
            connection.putheader(name, value)
        if token:
            connection.putheader("Authorization", f"Bearer {token}")
        try:
            connection.endheaders(content)
            response = connection.getresponse()
            return response.status, json.loads(response.read())
        finally:
            connection.close()

    def make(self, path: str, body: Obj) -> Obj:
        status, found = self.call("POST", path, body)
        assert status == 201, found
        return dict(found)

    def words(self, choices: Sequence[str]) -> str:
        return " ".join(self.random.sample(choices, self.random.randint(1, 2)))

    def rule(self) -> Obj:
        if self.random.random() < 0.15:
            return urls(self.words(["get", "post", "*"]), self.words(["/a", "/a/*", "*", "/a/b", "/ab"]))
        resources = self.words(["pods", "secrets", "pods/log", "*/scale", "*", "deployments/scale", "deployments"])
        names = self.words(["x", "y"]) if self.random.random() < 0.3 else ""
        return rule(self.words(["get", "list", "create", "*"]), self.words(["core", "apps", "*"]), resources, names)

    def user(self) -> User:
        return User(self.random.choice(USERS), groups=tuple(self.random.sample(GROUPS, self.random.randint(0, 2))))

    def _role(self, name: str, *rules: Obj) -> None:
        self.make(f"{API}/clusterroles", {"metadata": {"name": name}, "rules": list(rules)})

    def _bind(self, name: str, role: str, subjects: list[Obj], namespace: str = "") -> None:
        path = f"{API}/namespaces/{namespace}/rolebindings" if namespace else f"{API}/clusterrolebindings"
        ref = {"apiGroup": RBAC, "kind": "ClusterRole", "name": role}
        self.make(path, {"metadata": {"name": name}, "roleRef": ref, "subjects": subjects})

    def _fill(self) -> None:
        for name in ROLES:
            self._role(name, *(self.rule() for _ in range(self.random.randint(0, 3))))
        self._role("maker", rule("create", RBAC, "roles rolebindings clusterroles clusterrolebindings"))
        self._bind("maker", "maker", [_subject("User", user) for user in USERS])
        self._role("freed", rule("escalate", RBAC, "roles"), rule("bind", RBAC, "clusterroles", f"{ROLES[0]} {ROLES[1]}"))
        self._bind("freed", "freed", [_subject("User", USERS[0])])
        for index in range(12):
            subjects = [_subject("User", self.random.choice(USERS)), _subject("Group", self.random.choice(GROUPS))]
            where = self.random.choice(["", "default", "kube-system"])
            self._bind(f"random-{index}", self.random.choice([*ROLES, "nothing"]), subjects, where)
        for name in ACTORS:
            self.make("/api/v1/namespaces/default/serviceaccounts", {"metadata": {"name": name}})
            self._role(name, *self.random.sample(IMPERSONATION_RULES, self.random.randint(1, 8)))
            self._bind(name, name, [{"kind": "ServiceAccount", "namespace": "default", "name": name}])
            path = f"/api/v1/namespaces/default/serviceaccounts/{name}/token"
            self.tokens[name] = self.make(path, {"spec": {}})["status"]["token"]

    def _until_known(self) -> None:
        """The server follows its roles by watch, each kind in order: once it knows the last ones it knows all."""
        self._role("last", rule("know", "core", "everything"))
        self._bind("last", "last", [_subject("User", "last")])
        self._bind("last", "last", [_subject("User", "last-here")], "default")
        end = time.monotonic() + 90
        for user in ("last", "last-here"):
            asked = {"verb": "know", "resource": "everything", "namespace": "default"}
            review = {"spec": {"user": user, "resourceAttributes": asked}}
            while not self.make("/apis/authorization.k8s.io/v1/subjectaccessreviews", review)["status"]["allowed"]:
                assert time.monotonic() < end, f"the server does not know the role of {user}"
                time.sleep(0.05)


def _subject(kind: str, name: str) -> Obj:
    return {"kind": kind, "apiGroup": RBAC, "name": name}


@pytest.fixture(scope="module")
def both() -> Iterator[Both]:
    need.programs("kubernetes", "etcd")
    print(f"REMUDA_SEED={SEED}")
    with RealCluster(fsync=False) as cluster:
        yield Both(cluster, SEED)


def test_access_reviews_agree(both: Both) -> None:
    pick = both.random.choice
    for _ in range(SAMPLES):
        user = both.user()
        spec: Obj = {"user": user.name, "groups": list(user.groups)}
        if both.random.random() < 0.2:
            verb, path = pick(["get", "post"]), pick(["/a", "/a/", "/a/b", "/ab", "/x"])
            spec["nonResourceAttributes"] = {"verb": verb, "path": path}
            action = Action.on_path(user, verb, path)
        else:
            action = Action(
                user,
                pick(["get", "list", "create", "*"]),
                pick(["", "apps", "*"]),
                "*",
                pick(["pods", "secrets", "deployments", "*"]),
                pick(["", "log", "scale"]),
                pick(["", "default", "kube-system"]),
                pick(["", "x", "z"]),
            )
            fields = ("verb", "group", "version", "resource", "subresource", "namespace", "name")
            spec["resourceAttributes"] = {field: getattr(action, field) for field in fields}
        theirs = both.make("/apis/authorization.k8s.io/v1/subjectaccessreviews", {"spec": spec})["status"]
        ours = both.rbac.authorize(action)
        assert ours.allowed == theirs["allowed"], spec
        # Which of several bindings allowed it, upstream leaves to chance.
        assert ours.allowed or ours.reason == theirs.get("reason", ""), spec


def test_escalation_checks_agree(both: Both) -> None:
    guard = EscalationGuard(both.rbac)
    for _ in range(SAMPLES):
        user, namespace = both.user(), both.random.choice(["", "default"])
        obj: Obj = {"metadata": {"name": "wanted"}}
        if both.random.random() < 0.6:
            resource = "roles" if namespace else "clusterroles"
            rules = [both.rule() for _ in range(both.random.randint(0, 2))]
            obj["rules"] = [each for each in rules if not (namespace and "nonResourceURLs" in each)]
            if not namespace and both.random.random() < 0.2:
                obj["aggregationRule"] = {"clusterRoleSelectors": [{"matchLabels": {"a": "b"}}]}
        else:
            resource = "rolebindings" if namespace else "clusterrolebindings"
            obj["roleRef"] = {"apiGroup": RBAC, "kind": "ClusterRole", "name": both.random.choice([*ROLES, "nothing"])}
        path = f"{API}/namespaces/{namespace}/{resource}" if namespace else f"{API}/{resource}"
        headers = [("Impersonate-User", user.name), *(("Impersonate-Group", group) for group in user.groups)]
        status, theirs = both.call("POST", f"{path}?dryRun=All", obj, headers)
        ours: Obj | None = None
        try:
            guard.check(User(user.name, groups=(*user.groups, "system:authenticated")), resource, namespace, "", obj)
        except ApiError as error:
            ours = error.status()
        assert ours == (None if status == 201 else theirs), (user, resource, obj)


def test_impersonation_agrees(both: Both) -> None:
    impersonator = Impersonator(both.rbac)
    pick = both.random.choice
    for _ in range(SAMPLES):
        actor, name, extra = pick(ACTORS), pick(WANTED_NAMES), pick(WANTED_EXTRAS)
        headers = [("Impersonate-User", name)] if name else []
        headers += [("Impersonate-Group", group) for group in pick(WANTED_GROUPS)]
        headers += [("Impersonate-Uid", "u")] if both.random.random() < 0.2 else []
        headers += [(f"Impersonate-Extra-{extra[0]}", extra[1])] if extra else []
        if not headers:
            continue
        body = {"apiVersion": f"{AUTH}/v1", "kind": "SelfSubjectReview"}
        status, theirs = both.call("POST", f"/apis/{AUTH}/v1/selfsubjectreviews", body, headers, both.tokens[actor])
        ours = _act(both.rbac, impersonator, actor, headers)
        assert ours == (theirs["status"]["userInfo"] if status == 201 else theirs), (actor, headers)


def _act(rbac: Rbac, impersonator: Impersonator, actor: str, headers: Headers) -> Obj:
    """The user that asking "who am I" with these headers shows, or the Status that refuses it."""
    groups = ("system:serviceaccounts", "system:serviceaccounts:default", "system:authenticated")
    action = Action(User(f"system:serviceaccount:default:{actor}", groups=groups), "create", AUTH, "v1", "selfsubjectreviews")
    try:
        wanted = parse(headers)
        assert wanted is not None
        action = action.but(user=impersonator.impersonate(wanted, action))
        decision = rbac.authorize(action)
        if not decision.allowed:
            raise forbidden_action(action, decision.reason)
    except ApiError as error:
        return error.status()
    return action.user.info()
