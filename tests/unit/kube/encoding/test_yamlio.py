"""The YAML edge, as Kubernetes reads YAML."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from remuda.kube.encoding import yamlio
from remuda.kube.encoding.yamlio import DuplicateKey, YamlError


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("2024-01-01", "2024-01-01"),
        ("2024-01-01T00:00:00Z", "2024-01-01T00:00:00Z"),
        ("1:30", "1:30"),
        ("0o17", 15),
        ("017", 15),
        ("0x1F", 31),
        ("-0b11", -3),
        ("1_000", 1000),
        ("1e3", 1000.0),
        (".5", 0.5),
        ("yes", True),
        ("off", False),
        ("~", None),
        ("'1'", "1"),
        ("8443/tcp", "8443/tcp"),
    ],
)
def test_scalars(text: str, value: Any) -> None:
    assert yamlio.loads(f"a: {text}") == {"a": value}


def test_keys_are_text() -> None:
    assert yamlio.loads("1: a\ntrue: b\n") == {"1": "a", "true": "b"}


def test_a_repeated_key_is_refused_or_reported() -> None:
    with pytest.raises(DuplicateKey, match='line 2: key "a" already set in map'):
        yamlio.loads("a: 1\na: 2\n")
    assert yamlio.loads_reporting_duplicates("a: 1\na: 2\n") == ({"a": 2}, ['line 2: key "a" already set in map'])


def test_merge_keys_and_anchors() -> None:
    assert yamlio.loads("base: &b {x: 1}\nuse:\n  <<: *b\n  y: 2\n")["use"] == {"x": 1, "y": 2}


def test_each_document_of_a_stream_and_no_empty_ones() -> None:
    assert list(yamlio.loads_all("a: 1\n---\n---\nb: 2\n")) == [{"a": 1}, {"b": 2}]
    assert yamlio.loads("") is None


def test_a_document_is_bounded_and_a_stream_of_them_is_not(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(yamlio, "MAX_VALUES", 5)
    assert list(yamlio.loads_all("---\n[1, 2, 3]\n" * 4)) == [[1, 2, 3]] * 4
    with pytest.raises(YamlError, match="more than 5 values"):
        yamlio.loads("[1, 2, 3, 4, 5]")


@pytest.mark.parametrize("text", ["a: [", "\t- x", "a: b: c", "{[a]: 1}", "!!python/object:os.system {}", b"\xff\xfe\xff"])
def test_what_is_no_yaml(text: str | bytes) -> None:
    with pytest.raises(YamlError):
        yamlio.loads(text)


@given(st.text(max_size=30))
def test_any_text_is_a_value_or_an_error(text: str) -> None:
    try:
        yamlio.loads(text)
    except YamlError as error:
        assert str(error)


SCALARS = st.none() | st.booleans() | st.integers() | st.text(st.characters(codec="utf-8", exclude_categories=["Cc", "Cs"]))
VALUES = st.recursive(
    SCALARS,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.from_regex(r"[a-z]{1,5}", fullmatch=True), inner, max_size=3),
    max_leaves=10,
)


@given(VALUES)
def test_what_is_written_is_read_back(value: Any) -> None:
    assert yamlio.loads(yamlio.dumps({"value": value})) == {"value": value}


def test_lines_stay_lines() -> None:
    assert yamlio.dumps({"a": "x\ny\n"}) == "a: |\n  x\n  y\n"
