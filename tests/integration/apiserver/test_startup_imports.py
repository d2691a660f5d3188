"""What a program loads at its start: not what only definitions and etcd need, which takes a fifth of it."""

from __future__ import annotations

import subprocess
import sys

import pytest

_LATE = (".v1", ".v1alpha1", ".v3", ".kinds")


def test_a_server_without_definitions_loads_neither_cel_nor_the_schema_compiler_nor_etcd() -> None:
    code = (
        "import sys, remuda.cli.programs.serve, remuda.app.embedded\n"
        "late = ('remuda.apiserver.cel', 'remuda.apiserver.schema', 'remuda.apiserver.storage.etcd')\n"
        "print([name for name in late if name in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True)
    assert done.stdout.strip() == "[]"


@pytest.mark.parametrize(
    ("imports", "below", "late"),
    [
        ("from remuda.api.management_cattle_io import CLUSTERS; import remuda.api.provisioning_cattle_io", "", _LATE),
        ("from remuda.api.rke_cattle_io import RKE_CLUSTERS; import remuda.api.plan_cattle_io", "", _LATE),
        ("from remuda import api; from remuda.api.cluster_x_k8s_io import MACHINES", "cluster_x_k8s_io.v1beta", ""),
    ],
    ids=["rancher", "rke", "capi"],
)
def test_types_are_read_when_definitions_are_asked_for_not_before(imports: str, below: str, late: str | tuple[str, ...]) -> None:
    program = (
        f"import sys; {imports}\n"
        f"found = [name for name in sys.modules if name.startswith('remuda.api.{below}') and name.endswith({late!r})]\n"
        "assert not found, found"
    )
    subprocess.run([sys.executable, "-c", program], check=True)
