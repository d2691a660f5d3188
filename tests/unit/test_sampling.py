"""Every test has its turn, and the same commit always the same ones (:mod:`tests.sampling`)."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from tests.sampling import share, stories

TESTS = [f"tests/api/test_x.py::test_{number}" for number in range(200)]
COMMITS = [f"{number:040x}" for number in range(400)]


@given(st.sampled_from(COMMITS), st.permutations(TESTS))
def test_the_choice_depends_on_the_commit_and_not_on_the_order(commit: str, shuffled: list[str]) -> None:
    assert share(shuffled, 10, commit) == share(TESTS, 10, commit)
    assert stories(shuffled, 3, commit) == stories(TESTS, 3, commit)


def test_every_test_has_its_turn() -> None:
    assert set().union(*(share(TESTS, 10, commit) for commit in COMMITS)) == set(TESTS)
    few = TESTS[:30]
    assert set().union(*(stories(few, 3, commit) for commit in COMMITS)) == set(few)


def test_parts_do_not_overlap_and_stories_are_as_many_as_asked_for() -> None:
    parts = {frozenset(share(TESTS, 10, commit)) for commit in COMMITS}
    assert len(parts) == 10
    assert sum(map(len, parts)) == len(TESTS)
    assert all(len(stories(TESTS, 3, commit)) == 3 for commit in COMMITS)
    assert stories(TESTS[:2], 3, COMMITS[0]) == set(TESTS[:2])
