"""The part of systemd that installers count on: units from files, started, watched, restarted and stopped by a host's init.

:mod:`.unitfile` reads units, :mod:`.command_line` their command lines; :mod:`.unit_catalog` finds and enables them.
:mod:`.service` is the life of one, :mod:`.service_order` of all, :mod:`.systemctl` what is asked of them. :mod:`.journal` keeps
what they say. What a directive means is systemd's own documentation (systemd.service(5), systemd.unit(5), systemd.kill(5));
directives that need a kernel's help which only root gets (cgroups, namespaces, limits above one's own) are read over.
"""

from __future__ import annotations
