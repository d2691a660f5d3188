"""Requests as somebody else than the administrator: as a named user, with a token, or with roles of one's own.

A new binding reaches kube-apiserver's authorizer a moment after it is stored, so :func:`grant` returns when it has.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import quote

from . import recording
from .harness import SIDES, Body, Both, Pair, compare_answers

Obj = dict[str, Any]
RBAC = "/apis/rbac.authorization.k8s.io/v1"
SAR = "/apis/authorization.k8s.io/v1/subjectaccessreviews"
SSAR = "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews"
ACCOUNTS = "/api/v1/namespaces/{ns}/serviceaccounts"


@dataclass
class Caller(Pair):
    """A pair whose requests carry headers of their own, on each side."""

    extra: Callable[[str], dict[str, str]] = field(default=lambda side: {})
    # Without the administrator's certificate: the headers must say who it is.
    bare: bool = False

    def send(self, method: str, path: Body, body: Body = None, headers: dict[str, str] | None = None, **kwargs: Any) -> Both:
        compare, ignore = kwargs.pop("compare", True), kwargs.pop("ignore", None)
        answers = {}
        for side in SIDES:
            one = Pair(dict.fromkeys(SIDES, self.endpoints[side]), self.ns)
            where = path(side) if callable(path) else path
            given = body(side) if callable(body) else body
            merged = {**self.extra(side), **(headers or {})}
            answers[side] = _once(one, method, where, given, merged, self.bare, **kwargs)
        both = Both(answers["ours"], answers["real"])
        if compare:
            compare_answers(both, f"{method} {path if not callable(path) else path('real')}", ignore)
        return both


def _once(one: Pair, method: str, where: str, body: Any, headers: dict[str, str], bare: bool, **kwargs: Any) -> Any:
    import json

    data = kwargs.get("raw")
    if body is not None:
        data = body if isinstance(body, bytes) else json.dumps(body).encode()
    if data is not None:
        headers.setdefault("Content-Type", kwargs.get("content_type", "application/json"))
    path = where.format(ns=one.ns) if "{ns}" in where else where
    return one.endpoints["ours"].request(method, path, data, headers, anonymous=bare or kwargs.get("anonymous", False))


def acting(pair: Pair, user: str, groups: Sequence[str] = (), **headers: str) -> Caller:
    """The administrator acting as `user`, who has no certificate of its own."""
    wanted = {"Impersonate-User": user, **repeated("Impersonate-Group", groups), **headers}
    return Caller(pair.endpoints, pair.ns, extra=lambda side: dict(wanted))


def repeated(name: str, values: Sequence[str]) -> dict[str, str]:
    """A header that is sent several times: in a dict each needs a spelling of its own, to servers they are one name."""
    spellings = (name, name.lower(), name.upper(), name.swapcase(), name[:1] + name[1:].upper())
    return dict(zip(spellings, values, strict=False))


def with_token(pair: Pair, tokens: Callable[[str], str]) -> Caller:
    return Caller(pair.endpoints, pair.ns, extra=lambda side: {"Authorization": f"Bearer {tokens(side)}"}, bare=True)


def rule(verbs: Sequence[str], resources: Sequence[str] = (), groups: Sequence[str] = ("",), **more: Any) -> Obj:
    found: Obj = {"verbs": list(verbs)}
    if resources:
        found |= {"apiGroups": list(groups), "resources": list(resources)}
    return {**found, **more}


def role(name: str, *rules: Obj, cluster: bool = False, **meta: Any) -> Obj:
    kind = "ClusterRole" if cluster else "Role"
    return {
        "apiVersion": "rbac.authorization.k8s.io/v1",
        "kind": kind,
        "metadata": {"name": name, **meta},
        "rules": list(rules),
    }


def user_subject(name: str) -> Obj:
    return {"kind": "User", "apiGroup": "rbac.authorization.k8s.io", "name": name}


def group_subject(name: str) -> Obj:
    return {"kind": "Group", "apiGroup": "rbac.authorization.k8s.io", "name": name}


def binding(name: str, role_name: str, *subjects: Obj, role_kind: str = "Role", cluster: bool = False) -> Obj:
    return {
        "apiVersion": "rbac.authorization.k8s.io/v1",
        "kind": "ClusterRoleBinding" if cluster else "RoleBinding",
        "metadata": {"name": name},
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": role_kind, "name": role_name},
        "subjects": list(subjects),
    }


def grant(pair: Pair, user: str, *rules: Obj, name: str = "granted", cluster: bool = False) -> None:
    """Give `user` these rules, in the pair's namespace or everywhere, and wait until both servers act on it."""
    name = f"{pair.ns}-{name}" if cluster else name
    where = RBAC if cluster else f"{RBAC}/namespaces/{{ns}}"
    kinds = ("clusterroles", "clusterrolebindings") if cluster else ("roles", "rolebindings")
    pair.post(f"{where}/{kinds[0]}", role(name, *rules, cluster=cluster), compare=False)
    made = binding(name, name, user_subject(user), role_kind="ClusterRole" if cluster else "Role", cluster=cluster)
    pair.post(f"{where}/{kinds[1]}", made, compare=False)
    for each in rules:
        wait_allowed(pair, user, attributes_of(pair, each))


def ungrant(pair: Pair, name: str = "granted") -> None:
    """Remove what :func:`grant` made for the whole cluster."""
    for kind in ("clusterroles", "clusterrolebindings"):
        pair.delete(f"{RBAC}/{kind}/{pair.ns}-{name}", compare=False)


def attributes_of(pair: Pair, granted: Obj) -> Obj:
    """A question that the rule answers with yes."""
    verb = granted["verbs"][0].replace("*", "get")
    if "nonResourceURLs" in granted:
        return {"nonResourceAttributes": {"path": granted["nonResourceURLs"][0].replace("*", ""), "verb": verb}}
    resource, _, sub = granted["resources"][0].replace("*", "things").partition("/")
    group = granted["apiGroups"][0].replace("*", "")
    asked: Obj = {"namespace": pair.ns, "verb": verb, "group": group, "resource": resource, "subresource": sub}
    if granted.get("resourceNames"):
        asked["name"] = granted["resourceNames"][0]
    return {"resourceAttributes": asked}


def wait_allowed(pair: Pair, user: str, asked: Obj, allowed: bool = True) -> None:
    review = {"apiVersion": "authorization.k8s.io/v1", "kind": "SubjectAccessReview", "spec": {"user": user, **asked}}
    for attempt in recording.attempts(f"{user} {asked}"):
        both = pair.post(SAR, review, compare=False)
        states = {side: both[side].json["status"].get("allowed", False) for side in SIDES}
        if all(state is allowed for state in states.values()):
            return
        attempt.saw(states)


def until(send: Callable[[], Both], status: int) -> Both:
    """Send until both answer so: kube-apiserver remembers for some seconds what it found out about a token."""
    for attempt in recording.attempts(f"status {status}"):
        both = send()
        if both.ours.status == both.real.status == status:
            return both
        attempt.saw({side: both[side].body for side in SIDES})
    raise AssertionError


def account(name: str, **fields: Any) -> Obj:
    return {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": name}, **fields}


def token_request(**spec: Any) -> Obj:
    return {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": spec}


def issue(pair: Pair, name: str = "default", **spec: Any) -> dict[str, str]:
    """A token of this service account on each side."""
    both = pair.post(f"{ACCOUNTS}/{name}/token", token_request(**spec), compare=False)
    assert both.ours.status == both.real.status == 201, (both.ours.body, both.real.body)
    return {side: both[side].json["status"]["token"] for side in SIDES}


def selector(**fields: str) -> str:
    return quote(",".join(f"{key}={value}" for key, value in fields.items()))
