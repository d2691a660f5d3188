"""Workload clusters as the core sees them: a client, a cache of nodes, and the connection's health.

This is the port. :mod:`.clustercache` implements it, `sim/` plugs its own clusters in through a
:class:`Connector`. Their kubeconfigs and CAs are Secrets of the management cluster (:func:`cluster_secrets`).
"""

from __future__ import annotations

import base64
import binascii
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any, Protocol, runtime_checkable

from remuda.client.interface import Client
from remuda.kube.builtin_resources import SECRETS
from remuda.kube.objects import Key, name_of
from remuda.runtime import Informer, Informers
from remuda.runtime.informer import without_managed_fields

from .well_known import CLUSTER_NAME, kubeconfig_secret

Obj = dict[str, Any]


PROVIDER_ID = "providerID"  # the index of nodes by spec.providerID


@dataclass(frozen=True, slots=True)
class Health:
    """The connection's last probes, as times since the epoch; None when there was none."""

    last_success: float | None = None
    last_attempt: float | None = None
    failures: int = 0


class Workload(Protocol):
    """A reachable cluster. `nodes` is filled and has the index PROVIDER_ID."""

    @property
    def client(self) -> Client: ...

    @property
    def nodes(self) -> Informer: ...


class Workloads(Protocol):
    def get(self, cluster: Key) -> Workload | None:
        """The connection to a cluster; None while there is none."""

    def health(self, cluster: Key) -> Health: ...

    def on_change(self, handler: Callable[[Key], None]) -> Callable[[], None]:
        """Call `handler` with a cluster's key when it was connected or disconnected, or when probes begin or cease to fail."""

    def follow_nodes(self, controller: str, to: Callable[[Key, Obj], Iterable[Key]]) -> None:
        """Wake `controller` for the keys that `to` gives for (cluster, node) whenever a node of any cluster changes."""


class Connector(Protocol):
    """Makes a client of a workload cluster from the content of its kubeconfig secret."""

    async def connect(self, cluster: Key, kubeconfig: bytes) -> Client:
        """Raises ApiError (OutOfReach, if it will know when to try again), OSError or ValueError (an unusable kubeconfig)."""


@runtime_checkable
class Losable(Protocol):
    """A client whose connection may be lost while it is held: one that goes through a tunnel."""

    def on_lost(self, handler: Callable[[], None]) -> Callable[[], None]:
        """Call `handler` when the tunnel is gone or leads elsewhere, until the result is called; at once, if it has happened."""


# --- secrets --------------------------------------------------------------------------------------------------------------
#
# The secrets of clusters in a cache: those with a cluster's label, and only kubeconfigs keep their data.
#
# Other secrets are read live. A management cluster has many secrets, and most of them are not needed here.


KUBECONFIG_KEY = "value"
_KUBECONFIG = kubeconfig_secret("")


def only_kubeconfigs(secret: Obj) -> Obj:
    """A secret without its data, unless it is a kubeconfig."""
    secret = without_managed_fields(secret)
    if name_of(secret).endswith(_KUBECONFIG):
        return secret
    return {key: value for key, value in secret.items() if key != "data"}


def cluster_secrets(informers: Informers, namespace: str = "") -> Informer:
    """The one cache of them, shared by all callers."""
    return informers.of(SECRETS, namespace, labels=CLUSTER_NAME, transform=only_kubeconfigs)


def data_of(secret: Obj, key: str) -> bytes | None:
    """One value, decoded; None when it is missing or no base64."""
    found = (secret.get("data") or {}).get(key)
    if not isinstance(found, str):
        return None
    try:
        return base64.b64decode(found, validate=True)
    except (binascii.Error, ValueError):
        return None
