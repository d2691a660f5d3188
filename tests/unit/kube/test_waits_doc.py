"""docs/waits.md names every reason that anything waits for, and who can end a wait."""

from __future__ import annotations

import re
from pathlib import Path

from remuda.kube.waits import Actor, Code

PAGE = (Path(__file__).parents[3] / "docs" / "waits.md").read_text()


def test_every_code_has_its_row_in_the_order_of_the_code() -> None:
    assert re.findall(r"^\| `(\w+)` \|", PAGE, re.MULTILINE) == [code.value for code in Code]


def test_every_actor_that_can_end_a_wait_is_named() -> None:
    assert all(f"`{actor.value}`" in PAGE for actor in Actor)
