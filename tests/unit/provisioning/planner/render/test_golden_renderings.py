"""A change of rendered bytes is a diff in review: it restarts machines, or is held after an upgrade (docs/upgrades.md)."""

from __future__ import annotations

from . import golden_renderings


def test_the_present_version_renders_what_its_golden_file_has() -> None:
    """If the change is wanted: `python -m tests.unit.provisioning.planner.render.golden_renderings`."""
    assert golden_renderings.text() == golden_renderings.path().read_text()


def test_each_golden_file_is_of_a_version() -> None:
    names = {each.stem for each in golden_renderings.GOLDENS.glob("*.json")}
    assert golden_renderings.path().stem in names
    assert all(part.isdecimal() for name in names for part in name.split(".")), names
