"""Every case on record is answered as the real kube-apiserver did."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from .cases import CASES, Case, Obj
from .served import answer

RECORD: dict[str, Obj] = json.loads((Path(__file__).parent / "rules.json").read_text())


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.id)
def test_a_built_in_object_is_treated_as_the_real_server_does(case: Case) -> None:
    assert answer(case) == RECORD[case.id]
