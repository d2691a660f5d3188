"""Proof that a session leads to the cluster that we know, where the agent says something else than before.

A registration token is in a manifest that people mail around. With nothing but that nobody may make a known cluster point to
another API (and have everybody's requests), nor learn the service account token that is stored for it. So:

- Another token at the same API: that API, under the stored CA, says that the new token is the same account as the old.
- Another API or CA: if the stored CA vouches for the new API, too, it gets the stored token and must accept it. If it does not
  (the CA was replaced), the stored token is not shown to a stranger. Then the new token itself is the proof: it must be for the
  same account, and signed with a key that the cluster had published while it was known.

:mod:`.tunnels` asks, through the session in question and before anybody else knows of it.
"""

from __future__ import annotations

from typing import Any, Final

from remuda.kube import jsonio
from remuda.kube.clock import Clock
from remuda.kube.objects import dig
from remuda.tunnel import Session

from .contact import Change, Params, Stored, subject_of
from .through import NoAnswer, ask_api

Obj = dict[str, Any]

_REVIEWS: Final = "/apis/authentication.k8s.io/v1/tokenreviews"
_ALGORITHMS: Final = ("RS256", "ES256")


class Unproven(Exception):
    """It may be another cluster; the text says what is missing."""


async def prove(session: Session, clock: Clock, change: Change, stored: Stored, params: Params, keys: str) -> None:
    """Raises Unproven. `keys` is the key set (JSON) that the cluster has published, or empty."""
    try:
        if change is Change.TOKEN:
            await _prove_token(session, clock, stored, params)
        else:
            await _prove_place(session, clock, stored, params, keys)
    except NoAnswer as error:
        raise Unproven(f"the API did not say who its token is for: {error}") from None


async def _prove_token(session: Session, clock: Clock, stored: Stored, params: Params) -> None:
    found = await _account(session, clock, params, stored.ca, params.token, params.token)
    if not found:
        raise Unproven("the API that is known does not accept the new service account token")
    if not stored.token:
        return
    # The old one may be good no more, which is why there is a new one; then its own word has to do.
    before = await _account(session, clock, params, stored.ca, params.token, stored.token) or subject_of(stored.token)
    if before != found:
        raise Unproven("the new service account token is for another account")


async def _prove_place(session: Session, clock: Clock, stored: Stored, params: Params, keys: str) -> None:
    found = await _account(session, clock, params, params.ca, params.token, params.token)
    if not found:
        raise Unproven("the new API does not accept the service account token that was sent with it")
    if not stored.token:
        raise Unproven("there is no stored service account token that the new API could accept")
    try:
        before = await _account(session, clock, params, stored.ca, stored.token, stored.token)
    except NoAnswer:
        if not is_signed(params.token, keys) or subject_of(params.token) != subject_of(stored.token):
            raise Unproven("the stored CA does not vouch for the new API, and its token is none of the known cluster's") from None
        return
    if before != found:
        raise Unproven("the new API does not accept the stored service account token")


async def _account(session: Session, clock: Clock, params: Params, ca: str, bearer: str, about: str) -> str:
    """The name of the user that a token is for, by the word of the API; empty when it is for nobody."""
    review = {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenReview", "spec": {"token": about}}
    status, answer = await ask_api(session, clock, params.endpoint, ca, bearer, "POST", _REVIEWS, review)
    if status not in (200, 201) or dig(answer, "status", "authenticated") is not True:
        return ""
    name = dig(answer, "status", "user", "username")
    return name if isinstance(name, str) else ""


def is_signed(token: str, keys: str) -> bool:
    """Whether a token was signed with one of the keys of a set."""
    from joserfc import jws
    from joserfc.errors import JoseError
    from joserfc.jwk import KeySet

    if not keys:
        return False
    try:
        jws.deserialize_compact(token, KeySet.import_key_set(jsonio.loads(keys)), algorithms=list(_ALGORITHMS))
    except (JoseError, ValueError, KeyError, TypeError):
        return False
    return True
