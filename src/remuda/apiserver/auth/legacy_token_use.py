"""When a legacy token was last used: a label on its Secret, kept to the day, so that unused tokens can be found and removed.

The request that shows a token does not wait for this: uses are noted, and a task of the server's upkeep writes them down.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from typing import Any

from remuda.kube.errors import ApiError
from remuda.kube.objects import name_of, namespace_of, uid_of

from .service_accounts import LAST_USED

logger = logging.getLogger(__name__)
Obj = dict[str, Any]

# Patches a Secret (namespace, name) with a merge patch.
PatchSecret = Callable[[str, str, Obj], Awaitable[object]]


class LastUsed:
    def __init__(self, patch: PatchSecret) -> None:
        self._patch = patch
        self._date = ""
        # The Secrets (by uid) of which a use on that date is written down or about to be: never more than once a day.
        self._noted: set[str] = set()
        self._pending: asyncio.Queue[tuple[Obj, str]] = asyncio.Queue()

    def note(self, secret: Obj, date: str) -> None:
        """A token of `secret` was used on `date`, of which its label does not know."""
        if date != self._date:
            self._date, self._noted = date, set()
        uid = uid_of(secret)
        if uid not in self._noted:
            self._noted.add(uid)
            self._pending.put_nowait((secret, date))

    async def run(self) -> None:
        """Write down what is noted, until cancelled."""
        while True:
            secret, date = await self._pending.get()
            labelled = {"metadata": {"uid": uid_of(secret), "labels": {LAST_USED: date}}}
            try:
                await self._patch(namespace_of(secret), name_of(secret), labelled)
            except ApiError as error:
                # The next use tries again.
                self._noted.discard(uid_of(secret))
                where = f"{namespace_of(secret)}/{name_of(secret)}"
                logger.warning("the last use of the token in Secret %s could not be written down: %s", where, error)
