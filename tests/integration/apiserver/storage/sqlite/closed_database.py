"""The metadata of a database that is not open."""

from __future__ import annotations

import contextlib
import sqlite3
from collections.abc import Mapping
from pathlib import Path

from remuda.apiserver.storage.sqlite.engine import get_meta


def meta_of(path: Path) -> Mapping[str, float]:
    with contextlib.closing(sqlite3.connect(f"file:{path}?mode=ro", uri=True)) as connection:
        return get_meta(connection)
