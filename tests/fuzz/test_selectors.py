"""Label and field selectors: read or refused, and what is read means the same when it is written and read again."""

from __future__ import annotations

from typing import Any

from hypothesis import example, given
from hypothesis import strategies as st

from remuda.kube import selectors
from remuda.kube.selectors import SelectorError

from .budget import fuzzing
from .shapes import texts

FUZZ = fuzzing(200)

noise = st.text(alphabet="ab=!(),<> \\\"'\t./-1", max_size=30)
tokens = st.lists(
    st.sampled_from(
        ["a", "b", "x/y", "in", "notin", "gt", "exists", "(", ")", ",", "=", "==", "!=", "!", "<", ">", " ", "1", "9" * 5000, "é"]
    ),
    max_size=12,
)
written = st.one_of(noise, texts, tokens.map(" ".join), tokens.map("".join))
labels = st.dictionaries(st.sampled_from(["a", "b", "x/y"]), st.one_of(st.sampled_from(["", "1", "2", "a"]), texts), max_size=3)


@FUZZ
@given(written, labels)
@example("a>" + "9" * 5000, {"a": "1"})
@example("a<1", {"a": "9" * 5000})
def test_label_selectors(text: str, held: dict[str, str]) -> None:
    try:
        found = selectors.parse_labels(text)
    except SelectorError as error:
        assert str(error)
        return
    again = selectors.parse_labels(str(found))
    assert again.matches(held) == found.matches(held)
    assert str(again) == str(found)


@FUZZ
@given(written, labels)
def test_field_selectors(text: str, held: dict[str, str]) -> None:
    try:
        found = selectors.parse_fields(text)
    except SelectorError as error:
        assert str(error)
        return
    found.matches(held)
    found.exact("metadata.name")


expressions = st.fixed_dictionaries(
    {},
    optional={
        "key": texts,
        "operator": st.one_of(st.sampled_from(["In", "NotIn", "Exists", "DoesNotExist", "", "in"]), texts),
        "values": st.one_of(st.none(), st.lists(texts, max_size=3)),
    },
)
structures = st.one_of(
    st.none(),
    st.fixed_dictionaries(
        {},
        optional={
            "matchLabels": st.one_of(st.none(), st.dictionaries(texts, texts, max_size=3)),
            "matchExpressions": st.one_of(st.none(), st.lists(expressions, max_size=3)),
        },
    ),
)


@FUZZ
@given(structures, labels)
def test_selectors_of_objects(structure: Any, held: dict[str, str]) -> None:
    problems = selectors.structure_errors(structure, "spec.selector")
    for read in (selectors.from_structure, selectors.checked_structure):
        try:
            found = read(structure)
        except SelectorError as error:
            assert str(error) and problems
        else:
            found.matches(held)
    if not problems and structure is not None:
        assert selectors.parse_labels(str(selectors.checked_structure(structure))).matches(held) == found.matches(held)
