"""The review APIs: objects that are asked, answered and never stored.

Each handler takes the decoded body, the asking user and :class:`Services`, and gives the object to answer with (201) or
raises an ApiError. They expect a body that passed the built-in codec (known fields, right types) and keep its metadata,
to which the write path has added managedFields, as kube-apiserver's answers show them.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any, Protocol

from remuda.kube.clock import Clock

from ..authn import Chain
from ..authz import Authorizer
from ..authz.rbac import RuleError
from ..authz.rules import Rule
from ..users import User

Obj = dict[str, Any]


class RuleHolder(Authorizer, Protocol):
    """An authorizer that can also list what a user may do; :class:`~remuda.apiserver.authz.rbac.Rbac` is one."""

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
    from . import access, identity

    return {
        ("authentication.k8s.io", "tokenreviews"): identity.token_review,
        ("authentication.k8s.io", "selfsubjectreviews"): identity.self_subject_review,
        ("authorization.k8s.io", "subjectaccessreviews"): access.subject_access_review,
        ("authorization.k8s.io", "localsubjectaccessreviews"): access.local_subject_access_review,
        ("authorization.k8s.io", "selfsubjectaccessreviews"): access.self_subject_access_review,
        ("authorization.k8s.io", "selfsubjectrulesreviews"): access.self_subject_rules_review,
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
