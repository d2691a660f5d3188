"""Proof that a session leads to the cluster that we know, where the agent says something else than before.

A registration token is in a manifest that people mail around. With nothing but that nobody may make a known cluster point to
another API (and have everybody's requests), nor learn the service account token that is stored for it. Nor may a machine of the
cluster: its kubelet's certificate is often signed by the CA that the API's is, so that CA proves nothing. What nobody but the API
can do is to sign a token. So:

- First, before anybody is asked anything: the token that was sent must be for the same account as the stored one, not have ended,
  and be signed with a key that the cluster had published while it was known.
- Then the API that was named, under the CA that was named, must accept it as that account's. It is shown nothing else; the stored
  token is shown to nobody.
- While no keys are known (nobody has been able to ask yet), another address or CA can't be proven. Another token at the known
  address, under the known CA, can: that API says whose it is.

:mod:`.tunnels` asks, through the session in question and before anybody else knows of it.
"""

from __future__ import annotations

from typing import Any, Final

from remuda.kube.clock import Clock
from remuda.kube.encoding import jsonio
from remuda.kube.objects import dig
from remuda.tunnel import Session

from .agent_claims import Change, Params, Stored, claims_of, subject_of
from .tunnel_probe import NoAnswer, ask_api

Obj = dict[str, Any]

_REVIEWS: Final = "/apis/authentication.k8s.io/v1/tokenreviews"
_ALGORITHMS: Final = ("RS256", "ES256", "ES384", "ES512")
# By how much a cluster's clock may be behind ours.
_SKEW: Final = 300.0


class Unproven(Exception):
    """It may be another cluster; the text says what is missing."""


async def prove(session: Session, clock: Clock, change: Change, stored: Stored, params: Params, keys: str) -> None:
    """Raises Unproven. `keys` is the key set (JSON) that the cluster has published, or empty."""
    if keys:
        if problem := _not_its_own(params.token, stored.token, keys, clock.time()):
            raise Unproven(problem)
    elif change is Change.PLACE:
        raise Unproven("it is not known yet which keys the known cluster signs its tokens with")
    ca = stored.ca if change is Change.TOKEN else params.ca
    try:
        found = await _account(session, clock, params, ca)
    except NoAnswer as error:
        raise Unproven(f"the API did not say who its token is for: {error}") from None
    if not found:
        raise Unproven("the API does not accept the service account token that was sent with it")
    if stored.token and found != subject_of(stored.token):
        raise Unproven("the new service account token is for another account")


def _not_its_own(token: str, stored: str, keys: str, now: float) -> str:
    """Why a token is none that the known cluster gave to the agent's account; empty when it is."""
    if not is_signed(token, keys):
        return "the service account token is none of the known cluster's"
    if not subject_of(token) or (stored and subject_of(token) != subject_of(stored)):
        return "the service account token is for another account, and none of the known cluster's agent"
    ends = claims_of(token).get("exp")
    # One without an end is of a Secret, and good as long as that is there.
    if ends is not None and not (isinstance(ends, int | float) and now < ends + _SKEW):
        return "the service account token has ended"
    return ""


async def _account(session: Session, clock: Clock, params: Params, ca: str) -> str:
    """The name of the user that the new token is for, by the word of the API; empty when it is for nobody."""
    review = {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenReview", "spec": {"token": params.token}}
    status, answer = await ask_api(session, clock, params.endpoint, ca, params.token, "POST", _REVIEWS, review)
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
