"""Whether a host is who it says it is (design §7). Pure; the gateway and :mod:`.unmanaged` ask.

Whoever has a cluster's token for nodes may bring a new host. It must not be enough to become a host that is there already: with
its plan, a stranger would get the cluster's secrets. So a machine-id that is known comes in again only with the plan token that
it was given, or when an administrator says so on the Machine. Until the host has acted with what it got it may ask again, and
gets the same answer: the server, or the host, may have died before the answer was kept. That opens nothing which the cluster's
token does not open anyway, by a new host.
"""

from __future__ import annotations

from typing import Any

from remuda.kube.objects import annotations_of, dig, is_being_deleted, labels_of, name_of, uid_of

from ..plans.machine_plan_secret import is_in_use
from ..well_known import MACHINE_ID, NODE_NAME, PLAN_TOKEN_SHOWN, REGISTER_AGAIN, TOKEN_LAST_USED

Obj = dict[str, Any]


def has_acted(machine: Obj, plan: Obj | None, token: Obj | None) -> bool:
    """Whether the host of a Machine has used what it got at its registration.

    `plan` is the Machine's plan Secret and `token` the Secret with the token for it. The API server labels a token's Secret when
    the token is used; a server that did not do so before leaves what the agent has written in its plan, and the node.
    """
    if TOKEN_LAST_USED in labels_of(token or {}) or dig(machine, "status", "nodeRef", "name"):
        return True
    return plan is not None and is_in_use(plan)


def refusal(machine: Obj, request: Obj, machine_id: str, plan: Obj | None, token: Obj | None) -> str:
    """Why a host is not let in as this Machine, which is there already; "" when it is.

    `plan` is the Machine's plan Secret, `token` the Secret with the token that its host was given.
    """
    if labels_of(machine).get(MACHINE_ID) != machine_id:
        # Names are short hashes of ids: to find another id with the same one takes patience, not luck.
        return f"the machine {name_of(machine)} is another host"
    if is_being_deleted(machine):
        return f"the machine {name_of(machine)} of this host is being deleted; run the command again when it is gone"
    # The very Machine's: an id is the host's own word, and may be that of a machine elsewhere, too.
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
    """Another machine of the cluster that is called so: two nodes of one name would push each other out."""
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
