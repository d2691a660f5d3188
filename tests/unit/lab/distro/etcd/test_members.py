"""Which members of etcd may go, and what a new one is told."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from remuda.lab.distro.etcd.client import Member
from remuda.lab.distro.etcd.members import NotNow, cluster_of, quorum, removal


def member(number: int, *, learner: bool = False, named: bool = True) -> Member:
    name = f"m{number}" if named else ""
    return Member(number, name, (f"https://10.0.0.{number}:2380",), (f"https://10.0.0.{number}:2379",), learner)


THREE = [member(1), member(2), member(3)]


def test_one_of_three_may_go_when_the_others_are_well() -> None:
    assert removal(THREE, "m2", {1, 3}).member == THREE[1]
    # Also a dead one: it is what removal is for.
    assert removal(THREE, "m2", {1, 2, 3}).member == THREE[1]


def test_no_member_leaves_when_too_few_that_answer_would_remain() -> None:
    found = removal(THREE, "m2", {2, 3})
    assert found.member is None and "2 must answer, and 1 do" in found.why


def test_the_last_one_stays() -> None:
    found = removal([member(1)], "m1", {1})
    assert found.is_last and found.member is None
    # Learners hold nothing together.
    assert removal([member(1), member(2, learner=True)], "m1", {1, 2}).is_last


def test_a_learner_may_always_leave_and_a_missing_member_is_gone() -> None:
    assert removal([member(1), member(2, learner=True)], "m2", set()).member is not None
    gone = removal(THREE, "m9", {1, 2, 3})
    assert gone.member is None and not gone.why


@given(st.integers(1, 7), st.sets(st.integers(1, 7)), st.integers(1, 7))
def test_what_is_left_always_has_a_quorum_that_is_alive(count: int, alive: set[int], leaving: int) -> None:
    members = [member(number) for number in range(1, count + 1)]
    found = removal(members, f"m{leaving}", alive)
    if found.member is not None:
        left = {each.id for each in members} - {leaving}
        assert left and len(left & alive) >= quorum(len(left))


def test_a_new_member_is_told_all_others() -> None:
    new = member(4, named=False, learner=True)
    found = cluster_of([*THREE, new], "m4", "https://10.0.0.4:2380")
    assert found == {f"m{number}": f"https://10.0.0.{number}:2380" for number in (1, 2, 3, 4)}
    with pytest.raises(NotNow):
        cluster_of([member(1), member(2, named=False), new], "m4", "https://10.0.0.4:2380")
