"""Hosts on this machine without root: a directory, an address of its own in 127.0.0.0/8, and a tree of processes under an init.

For newcomers, demonstrations and tests: a host takes a cluster's registration command as any other host does. Its agent gets
plans for its :class:`remuda.provisioning.host_layout.Layout`; its `systemctl` honours the units that installers write
(:mod:`.units`). Not here: hosts in memory (`lab/sim/hosts`), containers (`machines/drivers/container`).
Read :mod:`.hosts`, then :mod:`.init`, the first process of every host.
"""

from __future__ import annotations


class HostError(Exception):
    """A host that can't be made, started, reached or removed."""


class NoSuchHost(HostError):
    """There is no host of this name."""


class HostExists(HostError):
    """The name is taken."""


class NotRunning(HostError):
    """The host exists, and is off."""
