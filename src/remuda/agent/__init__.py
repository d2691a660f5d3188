"""The system agent: a small daemon on every host that applies the host's plan. It speaks rancher-system-agent v0.15's protocol.

The plan comes from a Secret (``remote_mode``) or from files (``local_mode``); ``plans`` decides and applies it, ``images``
fetches installers, and the result goes back to where the plan came from (docs/reference/agent.md).
Not here: what goes into a plan (the server's ``provisioning/planner``), the cluster agent (``tunnel/clusteragent``).
Standard library only, Python 3.9 or newer, nothing else of ours is imported: ``install`` makes one file of this directory,
``remuda-agent.pyz``, for hosts that have only a Python. Read ``remote_mode``, then ``plans.apply``.
"""

from __future__ import annotations

__version__ = "0.15.0+remuda1"
