"""Verification of a host's identity (docs/reference/registration.md#v3connectagent). Pure; called by the gateway and
:mod:`.unmanaged`.

A caller with a cluster's node token may register a new host. That must not suffice to become an existing host: with its plan,
an attacker would get the cluster's secrets. So a known machine-id registers again only with the plan token that it was given,
or if an administrator allows it on the Machine. Until the host has used its plan token it may ask again, and gets the same
answer: the server or the host may have crashed before the answer was stored. That gives no access which the cluster's token
does not give anyway, with a new host.
"""

from __future__ import annotations

import logging
from collections import OrderedDict
from dataclasses import dataclass
from typing import Any, Final

from remuda.client.interface import Client
from remuda.kube.builtin_resources import SECRETS
from remuda.kube.clock import Clock, rfc3339, time_of
from remuda.kube.encoding import jsonio
from remuda.kube.errors import ApiError
from remuda.kube.objects import annotations_of, dig, is_being_deleted, labels_of, name_of, namespace_of, uid_of

from ..plans.machine_plan_secret import is_in_use
from ..well_known import MACHINE_ID, NODE_NAME, PLAN_TOKEN_SHOWN, REFUSALS, REGISTER_AGAIN, TOKEN_LAST_USED

Obj = dict[str, Any]


def has_acted(machine: Obj, plan: Obj | None, token: Obj | None) -> bool:
    """True if the host of a Machine has used the token from its registration.

    `plan` is the Machine's plan Secret and `token` the Secret with the token for it. The API server labels a token's Secret when
    the token is used; with a server that did not, the agent's data in the plan and the node are the evidence.
    """
    if TOKEN_LAST_USED in labels_of(token or {}) or dig(machine, "status", "nodeRef", "name"):
        return True
    return plan is not None and is_in_use(plan)


def refusal(machine: Obj, request: Obj, machine_id: str, plan: Obj | None, token: Obj | None) -> str:
    """The reason why a host is not admitted as this existing Machine; "" if it is.

    `plan` is the Machine's plan Secret, `token` the Secret with the token that its host was given.
    """
    if labels_of(machine).get(MACHINE_ID) != machine_id:
        # Names are short hashes of ids: another id with the same hash can be found with enough tries.
        return f"the machine {name_of(machine)} is another host"
    if is_being_deleted(machine):
        return f"the machine {name_of(machine)} of this host is being deleted; run the command again when it is gone"
    # This very Machine's: an id is the host's own claim, and may be that of a machine elsewhere, too.
    shown = annotations_of(request).get(PLAN_TOKEN_SHOWN)
    if (shown and shown == uid_of(machine)) or annotations_of(machine).get(REGISTER_AGAIN) == "true":
        return ""
    if not has_acted(machine, plan, token):
        return ""
    return (
        f"this host is registered already, as machine {name_of(machine)}, and does not show the token that it got; "
        f"to let it in again set the annotation {REGISTER_AGAIN}=true on the Machine"
    )


def namesake(machines: list[Obj], node_name: str, machine_id: str) -> Obj | None:
    """Another machine of the cluster with this node name: two nodes of one name would replace each other."""
    if not node_name:
        return None
    return next(
        (
            each
            for each in machines
            if labels_of(each).get(NODE_NAME) == node_name and labels_of(each).get(MACHINE_ID) != machine_id
        ),
        None,
    )


# --- registration refusals ------------------------------------------------------------------------------------------------
#
# Refusals of hosts: their number, start and reason, as an annotation on the Secret with the token.
#
# Stored so that `explain` can tell which machine's host is refused; waits themselves are not stored. A refused host asks every
# few seconds, and an attacker may ask more often, so one of many refusals is written per minute, with the count of all. The
# gateway and :mod:`.unmanaged` write them, :mod:`.awaitedhost` reports them.

logger = logging.getLogger(__name__)

WRITE_SECONDS: Final = 60.0
_MOST = 4096
_LONGEST, _LONGEST_ID = 300, 12


@dataclass(frozen=True, slots=True)
class Refusals:
    """`host` is the beginning of the id of the last refused host; times are seconds."""

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
    """The refusals on the Secret with a token; None if there are none, or they are malformed."""
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
    """Records the refusals of one process."""

    def __init__(self, client: Client, clock: Clock, field_manager: str) -> None:
        self._client = client
        self._clock = clock
        self._manager = field_manager
        # By the Secret's uid: the number of refusals not written yet, and the time of the last write.
        self._unwritten: OrderedDict[str, tuple[int, float]] = OrderedDict()

    async def note(self, secret: Obj, machine_id: str, why: str) -> None:
        """Record that a host with the token in this Secret was refused. If the write fails, the refusal stands."""
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
