"""Label and field selectors: what they mean, and how they are written."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from remuda.kube.selectors import (
    NOTHING,
    SelectorError,
    checked_structure,
    from_structure,
    parse_fields,
    parse_labels,
    structure_errors,
)

Labels = dict[str, str]
Model = Callable[[Labels], bool]

KEYS = st.sampled_from(["a", "b", "x.io/c"])
VALUES = st.sampled_from(["", "1", "v", "7", "w-1"])
LABELS = st.dictionaries(KEYS, VALUES, max_size=3)


def _terms() -> st.SearchStrategy[tuple[str, Model]]:
    """A requirement as text, and what it means as a Python predicate."""

    def equals(key: str, value: str, sign: str) -> tuple[str, Model]:
        return f"{key}{sign}{value}", lambda labels: labels.get(key) == value

    def differs(key: str, value: str) -> tuple[str, Model]:
        return f"{key}!={value}", lambda labels: labels.get(key) != value

    def one_of(key: str, values: list[str], negated: bool) -> tuple[str, Model]:
        word = "notin" if negated else "in"
        return f"{key} {word} ({','.join(values)})", lambda labels: (labels.get(key) in values) is not negated

    def exists(key: str, negated: bool) -> tuple[str, Model]:
        return ("!" if negated else "") + key, lambda labels: (key in labels) is not negated

    def compares(key: str, bound: int, greater: bool) -> tuple[str, Model]:
        def holds(labels: Labels) -> bool:
            value = labels.get(key, "")
            return value.isdigit() and (int(value) > bound if greater else int(value) < bound)

        return f"{key}{'>' if greater else '<'}{bound}", holds

    return st.one_of(
        st.builds(equals, KEYS, VALUES, st.sampled_from(["=", "==", " = "])),
        st.builds(differs, KEYS, VALUES),
        st.builds(one_of, KEYS, st.lists(VALUES, min_size=1, max_size=3), st.booleans()),
        st.builds(exists, KEYS, st.booleans()),
        st.builds(compares, KEYS, st.integers(-5, 10), st.booleans()),
    )


@given(st.lists(_terms(), max_size=4), LABELS)
def test_a_label_selector_means_what_its_terms_mean_together(terms: list[tuple[str, Model]], labels: Labels) -> None:
    selector = parse_labels(",".join(text for text, _ in terms))
    assert selector.matches(labels) is all(holds(labels) for _, holds in terms)


@given(st.lists(_terms(), max_size=4), LABELS)
def test_a_printed_selector_means_the_same(terms: list[tuple[str, Model]], labels: Labels) -> None:
    selector = parse_labels(",".join(text for text, _ in terms))
    assert parse_labels(str(selector)).matches(labels) is selector.matches(labels)


@given(st.text(alphabet="ab=!<>(), in\tx/_é", max_size=20))
def test_any_text_is_a_selector_or_a_selector_error(text: str) -> None:
    for parse in (parse_labels, parse_fields):
        try:
            parse(text)
        except SelectorError as error:
            assert str(error)


@pytest.mark.parametrize("value", ["1_0", " 1", "٣", "9" * 5000])
def test_only_what_go_reads_as_a_number_is_compared(value: str) -> None:
    assert not parse_labels("a>0").matches({"a": value})


def test_absent_structure_selects_nothing_and_an_empty_one_everything() -> None:
    assert not from_structure(None).matches({"a": "b"})
    assert from_structure({}).matches({})


@given(st.dictionaries(KEYS, VALUES, max_size=2), LABELS)
def test_match_labels_must_all_be_there(wanted: Labels, labels: Labels) -> None:
    assert from_structure({"matchLabels": wanted}).matches(labels) is (wanted.items() <= labels.items())


@pytest.mark.parametrize(
    ("expression", "expected"),
    [
        ({"key": "a", "operator": "In", "values": ["1", "2"]}, [True, False, False]),
        ({"key": "a", "operator": "NotIn", "values": ["1"]}, [False, True, True]),
        ({"key": "a", "operator": "Exists"}, [True, True, False]),
        ({"key": "a", "operator": "DoesNotExist"}, [False, False, True]),
    ],
)
def test_match_expressions(expression: dict[str, object], expected: list[bool]) -> None:
    selector = from_structure({"matchExpressions": [expression]})
    assert [selector.matches(labels) for labels in ({"a": "1"}, {"a": "3"}, {})] == expected


def test_structures_are_checked_field_by_field() -> None:
    broken = {"matchLabels": {"a": "-"}, "matchExpressions": [{"key": "a", "operator": "In"}, {"key": "b", "operator": "Near"}]}
    assert [error.field for error in structure_errors(broken, "spec.selector")] == [
        "spec.selector.matchLabels",
        "spec.selector.matchExpressions[0].values",
        "spec.selector.matchExpressions[1].operator",
    ]


def test_a_checked_structure_is_written_in_order_of_its_keys() -> None:
    expressions = [
        {"key": "z", "operator": "Exists"},
        {"key": "old", "operator": "DoesNotExist"},
        {"key": "c", "operator": "NotIn", "values": ["y", "x"]},
    ]
    selector = checked_structure({"matchLabels": {"d": "1", "a": ""}, "matchExpressions": expressions})
    assert str(selector) == "a=,c notin (x,y),d=1,!old,z"
    assert selector.matches({"a": "", "d": "1", "z": "2"})
    assert checked_structure({}).empty
    assert checked_structure(None) is NOTHING


@pytest.mark.parametrize(
    ("structure", "why"),
    [
        ({"matchLabels": {"a": "-"}}, 'values[0][a]: Invalid value: "-": a valid label must be'),
        ({"matchLabels": {"": "b"}}, 'key: Invalid value: "": name part must be non-empty; name part must consist of'),
        ({"matchExpressions": [{"key": "a", "operator": "In"}]}, "values: Invalid value: null: for 'in', 'notin' operators"),
        ({"matchExpressions": [{"key": "a", "operator": "Exists", "values": ["<"]}]}, 'values: Invalid value: ["\\u003c"]: '),
        ({"matchExpressions": [{"key": "a", "operator": "Near"}]}, '"Near" is not a valid label selector operator'),
    ],
)
def test_a_checked_structure_is_refused_with_the_reason(structure: dict[str, Any], why: str) -> None:
    with pytest.raises(SelectorError) as caught:
        checked_structure(structure)
    assert why in str(caught.value)


FIELD_TEXT = st.text(alphabet="ab.,=\\!", max_size=6)


@given(st.dictionaries(st.sampled_from(["metadata.name", "spec.x"]), FIELD_TEXT, min_size=1))
def test_any_value_can_be_written_in_a_field_selector(wanted: dict[str, str]) -> None:
    def escaped(value: str) -> str:
        return value.replace("\\", "\\\\").replace(",", "\\,").replace("=", "\\=")

    selector = parse_fields(",".join(f"{field}={escaped(value)}" for field, value in wanted.items()))
    assert selector.matches(wanted)
    assert {r.field: r.value for r in selector.requirements} == wanted


def test_an_absent_field_is_empty() -> None:
    assert parse_fields("spec.nodeName=").matches({})
    assert not parse_fields("spec.nodeName!=").matches({})


def test_the_one_value_that_a_field_must_have() -> None:
    assert parse_fields("metadata.name=x,spec.y!=z").exact("metadata.name") == "x"
    assert parse_fields("metadata.name!=x").exact("metadata.name") is None
