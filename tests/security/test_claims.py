"""Every claim of docs/security.md has tests that are there, and every test of a claim belongs to one on the page."""

from __future__ import annotations

import ast
from functools import cache

import pytest

from .claims import TESTS
from .page import CLAIMS, ROOT


@cache
def _functions(path: str) -> frozenset[str]:
    tree = ast.parse((ROOT / path).read_text())
    return frozenset(node.name for node in tree.body if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef))


def test_every_claim_on_the_page_has_its_tests_and_no_test_is_of_another() -> None:
    assert {f"S{number}" for number in range(1, len(CLAIMS) + 1)} == set(CLAIMS), "numbered without a gap"
    assert set(TESTS) == set(CLAIMS)


@pytest.mark.parametrize("claim", TESTS)
def test_the_tests_of_a_claim_are_there(claim: str) -> None:
    assert TESTS[claim]
    for test in TESTS[claim]:
        path, _, name = test.partition("::")
        assert (ROOT / path).exists() and name in _functions(path), test
        assert name.startswith("test_")


def test_what_is_tested_here_is_claimed() -> None:
    """Of tests of this directory that are about the product, none is without a claim."""
    claimed = {test for tests in TESTS.values() for test in tests}
    about_themselves = {"test_claims.py"}
    for path in sorted((ROOT / "tests" / "security").glob("test_*.py")):
        relative = path.relative_to(ROOT).as_posix()
        if path.name not in about_themselves:
            found = {f"{relative}::{name}" for name in _functions(relative) if name.startswith("test_")}
            assert found & claimed, relative
