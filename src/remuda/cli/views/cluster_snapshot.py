"""What one sees of a cluster at one moment: objects as the server has them, what is waited for, what its hosts say."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from remuda.kube.waits import Wait

Obj = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Said:
    """The last line of a host."""

    time: str
    text: str


@dataclass(frozen=True, slots=True)
class Sight:
    """Of a provisioning Cluster, `wanted`. What is not there, or not for this reader, is None or empty.

    `waits` None: nobody could be asked but the conditions; `leader` is the host where they are known, if that is told. `said` is
    by the names of Machines, and so are `plans`, which are the plan Secrets of those that somebody wanted to know more about.
    """

    wanted: Obj
    managed: Obj | None = None
    cluster: Obj | None = None
    plane: Obj | None = None
    machines: tuple[Obj, ...] = ()
    said: Mapping[str, Said] = field(default_factory=dict)
    waits: tuple[Wait, ...] | None = None
    leader: str = ""
    plans: Mapping[str, Obj] = field(default_factory=dict)
