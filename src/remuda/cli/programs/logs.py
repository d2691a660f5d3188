"""Log lines on stderr: plain text for people and journals, JSON for collectors. Times are UTC.

Both streams may be files on a disk that is full. A server goes on without its log: what can't be written is counted, and told
with the next line that can.
"""

from __future__ import annotations

import json
import logging
import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, TextIO, TypeVar

import click

from remuda.kube.clock import rfc3339_micro

# What logging puts on every record by itself; the rest of a record is what the caller added with `extra`.
_OWN = frozenset(vars(logging.makeLogRecord({}))) | {"message", "asctime", "taskName"}


def set_up(form: str, verbosity: int) -> None:
    """`form` is text or json. Warnings of others are shown, their chatter is not, until -vv."""
    handler = Lines(sys.stderr)
    handler.setFormatter(JsonLines() if form == "json" else TextLines())
    logging.basicConfig(handlers=[handler], level=logging.DEBUG if verbosity > 1 else logging.WARNING, force=True)
    logging.getLogger("remuda").setLevel(logging.DEBUG if verbosity else logging.INFO)


def say(text: str) -> None:
    """Prints start-up text on stdout; a server starts even if stdout cannot be written."""
    try:
        click.echo(text)
    except OSError as error:
        # What Python still holds for it would fail once more at the end, and spoil the exit code.
        sys.stdout = Path(os.devnull).open("w")  # noqa: SIM115 - it is kept
        logging.getLogger(__name__).warning("standard output can't be written: %s", error.strerror or error)


class Lines(logging.StreamHandler[TextIO]):
    """Counts what can't be written, instead of complaining about it on the very stream that can't be written."""

    def __init__(self, stream: TextIO) -> None:
        super().__init__(stream)
        self._missing = 0
        self._failed = False

    def emit(self, record: logging.LogRecord) -> None:
        self._failed = False
        if self._missing:
            note = "the log could not be written: %d lines before this one are missing, or late"
            super().emit(logging.makeLogRecord({"name": __name__, "levelname": "WARNING", "msg": note, "args": (self._missing,)}))
        if not self._failed:
            super().emit(record)
        self._missing = self._missing + 1 if self._failed else 0

    def handleError(self, record: logging.LogRecord) -> None:
        if isinstance(sys.exc_info()[1], OSError):
            self._failed = True
        else:
            super().handleError(record)


def _extra(record: logging.LogRecord) -> dict[str, Any]:
    return {key: value for key, value in vars(record).items() if key not in _OWN}


def _on_one_line(text: str) -> str:
    """Foreign text in a log line must not look like a line of its own, nor control a terminal."""
    return text if text.isprintable() else "".join(each if each.isprintable() else repr(each)[1:-1] for each in text)


class TextLines(logging.Formatter):
    """A line for each record. Only a traceback has more, all of which begin with spaces."""

    def format(self, record: logging.LogRecord) -> str:
        extra = "".join(f" {key}={value}" for key, value in _extra(record).items())
        moment = f"{rfc3339_micro(record.created)[:23]}Z"
        line = _on_one_line(f"{moment} {record.levelname.lower()} {record.name}: {record.getMessage()}{extra}")
        if not record.exc_info:
            return line
        trace = self.formatException(record.exc_info).splitlines()
        return "\n".join([line, *(f"  {_on_one_line(each)}" for each in trace)])


class JsonLines(logging.Formatter):
    def format(self, record: logging.LogRecord) -> str:
        line: dict[str, Any] = {
            "time": rfc3339_micro(record.created),
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": record.getMessage(),
            **_extra(record),
        }
        if record.exc_info:
            line["exception"] = self.formatException(record.exc_info)
        return json.dumps(line, default=str, ensure_ascii=False)


# --- log options ----------------------------------------------------------------------------------------------------------
#
# How a program that stays writes its log, the same for all of them.

_Function = TypeVar("_Function", bound=Callable[..., Any])


def log_options(function: _Function) -> _Function:
    """Adds them; the command gets `log_format` and `verbose`, for :func:`set_up`."""
    verbose = click.option("-v", "--verbose", count=True, help="Log more; twice for even more.")
    forms = click.Choice(["text", "json"])
    form = click.option("--log-format", type=forms, default="text", show_default=True, help="Form of log lines.")
    return form(verbose(function))
