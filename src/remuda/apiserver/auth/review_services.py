"""The review APIs: objects that are asked, answered and never stored.

Each handler takes the decoded body, the asking user and :class:`Services`, and gives the object to answer with (201) or
raises an ApiError. They expect a body that passed the built-in codec (known fields, right types) and keep its metadata,
to which the write path has added managedFields, as kube-apiserver's answers show them.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any, Protocol

from remuda.kube.authorization.actions import Authorizer
from remuda.kube.authorization.policy_rules import Rule
from remuda.kube.authorization.rbac import RuleError
from remuda.kube.authorization.users import User
from remuda.kube.clock import Clock

from .authenticator import Chain

Obj = dict[str, Any]


class RuleHolder(Authorizer, Protocol):
    """An authorizer that can also list what a user may do; :class:`~remuda.kube.authorization.rbac.Rbac` is one."""

    def rules_for(self, user: User, namespace: str) -> tuple[list[Rule], list[RuleError]]: ...


@dataclass(frozen=True, slots=True)
class Services:
    chain: Chain
    authorizer: RuleHolder
    clock: Clock


# Body, user, services and the namespace of the request's path ("" for cluster-scoped reviews).
Handler = Callable[[Obj, User, Services, str], Awaitable[Obj]]


def handlers() -> dict[tuple[str, str], Handler]:
    """The handlers by API group and resource."""
    from . import identity_reviews, reviews

    return {
        ("authentication.k8s.io", "tokenreviews"): identity_reviews.token_review,
        ("authentication.k8s.io", "selfsubjectreviews"): identity_reviews.self_subject_review,
        ("authorization.k8s.io", "subjectaccessreviews"): reviews.subject_access_review,
        ("authorization.k8s.io", "localsubjectaccessreviews"): reviews.local_subject_access_review,
        ("authorization.k8s.io", "selfsubjectaccessreviews"): reviews.self_subject_access_review,
        ("authorization.k8s.io", "selfsubjectrulesreviews"): reviews.self_subject_rules_review,
    }


def answer(kind: str, api_version: str, body: Obj, status: Obj) -> Obj:
    """The asked object with its answer."""
    return {
        "kind": kind,
        "apiVersion": api_version,
        "metadata": body.get("metadata") or {},
        "spec": body.get("spec") or {},
        "status": status,
    }
