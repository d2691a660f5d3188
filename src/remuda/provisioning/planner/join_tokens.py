"""The tokens with which machines join a cluster, in the Secret `<name>-rke-state` (docs/reference/planner.md#tokens). Pure.

They are made once. Without them no machine can join any more, and new ones would match no existing node: so they are never
replaced here.
"""

from __future__ import annotations

import base64
from typing import Any, Final

from remuda.api import rke_cattle_io as rke
from remuda.capi.workload_clusters import data_of
from remuda.kube.clock import Entropy
from remuda.kube.objects import name_of, namespace_of
from remuda.kube.owners import reference
from remuda.kube.wrangler import safe_concat

from ..well_known import BACKUP
from .snapshot import Tokens

Obj = dict[str, Any]

TYPE: Final = "rke.cattle.io/cluster-state"
_SERVER, _AGENT = "serverToken", "agentToken"
_LENGTH: Final = 54


class TokensError(ValueError):
    """A Secret of that name exists, and holds no tokens."""


def state_name(control_plane: str) -> str:
    return safe_concat(control_plane, "rke", "state")


def tokens_of(secret: Obj) -> Tokens:
    """Raises TokensError."""
    found = [(data_of(secret, key) or b"").decode(errors="replace") for key in (_SERVER, _AGENT)]
    if secret.get("type") != TYPE or not all(found):
        raise TokensError(
            f"the Secret {name_of(secret)} should hold the tokens by which machines join, and does not: "
            "restore it from a backup, or delete it if no machine has joined yet"
        )
    return Tokens(*found)


def state_secret(control_plane: Obj, entropy: Entropy) -> Obj:
    """A new Secret; it is deleted with the control plane."""
    # Items of a list have no kind; an owner reference needs it.
    owner = reference({**control_plane, "apiVersion": rke.API_VERSION, "kind": "RKEControlPlane"})
    made = {key: entropy.token_text(_LENGTH) for key in (_SERVER, _AGENT)}
    return {
        "apiVersion": "v1",
        "kind": "Secret",
        "type": TYPE,
        "metadata": {
            "name": state_name(name_of(control_plane)),
            "namespace": namespace_of(control_plane),
            "labels": {BACKUP: "true"},
            "ownerReferences": [owner],
        },
        "data": {key: base64.b64encode(value.encode()).decode() for key, value in made.items()},
    }
