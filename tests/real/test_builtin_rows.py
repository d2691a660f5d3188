"""The tables that kube-apiserver prints for the objects of `tests/unit/apiserver/builtin/rows.py` are those on record.

`REMUDA_RECORD=1` writes the record anew.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.real import need
from tests.real.cluster import RealCluster
from tests.real.test_builtin_rules import HEEDED
from tests.unit.apiserver.builtin.cases import KINDS, Obj, merged
from tests.unit.apiserver.builtin.rows import ROWS, Row

pytestmark = [pytest.mark.real, pytest.mark.timeout(600)]

RECORD = Path(__file__).parents[1] / "unit" / "apiserver" / "builtin" / "rows.json"
_TABLE = {"Accept": "application/json;as=Table;v=v1;g=meta.k8s.io"}
_YOUNG = re.compile(r"[0-9]+s")
# What differs from run to run: the ages of things that are years old, times of creation, and uids.
# A fixed day gets older while the project does: in days at first, in years and days later, and once a year in years only.
_DATED = re.compile(r"\d+y(?:\d+d)?|(?<=\")\d{3}d(?=\")|\d{4}-\d\d-\d\dT[\d:]+Z|[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}")


@pytest.fixture(scope="module")
def cluster() -> Iterator[RealCluster]:
    need.programs("kubernetes", "etcd")
    with RealCluster(fsync=False) as cluster:
        account = {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": "default"}}
        code, answer = cluster.request("POST", "/api/v1/namespaces/default/serviceaccounts", account)
        assert code == 201, answer
        yield cluster


def real_table(cluster: RealCluster, row: Row) -> Obj:
    kind = KINDS[row.kind]
    code, obj = cluster.request("POST", kind.path, merged(kind.base, row.change))
    assert code == 201, obj
    path = f"{kind.path}/{obj['metadata']['name']}"
    if row.status is not None:
        code, obj = cluster.request("PUT", f"{path}/status", merged(obj, {"status": row.status}))
        assert code == 200, obj
    _, table = cluster.request("GET", path, headers=_TABLE)
    cluster.request("DELETE", f"{path}?gracePeriodSeconds=0&propagationPolicy=Background")
    shown = ("name", "type", "format", "priority")
    columns = [{field: column[field] for field in shown} for column in table["columnDefinitions"]]
    cells = ["AGE" if isinstance(c, str) and _YOUNG.fullmatch(c) else c for c in table["rows"][0]["cells"]]
    obj["metadata"].pop("managedFields", None)
    return {"columns": columns, "cells": cells, "object": obj}


def _essence(record: dict[str, Obj]) -> dict[str, Obj]:
    return {
        name: {"columns": each["columns"], "cells": _DATED.sub("TIME", json.dumps(each["cells"]))}
        for name, each in record.items()
    }


def test_the_record_is_what_the_real_server_prints(cluster: RealCluster) -> None:
    tables = {}
    for row in sorted(ROWS, key=lambda row: row.kind in HEEDED):
        name = KINDS[row.kind].base["metadata"]["name"]
        assert name == "x"
        tables[row.id] = real_table(cluster, row)
        if row.kind in ("Namespace", "PersistentVolume", "PersistentVolumeClaim"):
            _release(cluster, row)
    if os.environ.get("REMUDA_RECORD") == "1":
        RECORD.write_text(json.dumps(tables, indent=1, sort_keys=True) + "\n")
    assert _essence(tables) == _essence(json.loads(RECORD.read_text()))


def _release(cluster: RealCluster, row: Row) -> None:
    """No controller is there to take the finalizers away."""
    path = f"{KINDS[row.kind].path}/x"
    code, obj = cluster.request("GET", path)
    if code != 200:
        return
    obj["metadata"].pop("finalizers", None)
    obj.setdefault("spec", {})["finalizers"] = []
    cluster.request("PUT", f"{path}/finalize" if row.kind == "Namespace" else path, obj)
