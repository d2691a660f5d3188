"""The command of the stand-in on a host: `program.py NAME ARGUMENT…` is the remuda distribution under that name."""

from __future__ import annotations

import os
import sys

_VARIABLES = ("ROOT", "DATA_DIR", "URL", "TOKEN", "NODE_NAME")


def main(name: str, arguments: list[str]) -> int:
    from remuda.lab.distro.config import settings

    # Before anything else is loaded: all other names are made of it.
    settings.NAME = name
    for variable in _VARIABLES:
        if value := os.environ.get(f"{name.upper()}_{variable}"):
            os.environ[f"REMUDA_{variable}"] = value
    from remuda.cli.programs import distro

    # K3s' supervisor is on the port of the API.
    ports = [f"--supervisor-port={settings.API_PORT}"] if name == "k3s" else []
    return distro.main([*arguments, *ports])


if __name__ == "__main__":
    sys.exit(main(sys.argv[1], sys.argv[2:]))
