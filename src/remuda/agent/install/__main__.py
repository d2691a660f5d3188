"""``python -m remuda.agent.install DIRECTORY``: write the agent, its installer and its uninstaller for others to serve."""

from __future__ import annotations

import argparse
import hashlib
import sys
from pathlib import Path

from . import ARCHIVE, build, install_script, uninstall_script


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m remuda.agent.install", description=__doc__)
    parser.add_argument("directory", type=Path, help="where the files go")
    chosen = parser.parse_args()
    chosen.directory.mkdir(parents=True, exist_ok=True)
    archive = build()
    for name, content in (
        (ARCHIVE, archive),
        ("system-agent-install.sh", install_script().encode()),
        ("system-agent-uninstall.sh", uninstall_script().encode()),
    ):
        path = chosen.directory / name
        path.write_bytes(content)
        path.chmod(0o755)
    print(f"{hashlib.sha256(archive).hexdigest()}  {chosen.directory / ARCHIVE}")  # noqa: T201 - a command
    return 0


if __name__ == "__main__":
    sys.exit(main())
