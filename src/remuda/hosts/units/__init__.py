"""The part of systemd that installers need: units from files, started, watched, restarted and stopped by a host's init.

:mod:`.unitfile` reads units and their command lines; :mod:`.unit_catalog` finds and enables them.
:mod:`.service` is the life of one, :mod:`.service_order` of all, :mod:`.systemctl` answers that command, :mod:`.journal` keeps
their output. Directives have systemd's meaning (systemd.service(5), systemd.unit(5), systemd.kill(5)); those that need root
(cgroups, namespaces, higher limits) are ignored. Not here: the host's init (`..init`). Read :mod:`.service` first.
"""

from __future__ import annotations
