"""Features: the switches, and the state of each.

A Feature's `status.lockedValue` decides, then its `spec.value`, then the environment (`REMUDA_FEATURES` or `CATTLE_FEATURES`, as
in `fleet=false,turtles=true`), then its default. As with :mod:`.settings`, invalid values are ignored and reported.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from .settings import DEFAULT, ENVIRONMENT, STORED, SettingError

Obj = Mapping[str, Any]

LOCKED = "locked"
VARIABLES = ("REMUDA_FEATURES", "CATTLE_FEATURES")

FEATURES: Mapping[str, bool] = {
    **dict.fromkeys(
        (
            "rke2",
            "provisioningv2",
            "fleet",
            "multi-cluster-management",
            "turtles",
            "v2prov-etcd-snapshot-backpopulate",
            "provisioningv2-fleet-workspace-back-population",
            "imported-day-2-ops",
            "crt-token-ttl-rotation",
            "managed-system-upgrade-controller",
            "harvester",
            "pod-shell",
            "machine-shell",
        ),
        True,
    ),
    **dict.fromkeys(
        ("provisioningprebootstrap", "cluster-agent-scheduling-customization", "token-hashing", "cluster-autoscaling"), False
    ),
}


DESCRIPTIONS: Mapping[str, str] = {
    "rke2": "Provision clusters of RKE2 and K3s.",
    "provisioningv2": "Provision clusters declaratively.",
    "fleet": "Keep workspaces for clusters.",
    "multi-cluster-management": "Import and manage clusters.",
    "turtles": "Work together with Cluster API providers.",
    "v2prov-etcd-snapshot-backpopulate": "Tell of snapshots that are found in clusters.",
    "provisioningv2-fleet-workspace-back-population": "Let an annotation choose a cluster's workspace.",
    "imported-day-2-ops": "Operate imported clusters, too.",
    "crt-token-ttl-rotation": "Let registration tokens end, and make new ones.",
    "managed-system-upgrade-controller": "Keep the upgrade controller in clusters up to date.",
    "harvester": "Know Harvester clusters.",
    "pod-shell": "Let people into the containers of clusters, through the proxy.",
    "machine-shell": "Let people into machines that were made here, through the gateway.",
    "provisioningprebootstrap": "Write Secrets into a cluster before its agent comes.",
    "cluster-agent-scheduling-customization": "Let a cluster choose where its agent runs.",
    "token-hashing": "Keep hashes of tokens only. Always so here.",
    "cluster-autoscaling": "Let clusters grow and shrink by their load.",
}


@dataclass(frozen=True, slots=True)
class EffectiveFeature:
    name: str
    value: bool
    source: str
    default: bool


def parse_features(text: str) -> tuple[dict[str, bool], list[str]]:
    """The switches in a list like `fleet=false,turtles=true`, and a sentence for each part that is invalid."""
    switched: dict[str, bool] = {}
    problems: list[str] = []
    for part in filter(None, (piece.strip() for piece in text.split(","))):
        name, _, value = part.partition("=")
        if name not in FEATURES:
            problems.append(f"there is no feature {name[:80]!r}")
        elif value not in ("true", "false"):
            problems.append(f"feature {name} must be true or false")
        elif switched.setdefault(name, value == "true") != (value == "true"):
            problems.append(f"feature {name} is said to be both true and false")
    return switched, problems


class Features:
    """The state of the switches, for a set of Feature objects and an environment at one moment."""

    __slots__ = ("_environment", "_stored", "problems")

    def __init__(self, stored: Iterable[Obj] = (), environment: Mapping[str, str] | None = None) -> None:
        self._stored = {str((found.get("metadata") or {}).get("name", "")): found for found in stored}
        variable = next((name for name in VARIABLES if (environment or {}).get(name)), "")
        self._environment, found = parse_features((environment or {}).get(variable, ""))
        self.problems = tuple(f"{variable}: {problem}" for problem in found)

    def effective(self, name: str) -> EffectiveFeature:
        if name not in FEATURES:
            raise SettingError(f"there is no feature {name[:80]!r}")
        default = FEATURES[name]
        stored = self._stored.get(name, {})
        for source, value in (
            (LOCKED, _field(stored, "status", "lockedValue")),
            (STORED, _field(stored, "spec", "value")),
            (ENVIRONMENT, self._environment.get(name)),
        ):
            if value is not None:
                return EffectiveFeature(name, value, source, default)
        return EffectiveFeature(name, default, DEFAULT, default)

    def enabled(self, name: str) -> bool:
        return self.effective(name).value

    def everything(self) -> list[EffectiveFeature]:
        return [self.effective(name) for name in FEATURES]


def _field(found: Obj, part: str, name: str) -> bool | None:
    section = found.get(part)
    value = section.get(name) if isinstance(section, Mapping) else None
    return value if isinstance(value, bool) else None
