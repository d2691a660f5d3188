"""The map of the house is true: every room and module that it names is there, and every one that is there is named."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

ROOT = Path(__file__).parents[3]
SOURCE = ROOT / "src" / "remuda"
PAGE = (ROOT / "docs" / "architecture.md").read_text()
ROOMS, APISERVER = PAGE.split("\n## The rooms\n")[1].split("\n## ")[0].split("Inside `apiserver/`:")


def modules_of(package: Path) -> set[str]:
    """Modules and packages right inside of it."""
    inside = (path for path in package.iterdir() if path.suffix == ".py" or (path / "__init__.py").exists())
    return {path.stem for path in inside if not path.stem.startswith("__")}


def first_cells(table: str) -> set[str]:
    cells = re.findall(r"^\| (`[^|]*) \|", table, re.MULTILINE)
    return {name.removesuffix("/").removesuffix(".py") for cell in cells for name in re.findall(r"`([^`]+)`", cell)}


def is_there(name: str) -> bool:
    """A path as the page says it: from the root, in the source, or in the tests; with or without its ending."""
    pattern = name.strip("/").replace("<kind>", "*")
    return any(
        next(base.glob(f"{deep}{pattern}{ending}"), None) is not None
        for base, deep in ((ROOT, ""), (SOURCE, "**/"), (ROOT / "tests", "**/"))
        for ending in ("", ".py")
    )


def test_every_room_has_a_row() -> None:
    assert first_cells(ROOMS) == modules_of(SOURCE)


def test_every_module_of_the_api_server_has_a_row() -> None:
    named = first_cells(APISERVER)
    there = modules_of(SOURCE / "apiserver")
    found = {module for module in there for name in named if re.fullmatch(name.replace("*", r"\w+"), module)}
    assert there - found == set()
    assert {name for name in named if "*" not in name} - there == set()


def test_every_module_that_a_row_names_is_in_that_room() -> None:
    missing = []
    for room, text in re.findall(r"^\| `(\w+)/` \| (.*) \|$", ROOMS, re.MULTILINE):
        there = {path.stem for path in (SOURCE / room).rglob("*")} | modules_of(SOURCE)
        named = re.findall(r"`([a-z_]+(?:/[a-z_]+)*)/?`", text)
        missing += [f"{room}: {name}" for name in named if not set(name.split("/")) <= there]
    assert missing == []


def test_every_path_is_there() -> None:
    named = set(re.findall(r"`((?:[\w<>-]+/)+(?:[\w-]+(?:\.py|\.sh|\.md|\.env)?)?|\w+\.py)`", PAGE))
    assert len(named) > 80
    assert sorted(name for name in named if not is_there(name)) == []


def test_the_order_of_imports_is_the_one_that_is_held() -> None:
    said = PAGE.split("Imports go down, never up: ")[1].split(". ")[0]
    told = [re.findall(r"`(\w+)`", layer) for layer in said.split("<")]
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())
    held = [re.findall(r"remuda\.(\w+)", layer) for layer in reversed(project["tool"]["importlinter"]["contracts"][0]["layers"])]
    assert [set(layer) for layer in told] == [set(layer) for layer in held]
