"""Remuda as a service of this machine's systemd: the unit (:mod:`.unit`, pure), its installation and removal (:mod:`.service`).

:mod:`.service` checks before any change that the service can run the program. Not here: the notify protocol
(`..programs.sd_notify`), the units of simulated hosts (`hosts/units`). Read :mod:`.service` first.
"""

from __future__ import annotations
