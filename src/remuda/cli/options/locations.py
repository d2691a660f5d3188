"""Default locations, and the options that change them."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

import click

_Function = TypeVar("_Function", bound=Callable[..., Any])

DEFAULT_HOST = "127.0.0.1"
DEFAULT_PORT = 8443


def default_data_dir(environ: Mapping[str, str] | None = None, uid: int | None = None) -> Path:
    """/var/lib/remuda for root; for others, XDG's place for data."""
    values = os.environ if environ is None else environ
    if (os.getuid() if uid is None else uid) == 0:
        return Path("/var/lib/remuda")
    home = Path(values["HOME"]) if values.get("HOME") else Path.home()
    given = values.get("XDG_DATA_HOME", "")
    # The standard says that a relative path is to be ignored.
    base = Path(given) if given.startswith("/") else home / ".local" / "share"
    return base / "remuda"


class Listen(NamedTuple):
    host: str
    port: int

    def __str__(self) -> str:
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"


def parse_listen(text: str | Listen) -> Listen:
    """HOST:PORT, HOST, or :PORT; an IPv6 address in brackets."""
    if isinstance(text, Listen):
        return text
    if text.startswith("["):
        host, closed, rest = text[1:].partition("]")
        port = rest.removeprefix(":") if closed and rest[:1] in ("", ":") else "?"
    else:
        host, _, port = text.rpartition(":") if ":" in text else (text, "", "")
    if ":" in host and not text.startswith("["):
        raise click.BadParameter(f"{text!r} is not HOST:PORT; an IPv6 address needs brackets, as in [::1]:{DEFAULT_PORT}")
    if port and not (port.isascii() and port.isdigit() and int(port) <= 65535):
        raise click.BadParameter(f"{text!r} is not HOST:PORT with a port from 0 to 65535")
    return Listen(host or DEFAULT_HOST, int(port) if port else DEFAULT_PORT)


_UNITS = {"s": 1, "m": 60, "h": 3600, "d": 86400}


def parse_duration(text: str | int) -> int:
    """Seconds of a number with s, m, h or d, such as `90m` or `7d`; a bare number is seconds."""
    if isinstance(text, int):
        return text
    unit = _UNITS.get(text[-1:], 0)
    number = text[:-1] if unit else text
    if not number.isascii() or not number.isdigit() or len(number) > 9:
        raise click.BadParameter(f"{text!r} is not a duration such as 30m, 12h or 7d")
    return int(number) * (unit or 1)


_PARTS = re.compile(r"(?:\d{1,9}(?:\.\d{1,9})?(?:ms|s|m|h|d))+")
_PART = re.compile(r"([\d.]+)(ms|s|m|h|d)")


def parse_interval(text: str | float) -> float:
    """Seconds of a duration as Go's flags take it, such as `500ms` or `1m30s`; days and a bare number of seconds, too."""
    if isinstance(text, float | int):
        return float(text)
    if not _PARTS.fullmatch(text):
        return float(parse_duration(text))
    return sum(float(number) * {**_UNITS, "ms": 0.001}[unit] for number, unit in _PART.findall(text))


def owner_of(path: Path) -> str:
    """The name of the user that it belongs to, or the number."""
    try:
        return path.owner()
    except KeyError:
        return str(path.stat().st_uid)


class _DataDir(click.Path):
    """A directory; for one of another user the error names that user, who can run the command."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        path = Path(value)
        # Who may not even look what is there is told when it is opened.
        if os.path.isdir(path) and not os.access(path, os.R_OK):  # noqa: PTH112
            self.fail(f"{path} is for the user {owner_of(path)} only: run this as that user, or choose another one", param, ctx)
        return super().convert(value, param, ctx)


def data_dir_option(function: _Function) -> _Function:
    """`--data-dir`; the function gets a `data_dir: Path`."""
    return click.option(
        "--data-dir",
        type=_DataDir(file_okay=False, path_type=Path),
        default=default_data_dir,
        envvar="REMUDA_DATA_DIR",
        help="The directory of the server's state.  [default: /var/lib/remuda for root, else $XDG_DATA_HOME/remuda]",
    )(function)


def listen_option(function: _Function) -> _Function:
    """`--listen`; the function gets a `listen: Listen`."""
    return click.option(
        "--listen",
        type=parse_listen,
        metavar="HOST:PORT",
        default=f"{DEFAULT_HOST}:{DEFAULT_PORT}",
        envvar="REMUDA_LISTEN",
        show_default=True,
        help="Address to serve on.",
    )(function)
