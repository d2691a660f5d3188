"""The drivers that come with Remuda, a module or package each; :mod:`remuda.machines.driver_registry` knows them by name.

The interface is :mod:`..driver`; Jobs and objects are `..machineprovision`. Read :mod:`.generic` first, the smallest one.
"""

from __future__ import annotations
