"""What one reconcile of a Cluster reads and finds out: its phases hand it from one to the next.

:mod:`.controller` makes it, :mod:`.provider_phases` and :mod:`.deletion` work on it, :mod:`.status` computes the status from
what is in it at the end.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from remuda.api.cluster_x_k8s_io import GROUP
from remuda.kube.objects import Key, dig, is_being_deleted
from remuda.kube.waits import Ref

from ..external_objects import External
from ..workload_clusters import Health
from .descendants import Descendants

Obj = dict[str, Any]

CONTROLLER = "cluster"
COMPONENT = "cluster-controller"  # who its events are from

UNREADABLE = "Please check controller logs for errors"


@dataclass(slots=True)
class Referred:
    """What the infrastructureRef or controlPlaneRef of a Cluster leads to."""

    ref: Obj  # empty when there is none
    found: External | None = None
    missing: bool = False  # it isn't there; when `found` is None for another reason, it could not be read
    trouble: str = ""  # why not, where that is known

    @property
    def obj(self) -> Obj | None:
        return None if self.found is None else self.found.obj

    @property
    def contract(self) -> str:
        return "" if self.found is None else self.found.contract

    @property
    def kind(self) -> str:
        return self.ref.get("kind") or ""

    @property
    def unreadable(self) -> str:
        """What a condition says about an object that could not be read."""
        return f"{UNREADABLE}: {self.trouble}" if self.trouble else UNREADABLE

    def named(self, namespace: str) -> Ref:
        return Ref(self.ref.get("apiGroup") or "", self.kind, namespace, self.ref.get("name") or "")


@dataclass(slots=True)
class Scope:
    """`cluster` is the working copy: immutable, so a phase that changes it puts a new one here; it is written at the end."""

    cluster: Obj
    now: float
    infra: Referred
    control_plane: Referred
    descendants: Descendants
    health: Health = field(default_factory=Health)
    grace: float = 50.0
    deleting_reason: str = ""
    deleting_message: str = ""
    events: list[tuple[str, str]] = field(default_factory=list)  # reason and message, sent when the status is written

    @property
    def key(self) -> Key:
        return Key.of(self.cluster)

    @property
    def ref(self) -> Ref:
        return Ref(GROUP, "Cluster", *self.key)

    @property
    def deleting(self) -> bool:
        return is_being_deleted(self.cluster)

    def initialized(self, flag: str) -> bool:
        """`infrastructureProvisioned` or `controlPlaneInitialized`."""
        return dig(self.cluster, "status", "initialization", flag) is True


def referred(cluster: Obj, field_name: str) -> Referred:
    found = dig(cluster, "spec", field_name)
    return Referred(found if isinstance(found, dict) else {})
