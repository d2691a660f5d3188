"""The drivers that come with Remuda, a module or package each; :mod:`remuda.machines.driver_registry` knows them by name.

Not here: the interface (:mod:`..driver`), Jobs and objects (`..machineprovision`). Read :mod:`.generic` first, the smallest one.
"""

from __future__ import annotations
