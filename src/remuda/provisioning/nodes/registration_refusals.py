"""What is known of hosts that were refused: how often, since when and why, as an annotation on the Secret with the token.

Kept so that `explain` can say which machine's host can't come in; waits themselves are not stored. A refused host asks every few
seconds, and a stranger may ask more often, so of many refusals one a minute is written, with the count of all. The gateway and
:mod:`.unmanaged` note them, :mod:`.awaitedhost` tells of them.
"""

from __future__ import annotations

import logging
from collections import OrderedDict
from dataclasses import dataclass
from typing import Any, Final

from remuda.client.interface import Client
from remuda.kube.clock import Clock, rfc3339, time_of
from remuda.kube.encoding import jsonio
from remuda.kube.errors import ApiError
from remuda.kube.objects import annotations_of, name_of, namespace_of, uid_of

from ..well_known import REFUSALS, SECRETS

logger = logging.getLogger(__name__)
Obj = dict[str, Any]

WRITE_SECONDS: Final = 60.0
_MOST = 4096
_LONGEST, _LONGEST_ID = 300, 12


@dataclass(frozen=True, slots=True)
class Refusals:
    """`host` is the beginning of the id of the last host that was refused; times are seconds."""

    count: int
    since: float
    last: float
    why: str
    host: str = ""

    def told(self) -> str:
        who = f"host {self.host}" if self.host else "a host"
        times = "once" if self.count == 1 else f"{self.count} times"
        return f"{who} was refused {times} since {rfc3339(self.since)}: {self.why}"


def refusals_of(secret: Obj | None) -> Refusals | None:
    """What is written on the Secret with a token; None when nothing is, or nothing that can be read."""
    text = annotations_of(secret or {}).get(REFUSALS)
    try:
        found = jsonio.loads(text.encode()) if text else None
    except jsonio.JsonError:
        found = None
    if not isinstance(found, dict):
        return None
    count, why, host = found.get("count"), found.get("why"), found.get("host")
    since, last = time_of(found.get("since")), time_of(found.get("last"))
    if type(count) is not int or not isinstance(why, str) or not isinstance(host, str) or since is None or last is None:
        return None
    return Refusals(count, since, last, why, host)


def _text(refusals: Refusals) -> str:
    times = {"since": rfc3339(refusals.since), "last": rfc3339(refusals.last)}
    return jsonio.dumps_sorted({"count": refusals.count, "why": refusals.why, "host": refusals.host, **times}).decode()


class RefusalNotes:
    """Notes refusals of one process."""

    def __init__(self, client: Client, clock: Clock, field_manager: str) -> None:
        self._client = client
        self._clock = clock
        self._manager = field_manager
        # By the Secret's uid: refusals that are not written yet, and when something was last written.
        self._unwritten: OrderedDict[str, tuple[int, float]] = OrderedDict()

    async def note(self, secret: Obj, machine_id: str, why: str) -> None:
        """A host that showed the token in this Secret was refused. To write it down may fail: the refusal stands."""
        now, uid = self._clock.time(), uid_of(secret)
        count, written = self._unwritten.pop(uid, (0, 0.0))
        self._unwritten[uid] = count + 1, written
        if len(self._unwritten) > _MOST:
            self._unwritten.popitem(last=False)
        if now < written + WRITE_SECONDS:
            return
        before = refusals_of(secret)
        same = before if before is not None and before.why == why[:_LONGEST] else None
        found = Refusals(
            count=count + 1 + (same.count if same is not None else 0),
            since=same.since if same is not None else now,
            last=now,
            why=why[:_LONGEST],
            host=machine_id[:_LONGEST_ID],
        )
        patch = {"metadata": {"uid": uid, "annotations": {REFUSALS: _text(found)}}}
        self._unwritten[uid] = 0, now
        try:
            await self._client.patch(SECRETS, name_of(secret), patch, namespace_of(secret), field_manager=self._manager)
        except ApiError as error:
            self._unwritten[uid] = count + 1, now
            logger.warning("a refusal could not be written on Secret %s/%s: %s", namespace_of(secret), name_of(secret), error)
