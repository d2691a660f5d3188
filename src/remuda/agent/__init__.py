"""The system agent: a small daemon on every host that makes true what its plan says.

A plan is JSON in a Secret (remote mode, ``remote``) or in a file (local mode, ``local``): files to write, instructions to
run once, instructions to run again and again, probes to ask. ``decide`` says whether the one-time part must run, ``apply``
runs it, and the result goes back into the same Secret. The protocol is rancher-system-agent v0.15's (protocols.md section 1),
in both directions, so either agent serves either server.

Standard library only, Python 3.9 or newer, and nothing of ours is imported: the directory becomes one file,
``remuda-agent.pyz``, for hosts that have nothing but a Python (``remuda.agent.install`` builds it).
"""

from __future__ import annotations

__version__ = "0.15.0+remuda1"
