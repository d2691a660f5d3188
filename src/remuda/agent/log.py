"""Lines for the journal, on standard error: ``LEVEL message``, each in one write, so that threads don't mix theirs.

``logging`` would do the same for one more megabyte of memory, which an agent holds on every host for years.
"""

from __future__ import annotations

import contextlib
import os

DEBUG, INFO, WARNING, ERROR, CRITICAL = range(10, 60, 10)
_NAMES = {DEBUG: "DEBUG", INFO: "INFO", WARNING: "WARNING", ERROR: "ERROR", CRITICAL: "CRITICAL"}
# The original's names for levels are logrus'.
_LEVELS = {"trace": DEBUG, "warn": WARNING, "panic": CRITICAL, "fatal": CRITICAL}
_LEVELS |= {name.lower(): level for level, name in _NAMES.items()}
_STDERR = 2

_level = WARNING


def start(name: str) -> None:
    """Log records of this level and above; an unknown level means ``info``."""
    global _level
    _level = _LEVELS.get(name.lower(), INFO)


def debug(message: str) -> None:
    _say(DEBUG, message)


def info(message: str) -> None:
    _say(INFO, message)


def warning(message: str) -> None:
    _say(WARNING, message)


def error(message: str) -> None:
    _say(ERROR, message)


def exception(message: str) -> None:
    """An error, with where the exception that is being handled came from."""
    import traceback

    _say(ERROR, f"{message}\n{traceback.format_exc().rstrip()}")


def _say(level: int, message: str) -> None:
    if level < _level:
        return
    # The reader may have closed the other end; that is no reason to fail.
    with contextlib.suppress(OSError):
        os.write(_STDERR, f"{_NAMES[level]} {message}\n".encode(errors="replace"))
