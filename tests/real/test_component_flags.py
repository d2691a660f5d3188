"""The recorded flags of Kubernetes' components against the programs of the pinned version."""

from __future__ import annotations

import json
import re
import subprocess

import pytest

from tests.real import need
from tests.real.describe_component_flags import RECORD

pytestmark = [pytest.mark.real, pytest.mark.timeout(1800)]

# As help shows them: `-v, --v Level`, and no type for those that are true or false.
_SHOWN = re.compile(r"(?m)^ +(?:-\w, )?--([a-z0-9-]+)(?:\[=\S*\])?(?: (\S+))?")
_TYPES = {"bool": {""}, "int": {"int", "int32", "int64", "uint", "uint32", "uint64"}, "duration": {"duration"}}


@pytest.mark.parametrize("component", ["kube-apiserver", "kube-controller-manager"])
def test_the_record_has_every_flag_and_no_wrong_type(component: str) -> None:
    program = need.programs("kubernetes")[component]
    done = subprocess.run([program, "--help"], capture_output=True, text=True, check=True, timeout=120)
    shown = dict(_SHOWN.findall(done.stdout))
    record = json.loads(RECORD.read_text())
    known = {
        name: said
        for name, said in record["components"][component].items()
        if record["minors"][-1] in said.get("minors", record["minors"])
    }
    assert len(shown) > 100 and shown.keys() - known.keys() == set()
    wrong = {name: kind for name, kind in shown.items() if kind not in _TYPES.get(known[name].get("type", ""), {kind})}
    assert wrong == {}
