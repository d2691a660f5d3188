"""The YAML that agents' files are written in."""

from __future__ import annotations

from typing import Any

import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st

from remuda.agent import yamlsubset
from remuda.agent.errors import ConfigError

DOCUMENTS = [
    "",
    "# nothing\n",
    "a: 1\nb: true\nc: null\nd: ~\ne:\nf: 1.5\n",
    "a: b # comment\nurl: http://x#y\nquoted: 'it''s # not a comment'\n",
    "---\na:\n  b:\n    c: d\n  e: f\n",
    'mirrors:\n  docker.io:\n    endpoint:\n      - https://m1:5000\n      - "https://m2"\n    rewrite:\n      "^r/(.*)": "$1"\n',
    "clusters:\n- cluster:\n    server: https://x\n  name: agent\n- name: other\n",
    "- a\n- - b\n  - c\n-\n  d: e\n- f: g\n  h: i\n",
    "a: {b: c, d: [1, 2, {e: f}], 'g': \"h\", i: }\nj: []\nk: {}\n",
    "a: [1,\n  2,\n  3]\nb: x\n",
    "a: |\n  one\n    two\n\n  three\nb: >-\n  folded\n  text\n\n  more\nc: |+\n  keep\n\nd: e\n",
    'a: "x\\n\\u00e9\\"y"\nb: plain words here\n',
    "a: one\n  two\n  three\nb: c\n",
    '"*":\n  auth: {username: u, password: "p: q"}\n',
    "text\n",
    "'quoted: text'\n",
    "a: -1\nb: +2\nc: '3'\nd: 0\ne: v1.2.3\nf: 1e3x\ng: -x\n",
    "a#b: c#d # e\r\nf: [1,\r\n 2]\r\n",
    'k: "multi\n  line"\n',
]


@pytest.mark.parametrize("text", DOCUMENTS)
def test_reads_what_the_full_reader_reads(text: str) -> None:
    assert yamlsubset.load(text) == yaml.safe_load(text)


@pytest.mark.parametrize(
    "text",
    [
        "a: &x 1\n",
        "a: *x\n",
        "a: !!str 1\n",
        "a: 1\na: 2\n",
        "a: 'x\n",
        "a: [1\n",
        "\ta: 1\n",
        "a: 1\n---\nb: 2\n",
        "a: b\n  c: d\n",
    ],
)
def test_refuses_what_it_does_not_know(text: str) -> None:
    with pytest.raises(ConfigError):
        yamlsubset.load(text)


_texts = st.text(
    st.characters(min_codepoint=32, max_codepoint=0x2FFF, blacklist_categories=("Cs", "Cc", "Zl", "Zp")), max_size=20
)
_values: st.SearchStrategy[Any] = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-1000, 1000)
    | _texts
    | st.lists(_texts.filter(bool), min_size=2, max_size=3).map("\n".join),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(_texts, inner, max_size=3),
    max_leaves=10,
)


@settings(max_examples=100, deadline=None, derandomize=True)
@given(st.dictionaries(_texts, _values, max_size=4), st.booleans())
def test_reads_back_what_others_write(value: dict[str, Any], flow: bool) -> None:
    text = yaml.safe_dump(value, default_flow_style=flow, allow_unicode=True, width=10_000)
    if "? " in text or "\n:" in text:
        return
    try:
        found = yamlsubset.load(text)
    except ConfigError as reason:
        assert "inside brackets" in str(reason)
        return
    assert found == yaml.safe_load(text)
