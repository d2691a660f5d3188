"""The driver in docs/drivers.md: it is found as other people's drivers are, it does what it says, and survives every kill."""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml

from remuda.machines import driver_registry
from remuda.machines.driver import Driver, DriverError, Reason
from remuda.machines.options import Options
from remuda.machines.provisioner import program
from tests.unit.machines.program_output import parsed

from .killing import Case, Places, check_creating, check_removing, create, remove

PAGE = (Path(__file__).parents[3] / "docs" / "drivers.md").read_text()
CODE = re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL)[0]
ENTRY = re.findall(r"```toml\n(.*?)```", PAGE, re.DOTALL)[0]


@pytest.fixture
def installed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[type[Driver]]:
    """As pip leaves it."""
    package = tmp_path / "site"
    package.mkdir()
    (package / "remuda_shelf.py").write_text(CODE)
    metadata = package / "remuda_shelf-1.0.dist-info"
    metadata.mkdir()
    (metadata / "METADATA").write_text("Metadata-Version: 2.1\nName: remuda-shelf\nVersion: 1.0\n")
    points = re.sub(r'\[project.entry-points."(.*)"\]', r"[\1]", ENTRY).replace('"', "")
    (metadata / "entry_points.txt").write_text(points)
    monkeypatch.syspath_prepend(str(package))
    driver_registry._points.cache_clear()
    found = driver_registry.find("shelf")
    assert found is not None
    yield found
    driver_registry._points.cache_clear()
    sys.modules.pop("remuda_shelf", None)


@pytest.fixture
def shelf(tmp_path: Path) -> Path:
    (tmp_path / "shelf").mkdir()
    return tmp_path / "shelf"


@pytest.fixture
def case(installed: type[Driver], shelf: Path, tmp_path: Path) -> Case:
    script = tmp_path / "value"
    script.write_text("#!/bin/sh\necho install\n")

    async def existing() -> list[str]:
        return sorted(path.name for path in shelf.iterdir())

    return Case(installed, lambda: Options.read("shelf", installed.flags, {"place": str(shelf)}), existing, str(script))


def test_it_is_forty_lines() -> None:
    assert len([line for line in CODE.splitlines() if line.strip()]) <= 40


async def test_it_survives_every_kill(case: Case) -> None:
    assert await check_creating(case) >= 6
    assert await check_removing(case) >= 3


async def test_it_makes_what_it_says(case: Case, shelf: Path, installed: type[Driver]) -> None:
    async with Places() as places:
        place = await places.new()
        await create(place, case)
        (item,) = shelf.iterdir()
        said = yaml.safe_load(item.read_text())
        assert said["size"] == "small" and yaml.safe_load(said["userdata"])["hostname"] == said["machine"]
        assert b"192.0.2.1" in (await place.files())["config.json"]
        (found,) = await installed().owned(case.options(), "owner-1")
        assert found.machine == said["machine"] and found.token == item.name
        assert await installed().owned(case.options(), "somebody") == []
        await remove(place, case)
        assert list(shelf.iterdir()) == []


def test_the_program_says_what_is_wrong_before_anything_is_made(
    installed: type[Driver], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("REMUDA_TERMINATION_LOG", str(tmp_path / "last"))
    assert program.main(["create", "--driver=shelf", "--shelf-place=/nowhere", "m"]) == 3
    assert capsys.readouterr().err.splitlines()[-1] == "NotFound: there is no such shelf: make it first"
    assert parsed((tmp_path / "last").read_text()).reason is Reason.NOT_FOUND
    assert program.main(["create", "--driver=shelf", "--shelf-colour=red", "m"]) == 1
    assert capsys.readouterr().err.splitlines()[-1] == "Invalid: there is no option --shelf-colour"


def test_no_other_driver_takes_the_name_of_one_of_ours(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    metadata = tmp_path / "evil-1.0.dist-info"
    metadata.mkdir()
    (metadata / "METADATA").write_text("Metadata-Version: 2.1\nName: evil\nVersion: 1.0\n")
    (metadata / "entry_points.txt").write_text("[remuda.drivers]\nlocal = evil:Local\nother = evil:Other\nwrong = pathlib:Path\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    driver_registry._points.cache_clear()
    try:
        found = driver_registry.find("local")
        assert found is not None and found.__module__ == "remuda.machines.drivers.local"
        for name, why in (("other", "can't be loaded"), ("wrong", "is no driver")):
            with pytest.raises(DriverError, match=why):
                driver_registry.find(name)
        assert driver_registry.find("nobodys") is None
        assert {"local", "generic", "other"} <= set(driver_registry.names())
    finally:
        driver_registry._points.cache_clear()
