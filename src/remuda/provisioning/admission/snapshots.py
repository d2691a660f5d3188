"""Validation of changes to ETCDSnapshots by the owners of a cluster, who may patch them, but not update them.

They may request a check of the file, and that it is deleted with the object, and change nothing else: a snapshot's file, place
and cluster decide what a restore and a deletion act on.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Final

from remuda.access.roles.holdings import Holdings
from remuda.api import rke_cattle_io as rke
from remuda.kube.admission_attributes import UPDATE, Attributes
from remuda.kube.errors import FieldError, forbidden_field, invalid_value
from remuda.kube.objects import annotations_of, finalizers_of, metadata
from remuda.runtime.admitted_types import AdmittedType

from ..well_known import SNAPSHOT_FILE, VERIFY_SNAPSHOT

Obj = dict[str, Any]

_LONGEST: Final = 64
_WHY: Final = "only controllers change it: you may request a check, and the deletion of the file"


def admitted(holdings: Holdings) -> tuple[AdmittedType, ...]:
    """`holdings` knows who may update ETCDSnapshots."""

    def errors(attributes: Attributes) -> Iterable[FieldError]:
        old, new = attributes.old, attributes.obj
        if attributes.operation != UPDATE or old is None or new is None:
            return ()
        if holdings.may(attributes.user, "update", rke.ETCD_SNAPSHOTS, attributes.name, attributes.namespace):
            return ()
        return change_errors(old, new)

    return (AdmittedType(rke.GROUP, rke.VERSION, "etcdsnapshots", "ETCDSnapshot", validate=errors),)


def change_errors(old: Obj, new: Obj) -> list[FieldError]:
    """The errors of a change by a user who may only patch it. Pure."""
    found = [forbidden_field(field, _WHY) for field in sorted(old.keys() | new.keys()) if _differs(field, old, new)]
    for field in ("labels", "ownerReferences"):
        if metadata(old).get(field) != metadata(new).get(field):
            found.append(forbidden_field(f"metadata.{field}", _WHY))
    before, after = annotations_of(old), annotations_of(new)
    for name in sorted(before.keys() | after.keys()):
        if name != VERIFY_SNAPSHOT and before.get(name) != after.get(name):
            found.append(forbidden_field(f"metadata.annotations[{name}]", _WHY))
    if len(after.get(VERIFY_SNAPSHOT, "")) > _LONGEST:
        path = f"metadata.annotations[{VERIFY_SNAPSHOT}]"
        found.append(invalid_value(path, after[VERIFY_SNAPSHOT][:_LONGEST], "must be the time of the request"))
    held, kept = set(finalizers_of(old)), set(finalizers_of(new))
    if not held <= kept <= held | {SNAPSHOT_FILE}:
        found.append(forbidden_field("metadata.finalizers", _WHY))
    return found


def _differs(field: str, old: Obj, new: Obj) -> bool:
    return field not in ("metadata", "apiVersion", "kind") and old.get(field) != new.get(field)
