"""No module imports itself by way of others, not even where only types need it. Layers are contracts in pyproject.toml."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from graphlib import CycleError, TopologicalSorter

import grimp
import pytest


def test_no_modules_import_each_other_in_a_circle() -> None:
    graph = grimp.build_graph("remuda", cache_dir=None)
    imported = {module: graph.find_modules_directly_imported_by(module) for module in graph.modules}
    assert len(imported) > 500
    assert circle(imported) == []


@pytest.mark.parametrize(
    ("imported", "expected"),
    [
        ({"a": {"b"}, "b": {"c"}, "c": set()}, []),
        ({"a": {"b"}, "b": {"c"}, "c": {"b"}}, ["b", "c"]),
    ],
)
def test_a_circle_is_found(imported: Mapping[str, set[str]], expected: list[str]) -> None:
    assert circle(imported) == expected


def circle(imported: Mapping[str, set[str]]) -> list[str]:
    """The modules of one circle; [] if there is none."""
    try:
        TopologicalSorter(imported).prepare()
    except CycleError as error:
        return sorted(set(_members(error)))
    return []


def _members(error: CycleError) -> Iterator[str]:
    yield from error.args[1]
