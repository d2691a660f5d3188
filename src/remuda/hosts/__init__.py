"""Hosts on this machine without root: a directory, an address of its own in 127.0.0.0/8, and a tree of processes under an init.

For newcomers, demonstrations and tests: a host takes the registration command of a cluster as any other host does. Its agent gets
plans for its :class:`remuda.provisioning.host_layout.Layout`; its `systemctl` honours the units that installers write
(:mod:`.units`). :class:`Hosts` is the door; :mod:`.init` is the process that every host has.
"""

from __future__ import annotations
