"""Conditions summed and merged as the code of Cluster API itself does it (tests/real/goldens/conditions made the answers)."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from remuda.kube.condition_summaries import aggregate, legacy_aggregate, legacy_summary, summary
from remuda.kube.conditions import ConditionConflict, merged

Obj = dict[str, Any]
PAIRS = json.loads((Path(__file__).parent / "condition_goldens.json").read_text())


def answer(case: Obj) -> Any:
    machines, kinds, negative = case.get("Machines") or [], case["Kinds"], case["Negative"]
    match case["Op"]:
        case "summary":
            found: Any = summary(machines[0], kinds, negative=negative, optional=case["Optional"])
        case "aggregate":
            found = aggregate(machines, kinds[0], negative=bool(negative))
        case "legacysummary":
            found = legacy_summary(machines[0], kinds, negative=negative, steps=case["Steps"])
        case "legacyaggregate":
            found = legacy_aggregate(machines, source=True)
        case _:
            return merged(case["Before"], case["After"], case["Latest"], owned=case["Owned"])
    if found is None:
        return ("", "", "", "")
    return (*found[:3], getattr(found, "severity", ""))


@pytest.mark.parametrize("pair", PAIRS, ids=lambda pair: pair["case"]["Op"])
def test_the_answer_is_cluster_apis(pair: Obj) -> None:
    wanted = pair["answer"]
    if wanted["Err"]:
        with pytest.raises((ConditionConflict, ValueError)):
            answer(pair["case"])
    elif pair["case"]["Op"] == "merge":
        assert answer(pair["case"]) == (wanted["Conditions"] or [])
    else:
        assert answer(pair["case"]) == tuple(wanted[field] for field in ("Status", "Reason", "Message", "Severity"))
