"""Which controllers a list asks for."""

from __future__ import annotations

import pytest

from remuda.runtime.controller_table import UnknownController, choose

KNOWN = ("gc", "namespaces")
GROUPS = {"capi": ("cluster", "machine")}
EVERYTHING = ("gc", "namespaces", "cluster", "machine")


@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        ("*", EVERYTHING),
        ("", EVERYTHING),
        ("gc", ("gc",)),
        ("gc, machine", ("gc", "machine")),
        ("*,-gc", ("namespaces", "cluster", "machine")),
        ("-gc", ("namespaces", "cluster", "machine")),
        ("-capi", ("gc", "namespaces")),
        ("capi", ("cluster", "machine")),
        ("*,-capi", ("gc", "namespaces")),
        ("capi,-machine", ("cluster",)),
        ("-capi,machine", ("machine",)),
        ("*,-capi,machine", ("gc", "namespaces", "machine")),
    ],
)
def test_names_win_over_their_group_and_that_over_the_star(text: str, wanted: tuple[str, ...]) -> None:
    assert choose(text, KNOWN, GROUPS).of(EVERYTHING) == wanted


def test_an_unknown_name_is_refused_with_the_known_ones() -> None:
    with pytest.raises(UnknownController) as caught:
        choose("*,-machin", KNOWN, GROUPS)
    assert str(caught.value) == "there is no controller 'machin'; there are capi, cluster, gc, machine, namespaces"
