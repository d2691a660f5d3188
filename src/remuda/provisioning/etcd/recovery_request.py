"""The request of a recovery (docs/reference/operations.md#recovery): an annotation of a cluster and its control plane, as JSON.

It names either a snapshot or the machine whose data is used. A new generation repeats it. The planner reads it, and the graph's
controller turns it into a restore. Pure.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from remuda.kube.encoding import jsonio

Obj = dict[str, Any]

_MODES = ("", "none", "kubernetesVersion", "all")
_TEXTS = ("snapshot", "machine", "restoreRKEConfig")


class RecoveryRequestError(ValueError):
    """A malformed request; the text names the field."""


@dataclass(frozen=True, slots=True)
class RecoveryRequest:
    """`config` is what of the cluster's spec comes back with a snapshot, as in a restore."""

    generation: int
    snapshot: str = ""
    machine: str = ""
    config: str = ""

    @property
    def source(self) -> str:
        """What it begins with, in words."""
        return self.snapshot or f"machine {self.machine}"

    def data(self) -> Obj:
        texts = {"snapshot": self.snapshot, "machine": self.machine, "restoreRKEConfig": self.config}
        return {"generation": self.generation, **{field: text for field, text in texts.items() if text}}

    def text(self) -> str:
        """The annotation."""
        return jsonio.dumps(self.data()).decode()

    def restore(self, generation: int) -> Obj:
        """The `etcdSnapshotRestore` that it leads to."""
        if self.machine:
            return {"generation": generation, "fromMachine": self.machine, "restoreRKEConfig": "none"}
        return {"generation": generation, "name": self.snapshot, "restoreRKEConfig": self.config or "none"}


def parse(text: str) -> RecoveryRequest:
    """Raises RecoveryRequestError."""
    try:
        found = jsonio.loads(text.encode())
    except ValueError:
        raise RecoveryRequestError("it is not JSON") from None
    if not isinstance(found, dict):
        raise RecoveryRequestError('it is not an object such as {"generation":1,"snapshot":"NAME"}')
    if unknown := sorted(set(found) - {"generation", *_TEXTS}):
        raise RecoveryRequestError(f"{unknown[0]}: unknown field")
    return _checked(found)


def _checked(found: Mapping[str, Any]) -> RecoveryRequest:
    generation = found.get("generation")
    if isinstance(generation, bool) or not isinstance(generation, int) or not 0 < generation < 2**31:
        raise RecoveryRequestError("generation: must be a positive number, another one for each request")
    texts = {field: found.get(field) or "" for field in _TEXTS}
    for field, text in texts.items():
        if not isinstance(text, str) or len(text) > 253 or not text.isprintable():
            raise RecoveryRequestError(f"{field}: must be a name")
    if bool(texts["snapshot"]) == bool(texts["machine"]):
        raise RecoveryRequestError("snapshot: name either a snapshot or a machine")
    if texts["restoreRKEConfig"] not in _MODES or (texts["machine"] and texts["restoreRKEConfig"] not in ("", "none")):
        raise RecoveryRequestError("restoreRKEConfig: must be none, kubernetesVersion or all, and none with a machine")
    return RecoveryRequest(generation, texts["snapshot"], texts["machine"], texts["restoreRKEConfig"])


def text_of(fields: Mapping[str, Any]) -> str:
    """The annotation of a request with these fields. Raises RecoveryRequestError."""
    return _checked(fields).text()


def requested(annotation: str | None) -> RecoveryRequest | None:
    """The request in an annotation; None if there is none, or if it is malformed, which admission refuses."""
    try:
        return parse(annotation) if annotation else None
    except RecoveryRequestError:
        return None


def noted(state: Mapping[str, Any] | None) -> RecoveryRequest | None:
    """The request in the status of a control plane (`status.recover`), which has more fields."""
    try:
        return _checked(state) if state else None
    except RecoveryRequestError:
        return None
