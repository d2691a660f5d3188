"""Machines that Remuda makes itself: node drivers and their schemas, Jobs that make and remove machines, the program in them.

A driver (:mod:`.driver`) knows one kind of place where machines come from. :mod:`.driver_registry` finds drivers by name, ours
and those of other packages. A Job runs :mod:`.provisioner`, which keeps what a driver says of its machine in its state Secret.
"""

from __future__ import annotations

# What `--controllers` calls them, one by one; with those of `remuda.provisioning` they are all of provisioning.
CONTROLLERS: tuple[str, ...] = (
    "nodedriver",
    "dynamicschema",
    "machine-provision",
    "job-runner",
    "machineconfigcleanup",
    "machinesecrets",
)
