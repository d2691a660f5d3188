"""What is remembered of a host between its runs: who it is and which address is its own."""

from __future__ import annotations

import json
import os
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from .errors import HostError


@dataclass(frozen=True, slots=True)
class Record:
    """`id` is unguessable and in the environment of every process of the host: that is how they are known as its own.

    `note` is whatever its maker wants to know it by.
    """

    name: str
    id: str
    address: str
    created: str
    note: str = ""


def read(path: Path) -> Record:
    """The record in a file; raises FileNotFoundError, HostError."""
    try:
        said: Any = json.loads(path.read_bytes())
        return Record(**{key: str(said[key]) for key in ("name", "id", "address", "created")}, note=str(said.get("note") or ""))
    except (ValueError, KeyError, TypeError) as error:
        raise HostError(f"{path} is no record of a host: {error}") from None


def write(path: Path, record: Record) -> None:
    write_json(path, asdict(record))


def write_json(path: Path, value: object) -> None:
    """Replace a file in one step, durable before it is seen."""
    half = path.with_name(f".{path.name}.{os.getpid()}")
    with half.open("w") as stream:
        json.dump(value, stream)
        stream.flush()
        os.fsync(stream.fileno())
    half.replace(path)
