"""What a server hands to hosts: the agent in one file (``archive``), the script that installs it (``script``), its uninstaller.

The agent itself is ``remuda.agent``, which knows nothing of this. The gateway serves all three; ``python -m
remuda.systemagent`` writes them into a directory for whoever installs hosts by other means.
"""

from __future__ import annotations

from .archive import ARCHIVE, build
from .script import install_script, uninstall_script

__all__ = ["ARCHIVE", "build", "install_script", "uninstall_script"]
