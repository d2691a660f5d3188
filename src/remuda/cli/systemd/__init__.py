"""Remuda as a service of this machine's systemd: the unit (:mod:`.unit`, pure), and putting it there and away (:mod:`.service`).

Whether the program can be run by the service at all is looked at by :mod:`.program`, before anything is changed.
"""

from __future__ import annotations
