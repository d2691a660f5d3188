"""The process that :mod:`.test_restore` lets die: it restores over a state, and kills itself at a given step.

A step is what changes names, or waits for the disk; it is not done any more. Without dying it tells how many there are.
"""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from remuda.apiserver.backup import restore
from remuda.apiserver.backup.format import Backup
from remuda.kube.clock import SYSTEM_CLOCK, Entropy

STEPS = ("rename", "replace", "fsync", "unlink", "rmdir", "mkdir")


def main(last: int, path: Path, place: Path, passphrase: str) -> None:
    count = 0

    def dying(real: Callable[..., Any]) -> Callable[..., Any]:
        def call(*args: Any, **options: Any) -> Any:
            nonlocal count
            count += 1
            if count == last:
                os.kill(os.getpid(), signal.SIGKILL)
            return real(*args, **options)

        return call

    for name in STEPS:
        setattr(os, name, dying(getattr(os, name)))
    backup = Backup.open(path)
    key = backup.key(passphrase)
    restore.restore(backup, key, place, None, SYSTEM_CLOCK, Entropy(), force=True, progress=lambda done, of: None)
    print(count)


if __name__ == "__main__":
    main(int(sys.argv[1]), Path(sys.argv[2]), Path(sys.argv[3]), sys.argv[4])
