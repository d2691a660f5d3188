"""Tables look as the real kube-apiserver prints them."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from remuda.apiserver.builtin.registration import strategy_for
from remuda.apiserver.registry.strategy import cell as cell_of
from remuda.apiserver.registry.strategy import wire_format
from remuda.kube.duration import seconds_of

from .cases import KINDS, Obj
from .rows import ROWS, Row

RECORD: dict[str, Obj] = json.loads((Path(__file__).parent / "rows.json").read_text())


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row.id)
def test_a_row_is_printed_as_the_real_server_does(row: Row) -> None:
    kind, record = KINDS[row.kind], RECORD[row.id]
    strategy = strategy_for(kind.group, kind.version, kind.kind)
    obj = record["object"]
    now = seconds_of(obj["metadata"]["creationTimestamp"])
    assert now is not None
    cells = [cell_of(column, obj, now) for column in strategy.columns]
    defined = [{"name": c.name, "type": c.type, "format": wire_format(c), "priority": c.priority} for c in strategy.columns]
    assert defined == record["columns"]
    assert ["AGE" if cell == "0s" else cell for cell in cells] == record["cells"]
