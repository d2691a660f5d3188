"""The drivers that come with Remuda, a module or package each.

A new driver also has lines in :mod:`remuda.machines.driver_registry` (its name), :mod:`..nodedrivers.builtin_drivers` (its
NodeDriver), :mod:`..options` (its environment variables) and `provisioning.planner.render.node_addresses` (its addresses):
docs/changing.md#a-driver has all steps.

Not here: the interface (:mod:`..driver`), Jobs and objects (`..machineprovision`). Read :mod:`.generic` first, the smallest one.
"""

from __future__ import annotations
