"""TokenReview ("whose token is this?") and SelfSubjectReview ("who am I?", `kubectl auth whoami`)."""

from __future__ import annotations

from typing import Any

from remuda.kube.authorization.users import User
from remuda.kube.clock import rfc3339
from remuda.kube.errors import bad_request

from .authenticator import INVALID_TOKEN, BadCredentials, Credentials, bearer_token
from .reviews import Services, answer

Obj = dict[str, Any]

_VERSION = "authentication.k8s.io/v1"


async def token_review(body: Obj, user: User, services: Services, namespace: str = "") -> Obj:
    spec = body.get("spec") or {}
    text = spec.get("token") or ""
    if not text:
        raise bad_request("token is required for TokenReview in authentication")
    # Parsed like a request's header: text after a space is not part of the token.
    credentials = Credentials(bearer=bearer_token(f"Bearer {text}"), audiences=tuple(spec.get("audiences") or ()))
    status: Obj = {"user": {}}
    try:
        identity = await services.chain.identify(credentials)
    except BadCredentials as error:
        return answer("TokenReview", _VERSION, body, {**status, "error": error.why})
    if identity is None:
        return answer("TokenReview", _VERSION, body, {**status, "error": INVALID_TOKEN} if credentials.bearer else status)
    status = {"authenticated": True, "user": identity.user.info()}
    if identity.audiences:
        status["audiences"] = list(identity.audiences)
    return answer("TokenReview", _VERSION, body, status)


async def self_subject_review(body: Obj, user: User, services: Services, namespace: str = "") -> Obj:
    return {
        "kind": "SelfSubjectReview",
        "apiVersion": _VERSION,
        "metadata": {"creationTimestamp": rfc3339(services.clock.time())},
        "status": {"userInfo": user.info()},
    }
