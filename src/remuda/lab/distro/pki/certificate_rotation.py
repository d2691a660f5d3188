"""`certificate rotate` and `certificate check`: the certificates of this host. Authorities stay as they are.

Rotating moves the files aside; the next start makes new ones. `-s` selects them by k3s' names of services.
"""

from __future__ import annotations

import shutil
from collections.abc import Collection

from remuda.kube.clock import Clock

from ..config.arguments import ConfigError
from ..config.settings import Settings
from . import certificates
from .certificates import Leaf

# Services that k3s knows and for which this distribution has no certificate.
_NOTHING_TO_ROTATE = frozenset(
    ("kube-proxy", "cloud-controller", "k3s-controller", "k3s-server", "rke2-controller", "rke2-server", "remuda-server")
)


def leaves(settings: Settings, services: Collection[str] = ()) -> list[Leaf]:
    """The certificates of the services, or all. Raises ConfigError for an unknown service."""
    found = [*certificates.server_leaves(settings), *certificates.kubelet_leaves(settings)]
    known = {leaf.service for leaf in found} | _NOTHING_TO_ROTATE
    if unknown := set(services) - known:
        raise ConfigError(f"{min(unknown)} is not a service with certificates: say one of {', '.join(sorted(known))}")
    return [leaf for leaf in found if not services or leaf.service in services]


def rotate(settings: Settings, services: Collection[str], clock: Clock) -> list[str]:
    """Move the certificates aside; their names."""
    aside = settings.paths.server / f"tls-{int(clock.time())}"
    rotated = []
    for leaf in leaves(settings, services):
        if not leaf.path.exists():
            continue
        aside.mkdir(mode=0o700, parents=True, exist_ok=True)
        for path in (leaf.path, leaf.key):
            if path.exists():
                shutil.move(path, aside / f"{path.parent.name}-{path.name}")
        rotated.append(leaf.path.name)
    return rotated


def check(settings: Settings, services: Collection[str]) -> list[str]:
    """A line for each certificate."""
    return [f"{leaf.path}: {certificates.described(leaf)}" for leaf in leaves(settings, services) if leaf.path.exists()]
