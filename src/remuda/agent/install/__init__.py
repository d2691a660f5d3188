"""The agent's installation: the agent as one file (``archive``), the script that installs it (``script``, ``install.sh``), and
its uninstaller.

Not part of the archive itself. ``python -m remuda.agent.install DIRECTORY`` writes them; the server hands them to hosts
(``gateway/registration/agent_downloads``). Read ``archive`` first.
"""

from __future__ import annotations

from .archive import ARCHIVE, build
from .script import install_script, uninstall_script

__all__ = ["ARCHIVE", "build", "install_script", "uninstall_script"]
