"""Log lines on stderr: plain text for people and journals, JSON for collectors. Times are UTC."""

from __future__ import annotations

import json
import logging
import sys
from typing import Any

from remuda.kube.clock import rfc3339_micro

# What logging puts on every record by itself; the rest of a record is what the caller added with `extra`.
_OWN = frozenset(vars(logging.makeLogRecord({}))) | {"message", "asctime", "taskName"}


def set_up(form: str, verbosity: int) -> None:
    """`form` is text or json. Warnings of others are shown, their chatter is not, until -vv."""
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(JsonLines() if form == "json" else TextLines())
    logging.basicConfig(handlers=[handler], level=logging.DEBUG if verbosity > 1 else logging.WARNING, force=True)
    logging.getLogger("remuda").setLevel(logging.DEBUG if verbosity else logging.INFO)


def _extra(record: logging.LogRecord) -> dict[str, Any]:
    return {key: value for key, value in vars(record).items() if key not in _OWN}


class TextLines(logging.Formatter):
    def format(self, record: logging.LogRecord) -> str:
        extra = "".join(f" {key}={value}" for key, value in _extra(record).items())
        trace = f"\n{self.formatException(record.exc_info)}" if record.exc_info else ""
        moment = f"{rfc3339_micro(record.created)[:23]}Z"
        return f"{moment} {record.levelname.lower()} {record.name}: {record.getMessage()}{extra}{trace}"


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
