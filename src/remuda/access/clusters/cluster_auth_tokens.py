"""What a cluster has to know to check its users' tokens by itself: pure, from tokens and users. :mod:`.cluster_auth` writes it.

Only tokens that are good for this very cluster: one that opens others, too, is nothing that a cluster's owner should get to see,
not even its hash.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Final

from remuda.api.cluster_cattle_io import API_VERSION
from remuda.kube.clock import rfc3339
from remuda.kube.objects import annotations_of, dig, is_being_deleted, name_of

from ..agent_objects import MADE_FOR, NAMESPACE
from ..users.tokens import HASHED_ANNOTATION, ends_at, groups_of, is_expired
from ..users.user_objects import is_enabled

Obj = dict[str, Any]

TOKEN: Final = "ClusterAuthToken"
USER: Final = "ClusterUserAttribute"


def is_wanted(cluster: Obj) -> bool:
    """Whether the cluster has an authorised endpoint. The management cluster is its own."""
    return dig(cluster, "spec", "localClusterAuthEndpoint", "enabled") is True and not dig(cluster, "spec", "internal")


def desired(cluster: str, tokens: Iterable[Obj], users: Mapping[str, Obj], now: float) -> list[Obj]:
    """Users first: a token of somebody who is not known yet lets nobody in."""
    found: list[Obj] = []
    groups: dict[str, set[str]] = {}
    for token in sorted(tokens, key=name_of):
        user = str(token.get("userId") or "")
        if _counts(token, cluster, now) and user in users and _is_let_in(users[user]):
            groups.setdefault(user, set()).update(groups_of(token))
            found.append(_token(token, user, cluster))
    return [*(_user(name, sorted(groups[name]), cluster) for name in sorted(groups)), *found]


def _counts(token: Obj, cluster: str, now: float) -> bool:
    return (
        token.get("clusterName") == cluster
        and token.get("enabled") is not False
        # Not a word of one whose secret is kept as it is.
        and annotations_of(token).get(HASHED_ANNOTATION) == "true"
        and not is_being_deleted(token)
        and not is_expired(token, now)
    )


def _is_let_in(user: Obj) -> bool:
    return is_enabled(user) and not is_being_deleted(user) and user.get("mustChangePassword") is not True


def _token(token: Obj, user: str, cluster: str) -> Obj:
    ends = ends_at(token)
    return {
        **_object(TOKEN, name_of(token), cluster),
        "userName": user,
        "hash": str(token.get("token") or ""),
        "expiresAt": "" if ends is None else rfc3339(ends),
        "enabled": True,
    }


def _user(name: str, groups: list[str], cluster: str) -> Obj:
    return {**_object(USER, name, cluster), "groups": groups, "enabled": True}


def _object(kind: str, name: str, cluster: str) -> Obj:
    metadata = {"name": name, "namespace": NAMESPACE, "annotations": {MADE_FOR: cluster}}
    return {"apiVersion": API_VERSION, "kind": kind, "metadata": metadata}


def difference(existing: Obj, wanted: Obj) -> Obj:
    """A merge patch that makes it so; empty when it is."""
    patch = {name: value for name, value in wanted.items() if name != "metadata" and existing.get(name) != value}
    for name in ("apiVersion", "kind"):
        # Objects of a list need not say what they are.
        patch.pop(name, None)
    if annotations_of(existing).get(MADE_FOR) != annotations_of(wanted)[MADE_FOR]:
        patch["metadata"] = {"annotations": annotations_of(wanted)}
    return patch
