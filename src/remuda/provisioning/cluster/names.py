"""What the two Clusters of one cluster are called and marked with, as Rancher and its clients look for it."""

from __future__ import annotations

import hashlib
from typing import Any, Final

from remuda.kube.objects import GroupVersionResource, Key, dig
from remuda.kube.wrangler import origin_of

Obj = dict[str, Any]

# Names of Rancher's handlers, which show in finalizers and marks (capr.md §2.1).
FROM_WANTED: Final = "cluster-create"
FROM_MANAGED: Final = "provisioning-cluster-create"
WANTED_FINALIZER: Final = "wrangler.cattle.io/provisioning-cluster-remove"
MANAGED_FINALIZER: Final = "wrangler.cattle.io/mgmt-cluster-remove"

MANAGEMENT_NAME: Final = "provisioning.cattle.io/management-cluster-name"
DISPLAY_NAME: Final = "provisioning.cattle.io/management-cluster-display-name"
WORKSPACE_NAME: Final = "provisioning.cattle.io/fleet-workspace-name"
ADMINISTRATED: Final = "provisioning.cattle.io/administrated"
DESCRIPTION: Final = "field.cattle.io/description"
UI_PROVIDER: Final = "ui.rancher/provider"
LAST_APPLIED: Final = "kubectl.kubernetes.io/last-applied-configuration"

CONTROL_PLANES: Final = GroupVersionResource("rke.cattle.io", "v1", "rkecontrolplanes")

_ALPHABET: Final = "bcdfghjklmnpqrstvwxz2456789"


def cluster_id(uid: str, attempt: int = 0) -> str:
    """The id that a cluster gets: as good as random, but the same for whoever tries, so that one that died in between, or two at
    the same time, don't make two."""
    digest = hashlib.sha256(f"{uid}/{attempt}".encode()).digest()
    number = int.from_bytes(digest, "big")
    letters = []
    for _ in range(8):
        number, rest = divmod(number, len(_ALPHABET))
        letters.append(_ALPHABET[rest])
    return f"c-m-{''.join(letters)}"


def belongs(managed: Obj, wanted: Obj) -> bool:
    """Whether a management Cluster was made from this one: whoever names another's must not get hold of it."""
    return origin_of(managed, FROM_WANTED) == Key.of(wanted)


def is_administrated(wanted: Obj) -> bool:
    """Whether its machines are ours to make and configure, as opposed to a cluster that is there already."""
    return dig(wanted, "spec", "rkeConfig") is not None


def managed_name_of(wanted: Obj) -> str:
    """The id of its management Cluster as far as it is known."""
    found = dig(wanted, "status", "clusterName")
    return found if isinstance(found, str) else ""
