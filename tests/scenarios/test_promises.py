"""Every promise names tests that there are, on both back ends."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from .promises import ON_KUBERNETES, ON_OUR_OWN, PROMISES, PURE

TESTS = Path(__file__).parents[1]


@pytest.mark.parametrize("promise", PROMISES)
def test_a_promise_is_kept_by_tests_that_are_there(promise: str) -> None:
    for proof in PROMISES[promise]:
        file, _, name = proof.partition("::")
        assert re.search(rf"^(async )?def {name}\(", (TESTS / file).read_text(), re.MULTILINE), proof


@pytest.mark.parametrize("promise", [each for each in PROMISES if each not in PURE])
def test_a_promise_is_kept_on_both_back_ends(promise: str) -> None:
    proofs = PROMISES[promise]
    assert any(proof.startswith(ON_OUR_OWN) for proof in proofs)
    assert any(proof in ON_KUBERNETES for proof in proofs)
