"""Authentication of bearer tokens by a webhook, with TokenReview (kube-apiserver's `authentication-token-webhook`).

It is for tokens that no earlier authenticator in the chain knows. Answers, good or bad, are cached by the token's digest;
failures to reach the webhook are not. :mod:`remuda.apiserver.webhook_client` makes the calls.
"""

from __future__ import annotations

import hashlib
from collections import OrderedDict
from dataclasses import dataclass
from typing import Any

from remuda.kube.authorization.users import User
from remuda.kube.clock import Clock

from ..webhook_client import CallError, WebhookClient, WebhookEndpoint
from .authenticator import BadCredentials, Credentials, Identity

Obj = dict[str, Any]

GROUP = "authentication.k8s.io"
VERSIONS = ("v1", "v1beta1")
ANSWER_WITHIN = 10
_REMEMBERED = 4096


@dataclass(frozen=True, slots=True)
class _Said:
    identity: Identity | None
    problem: str
    until: float


class WebhookAuthenticator:
    """`keep` is the lifetime of a cached answer, in seconds."""

    def __init__(
        self, client: WebhookClient, endpoint: WebhookEndpoint, clock: Clock, *, version: str = "v1beta1", keep: float = 120.0
    ) -> None:
        self._client = client
        self._endpoint = endpoint
        self._clock = clock
        self._version = version
        self._keep = keep
        self._said: OrderedDict[bytes, _Said] = OrderedDict()

    async def identify(self, credentials: Credentials) -> Identity | None:
        token = credentials.bearer
        if not token:
            return None
        digest = hashlib.sha256(token.encode()).digest()
        said = self._said.get(digest)
        if said is None or said.until <= self._clock.monotonic():
            said = await self._ask(token)
            self._remember(digest, said)
        if said.problem:
            raise BadCredentials(said.problem)
        return said.identity

    def _remember(self, digest: bytes, said: _Said) -> None:
        self._said[digest] = said
        self._said.move_to_end(digest)
        if len(self._said) > _REMEMBERED:
            self._said.popitem(last=False)

    async def _ask(self, token: str) -> _Said:
        review = {
            "apiVersion": f"{GROUP}/{self._version}",
            "kind": "TokenReview",
            "metadata": {},
            "spec": {"token": token},
        }
        try:
            answer = await self._client.post(self._endpoint, review, ANSWER_WITHIN)
        except CallError as error:
            raise BadCredentials(str(error)) from None
        status = answer.get("status")
        told: Obj = status if isinstance(status, dict) else {}
        until = self._clock.monotonic() + self._keep
        user = _user(told.get("user")) if told.get("authenticated") is True else None
        if user is not None:
            return _Said(Identity(user), "", until)
        problem = told.get("error")
        return _Said(None, problem if isinstance(problem, str) else "", until)


def _user(said: Any) -> User | None:
    if not isinstance(said, dict) or not isinstance(said.get("username"), str) or not said["username"]:
        return None
    groups = tuple(group for group in said.get("groups") or () if isinstance(group, str))
    extra = {
        str(name): [value for value in values if isinstance(value, str)]
        for name, values in (said.get("extra") or {}).items()
        if isinstance(values, list)
    }
    return User(said["username"], str(said.get("uid") or ""), groups, extra)
