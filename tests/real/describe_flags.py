"""Write what `remuda.machines.nodedrivers` knows of rancher-machine's drivers (`flags.json`), from the program itself.

Run as `python -m tests.real.describe_flags` when `test_rancher_machine.py` says so, after `peers.env` names another version.
"""

from __future__ import annotations

import json
import subprocess
from pathlib import Path
from typing import Any

from tests.real import build

FLAGS = Path(__file__).resolve().parents[2] / "src/remuda/machines/nodedrivers/flags.json"


def described() -> dict[str, list[dict[str, Any]]]:
    """By driver its flags, as the driver lists them."""
    program = build.programs("rancher-machine-flags")["rancher-machine-flags"]
    done = subprocess.run([program], capture_output=True, check=True, timeout=300)
    found: dict[str, list[dict[str, Any]]] = json.loads(done.stdout)
    return found


def text(flags: dict[str, list[dict[str, Any]]]) -> str:
    """One flag a line."""
    drivers = []
    for name in sorted(flags):
        lines = ",\n    ".join(json.dumps(each, ensure_ascii=False) for each in flags[name])
        drivers.append(f"  {json.dumps(name)}: [\n    {lines}\n  ]")
    return "{\n" + ",\n".join(drivers) + "\n}\n"


if __name__ == "__main__":
    FLAGS.write_text(text(described()))
