"""What a server hands to hosts: the agent as one file (``archive``), the script that installs it (``script``,
``install.sh``), its uninstaller.

Not part of the archive itself. ``python -m remuda.agent.install DIRECTORY`` writes them.
Read ``archive`` first.
"""

from __future__ import annotations

from .archive import ARCHIVE, build
from .script import install_script, uninstall_script

__all__ = ["ARCHIVE", "build", "install_script", "uninstall_script"]
