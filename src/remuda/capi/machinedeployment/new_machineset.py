"""Which MachineSet is the new one: the one whose machines are what the MachineDeployment wants.

Only version, bootstrap, infrastructure and failure domain tell machines apart (:mod:`remuda.capi.machine.up_to_date`); everything
else is carried over in place (:mod:`.desired_machinesets`). Once `spec.rollout.after` has passed, only a set made since then
will do.

The name of a new set follows from what it is made for, so that whoever makes it twice (after a crash, after an answer that was
lost, on a cache that lags, under another leader) makes one set. It also means that a set which was made for this very time counts
as made after it, however far the API server's clock is behind ours.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from typing import Any, NamedTuple

from remuda.kube.clock import time_of
from remuda.kube.encoding import jsonio
from remuda.kube.objects import dig, name_of, uid_of

from ..machine.up_to_date import template_differences
from ..well_known import fnv32a
from .machineset_view import created, spec_replicas

Obj = dict[str, Any]

_ALPHABET = "bcdfghjklmnpqrstvwxz2456789"
_SUFFIX, _LONGEST = 5, 63


class Identity(NamedTuple):
    """Of a set that is to be made."""

    name: str
    # The value of the label that keeps its machines apart from those of other sets.
    unique: str


class Found(NamedTuple):
    new: Obj | None
    # By size, the largest first.
    old: list[Obj]
    # Why a new one must be made; "" when there is one.
    why: str = ""
    # When another one will be needed.
    revisit_at: float | None = None


def rollout_fields(template: Obj) -> Obj:
    spec = template.get("spec") or {}
    return {field: spec[field] for field in ("version", "bootstrap", "infrastructureRef", "failureDomain") if spec.get(field)}


def identity(deployment: Obj, now: float, salt: int = 0) -> Identity:
    """`salt` makes another, for when the name is somebody else's."""
    fields = jsonio.dumps_sorted(rollout_fields(dig(deployment, "spec", "template") or {}))
    seed = jsonio.dumps([uid_of(deployment), _passed_after(deployment, now) or "", salt])
    digest = int.from_bytes(hashlib.sha256(seed + fields).digest()[:8], "big")
    suffix = ""
    for _ in range(_SUFFIX):
        digest, place = divmod(digest, len(_ALPHABET))
        suffix += _ALPHABET[place]
    prefix = f"{name_of(deployment)}-"[: _LONGEST - _SUFFIX]
    return Identity(prefix + suffix, f"{fnv32a(fields)}-{suffix}")


def _after(deployment: Obj) -> str | None:
    text = dig(deployment, "spec", "rollout", "after")
    return text if time_of(text) is not None else None


def _passed_after(deployment: Obj, now: float) -> str | None:
    """`spec.rollout.after`, once it has passed."""
    text = _after(deployment)
    return text if (when := time_of(text)) is not None and now >= when else None


def find(deployment: Obj, machine_sets: Sequence[Obj], now: float) -> Found:
    """The largest set that matches is the new one (the oldest of the largest); all others are old."""
    when = time_of(_after(deployment))
    revisit_at = when if when is not None and now < when else None
    if not machine_sets:
        return Found(None, [], "no MachineSets exist for the MachineDeployment", revisit_at)
    ordered = sorted(machine_sets, key=lambda each: (-(spec_replicas(each) or 0), created(each), name_of(each)))
    wanted = dig(deployment, "spec", "template") or {}
    differences = {name_of(each): template_differences(dig(each, "spec", "template") or {}, wanted) for each in ordered}
    matching = [each for each in ordered if not differences[name_of(each)]]
    if not matching:
        why = "; ".join(f"MachineSet {name} needs rollout: {', '.join(found)}" for name, found in differences.items())
        return Found(None, ordered, f"couldn't find MachineSet matching MachineDeployment spec template: {why}", revisit_at)
    new = next((each for each in matching if _is_late_enough(each, deployment, now)), None)
    # What doesn't match goes first, then what would have done as well.
    others = [each for each in ordered if differences[name_of(each)]] + [each for each in matching if each is not new]
    if new is None:
        why = f"spec.rollout.after on MachineDeployment set to {_after(deployment)}, no MachineSet has been created afterwards"
        return Found(None, others, why, revisit_at)
    return Found(new, others, "", revisit_at)


def _is_late_enough(machine_set: Obj, deployment: Obj, now: float) -> bool:
    after = time_of(_passed_after(deployment, now))
    if after is None:
        return True
    made = time_of(created(machine_set))
    return (made is not None and made >= after) or name_of(machine_set) == identity(deployment, now).name
