"""Running the command as a user does: in a process of its own, with a home of its own."""

from __future__ import annotations

import os
import subprocess
import sys
from dataclasses import dataclass, field
from pathlib import Path

PROGRAM = "from remuda.cli import main; main()"


@dataclass
class Shell:
    """A home directory and an environment without anything of the machine's own kubeconfig."""

    home: Path
    environ: dict[str, str] = field(default_factory=dict)

    def environment(self) -> dict[str, str]:
        dropped = ("KUBECONFIG", "NO_COLOR", "NOTIFY_SOCKET", "KUBERNETES_SERVICE_HOST")
        kept = {key: value for key, value in os.environ.items() if key not in dropped and not key.startswith("REMUDA_")}
        sources = str(Path(__file__).parents[3] / "src")
        return {**kept, "HOME": str(self.home), "PYTHONPATH": sources, "REMUDA_DATA_DIR": str(self.home / "data"), **self.environ}

    def arguments(self, *arguments: str) -> list[str]:
        return [sys.executable, "-c", PROGRAM, *arguments]

    def run(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            self.arguments(*arguments), env=self.environment(), capture_output=True, text=True, timeout=180, check=False
        )

    def start(self, *arguments: str) -> subprocess.Popen[str]:
        return subprocess.Popen(
            self.arguments(*arguments),
            env=self.environment(),
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
