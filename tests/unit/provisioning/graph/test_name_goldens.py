"""Names and hashes as Rancher's own library makes them (tests/real/goldens/names made the answers)."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import Any

import pytest

from remuda.kube.encoding import gojson
from remuda.kube.wrangler import marks, safe_concat
from remuda.provisioning.well_known import template_hash

PAIRS = json.loads((Path(__file__).parent / "name_goldens.json").read_text())


def said(op: str) -> list[Any]:
    found = [pytest.param(each["case"], each["answer"], id=str(at)) for at, each in enumerate(PAIRS) if each["case"]["Op"] == op]
    assert found
    return found


@pytest.mark.parametrize(("case", "answer"), said("safe"))
def test_names_are_put_together_and_cut(case: dict[str, Any], answer: str) -> None:
    assert safe_concat(*case["Parts"]) == answer


@pytest.mark.parametrize(("case", "answer"), said("json"))
def test_text_is_written(case: dict[str, Any], answer: str) -> None:
    assert gojson.dumps(case["Value"]).decode() == answer


@pytest.mark.parametrize(("case", "answer"), said("template"))
def test_templates_are_hashed(case: dict[str, Any], answer: str) -> None:
    assert template_hash(case["Pool"], case["Value"]) == answer


@pytest.mark.parametrize(("case", "answer"), said("marks"))
def test_objects_are_marked(case: dict[str, Any], answer: str) -> None:
    set_id, api_version, kind, namespace, name = case["Parts"]
    owner = {"apiVersion": api_version, "kind": kind, "metadata": {"name": name, "namespace": namespace}}
    assert list(marks(set_id, owner)) == json.loads(answer)


@pytest.mark.parametrize(("case", "answer"), said("hex"))
def test_files_of_authorities_are_named(case: dict[str, Any], answer: str) -> None:
    """As the planner does for the CA of a snapshot's endpoint."""
    assert hashlib.md5(case["Parts"][0].encode(), usedforsecurity=False).hexdigest()[: case["Count"]] == answer
