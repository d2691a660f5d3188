"""Regular expressions: what RE2 accepts, what it matches, and that nothing makes it slow."""

from __future__ import annotations

import re
import time

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from remuda.apiserver.cel.re2 import Automaton, Pattern, RegexError

SUBDOMAIN = r"^[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*$"


@pytest.mark.parametrize(
    ("pattern", "message"),
    [
        ("(", "missing closing ): `(`"),
        ("a)", "unexpected ): `a)`"),
        ("*", "missing argument to repetition operator: `*`"),
        ("(+?", "missing argument to repetition operator: `+?`"),
        ("a**", "invalid nested repetition operator: `**`"),
        ("[a", "missing closing ]: `[a`"),
        ("[z-a]", "invalid character class range: `z-a`"),
        (r"(a)\1", r"invalid escape sequence: `\1`"),
        ("(?=a)", "invalid or unsupported Perl syntax: `(?=`"),
        ("(?<!a)", "invalid named capture: `(?<!a)`"),
        ("a{1001}", "invalid repeat count: `{1001}`"),
        ("(a{100}){100}", "invalid repeat count: `{100}`"),
        ("\\", "trailing backslash at end of expression: ``"),
        (r"\p{Foo}", r"invalid character class range: `\p{Foo}`"),
        ("(" * 300 + ")" * 300, ""),
    ],
)
def test_what_re2_refuses(pattern: str, message: str) -> None:
    with pytest.raises(RegexError) as caught:
        Pattern(pattern)
    if message:
        assert str(caught.value) == f"error parsing regexp: {message}"


@pytest.mark.parametrize(
    ("pattern", "text", "found"),
    [
        ("a$", "a\n", None),
        ("(?m)^b$", "a\nb\nc", "b"),
        (r"\d+", "٣12", "12"),
        (r"(?i)straße", "STRAßE", "STRAßE"),
        (r"\bfoo\b", "a foo b", "foo"),
        ("a|ab", "ab", "a"),
        ("(?U)a+", "aaa", "a"),
        (r"\pL+", "12éa3", "éa"),
        ("[[:upper:]]+", "abCD", "CD"),
        (r"[^\W\d]+", "12ab", "ab"),
        (r"\Qa.b\E", "axb a.b", "a.b"),
        ("x{2,3}?", "xxxx", "xx"),
        (r"\x{263a}", "☺", "☺"),
        ("(?s)a.b", "a\nb", "a\nb"),
        ("a.b", "a\nb", None),
        # What is repeated is the last character, also after a quotation or a switch.
        (r"\Qab\E+", "abbb", "abbb"),
        ("a(?i)*B", "aab", "aab"),
        # Folded first, negated then.
        (r"(?i)\W", "kſK", None),
        (r"(?i)[\W]", "kſK", None),
        (r"(?i)\p{Lu}", "ß", "ß"),
    ],
)
def test_what_re2_finds(pattern: str, text: str, found: str | None) -> None:
    span = Pattern(pattern).find(text)
    assert (text[span[0] : span[1]] if span is not None else None) == found
    assert Pattern(pattern).matches(text) is (found is not None)


@pytest.mark.parametrize("pattern", ["(a+)+$", "(a|aa)*$", "(a*)*b", "(.*)*x", ".*.*.*.*=", SUBDOMAIN, "(x+x+)+y", "a{0,500}a$"])
def test_patterns_that_ruin_backtracking_are_quick(pattern: str) -> None:
    compiled = Pattern(pattern)
    for text in ("a" * 20_000 + "!", "x" * 20_000):
        started = time.thread_time()
        compiled.matches(text)
        assert time.thread_time() - started < 2


def test_find_all_skips_empty_matches_next_to_others() -> None:
    assert Pattern("[0-9]*").find_all("a1b2") == ["", "1", "2"]
    assert Pattern("b").find_all("abcb", 1) == ["b"]


PIECES = st.sampled_from(["a", "b", "[ab]", ".", "(a|b)", "(ab|a)", "(a*)", "(?:b+)", "^", "$", "[^a]", "(|a)", r"\w"])
PATTERNS = st.lists(st.tuples(PIECES, st.sampled_from(["", "*", "+", "?", "{1,2}", "*?", "+?"])), max_size=4)


@settings(max_examples=300, deadline=None)
@given(PATTERNS, st.text("abc\n", max_size=8))
def test_engines_agree_with_python_where_python_is_safe(parts: list[tuple[str, str]], text: str) -> None:
    source = "".join(piece + (repeat if piece not in "^$" else "") for piece, repeat in parts)
    span = re.search(source.replace("$", r"\Z"), text, re.ASCII)
    expected = span.span() if span is not None else None
    pattern = Pattern(source)
    machine = Automaton(pattern._tree)
    assert pattern.matches(text) is machine.matches(text) is (expected is not None)
    if "(a*)" not in source and "(|a)" not in source:  # Python and RE2 differ on empty iterations
        assert pattern.find(text) == machine.find(text, 0) == expected
