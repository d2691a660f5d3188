"""What docs/security.md says, for tests that compare it with the program."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parents[2]
TEXT = (ROOT / "docs" / "security.md").read_text()


@dataclass(frozen=True)
class Row:
    """A request that is answered without a user's credential; `takes` is what it reads instead, `refusals` what others get."""

    door: str
    request: str
    takes: str = ""
    refusals: frozenset[int] = frozenset()


def _cells(heading: str) -> list[list[str]]:
    section = TEXT.partition(f"\n## {heading}\n")[2].partition("\n## ")[0]
    lines = [line for line in section.splitlines() if line.startswith("|")]
    assert len(lines) > 2, heading
    return [[cell.strip() for cell in line.strip("|").split("|")] for line in lines[2:]]


OPEN = [Row(door, request.strip("`")) for door, request, _ in _cells("Without a credential")]
OWN = [
    Row(door, request.strip("`"), takes, frozenset(map(int, refusals.split(", "))))
    for door, request, takes, refusals in _cells("With a credential of its own")
]
CLAIMS = re.findall(r"^- \*\*(S\d+)\.\*\* ", TEXT, re.MULTILINE)


def at(door: str, rows: list[Row]) -> dict[str, Row]:
    return {row.request: row for row in rows if row.door == door}
