"""Credentials of hosts at `/v3/connect/…`: one bearer token and an id, with a limit on wrong ones.

All of these tokens are too long to be guessed; the limit is on what attempts cost us. Hosts behind one address share their
attempts, so there are many, and only wrong ones count.
"""

from __future__ import annotations

import re
from typing import Final

from remuda.apiserver.limits.caller_caps import network_of
from remuda.kube.clock import Clock
from remuda.kube.errors import ApiError, bad_request, too_many_requests
from remuda.kube.names import label_value_problems

from ..auth.authenticator import NotLetIn
from ..server.rate_limit import Buckets
from ..server.request_context import Asked

PREFIX: Final = "X-Cattle-"
# A service account's token has about a kilobyte.
_BEARER = re.compile(r"Bearer +([!-~]{1,4096})", re.IGNORECASE | re.ASCII)
_BURST, _PER_SECOND = 100, 5.0


class WrongTokens:
    """Call `check` before a token is checked, `refuse` when it was wrong."""

    def __init__(self, clock: Clock) -> None:
        self._tries = Buckets(clock, _BURST, _PER_SECOND)

    def check(self, asked: Asked) -> None:
        if not self._tries.has(network_of(asked.address)):
            raise too_many_requests("too many wrong tokens came from this address: try again later", 5)

    def refuse(self, asked: Asked, why: str) -> ApiError:
        """The error to raise; the caller does not get the reason."""
        self._tries.take(network_of(asked.address))
        return NotLetIn(why)


def bearer_of(asked: Asked) -> str:
    """The request's only bearer token. Raises NotLetIn."""
    values = asked.request.headers.getall("Authorization", [])
    matched = _BEARER.fullmatch(values[0].strip()) if len(values) == 1 else None
    if matched is None:
        raise NotLetIn("no bearer token was shown, or more than one")
    return matched[1]


def machine_id_of(asked: Asked) -> str:
    """Raises NotLetIn for a missing id, as hosts expect it, and 400 for an invalid one."""
    values = asked.request.headers.getall(f"{PREFIX}Id", [])
    if not values or not values[0].strip():
        raise NotLetIn("the host does not say its id")
    found = values[0].strip()
    if len(values) > 1 or label_value_problems(found):
        raise bad_request("the host's id must be 1 to 63 letters, digits, '-', '_' or '.'")
    return found
