"""Hosts on this machine without root: a directory, an address of its own in 127.0.0.0/8, and a tree of processes under an init.

For newcomers, demonstrations and tests: a host takes a cluster's registration command as any other host does. Its agent gets
plans for its :class:`remuda.provisioning.host_layout.Layout`; its `systemctl` honours the units that installers write
(:mod:`.units`). Not here: hosts in memory (`lab/sim/hosts`), containers (`machines/drivers/container`).
Read :mod:`.hosts`, then :mod:`.init`, the first process of every host.
"""

from __future__ import annotations
