"""Each controller of the table in `remuda.app.controllers` is in a table of one page, with its module and what it does."""

from __future__ import annotations

import importlib
import re
from pathlib import Path
from typing import Any

import pytest

from remuda.app.controllers import GROUPS
from remuda.kcm.workloads import CONTROLLERS
from remuda.runtime.controller_table import ControllerRow

ROOT = Path(__file__).parents[3]
PAGES = [
    ROOT / "docs" / page
    for page in (
        "access.md",
        "provisioning.md",
        "machine-jobs.md",
        "cluster-api.md",
        "api-compatibility.md",
        "simulated-nodes.md",
    )
]
TABLES = [line for page in PAGES for line in page.read_text().splitlines() if re.match(r"^\|.*`\w[\w/]*\.py`", line)]
ROWS = [*(row for group in GROUPS for row in group.rows), *CONTROLLERS]


def named(line: str) -> set[str]:
    return set(re.findall(r"`([^`\s]+)`", line))


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row.name)
def test_a_controller_is_in_one_table_with_its_module(row: ControllerRow[Any]) -> None:
    module, _, name = row.made_by.partition(":")
    defined = getattr(importlib.import_module(module), name).__module__
    source = Path(str(importlib.import_module(defined).__file__)).relative_to(ROOT / "src" / "remuda")
    assert [line for line in TABLES if row.name in named(line) and str(source) in named(line)] != []
    assert sum(row.name in named(line.partition(".py`")[0]) for line in TABLES) == 1


def test_the_tables_name_only_modules_that_exist() -> None:
    paths = {path for line in TABLES for path in named(line) if path.endswith(".py")}
    assert len(paths) > 40
    assert sorted(path for path in paths if not (ROOT / "src" / "remuda" / path).is_file()) == []
