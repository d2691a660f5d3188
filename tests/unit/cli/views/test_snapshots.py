"""Backups in a table: one line each, with where its copies are."""

from __future__ import annotations

import pytest

from remuda.cli.views.output import Output
from remuda.cli.views.snapshots import rows, size
from remuda.provisioning.etcd.snapshot_sets import SnapshotCopy, SnapshotSet

NOW = 10_000.0


def test_copies_are_named_by_their_nodes_and_what_is_wrong_with_them() -> None:
    copies = (
        SnapshotCopy("a", "f-n1", "local", "available", 100.0, 3 << 20, node="n1", version="v1.34.1+k3s1"),
        SnapshotCopy("b", "f-n2", "local", "missing", 100.0, node="n2", message="its host is off"),
        SnapshotCopy("c", "f-n1", "s3", "failed", 100.0, node="n1", message="access denied"),
    )
    (row,) = rows([SnapshotSet("f-100", "fleet-default", "demo", 100.0, copies)], NOW, Output())
    assert row == [
        "f-100",
        "demo",
        "available",
        "165m",
        "3.0Mi",
        "v1.34.1+k3s1",
        "n1,n2(missing),s3(failed)",
        "fleet-default",
        "its host is off; access denied",
    ]


@pytest.mark.parametrize(("count", "text"), [(0, "-"), (100, "100"), (1536, "1.5Ki"), (5 << 30, "5.0Gi")])
def test_sizes_have_one_decimal(count: int, text: str) -> None:
    assert size(count) == text
