"""What a server loads at its start: not what only definitions and etcd need, which takes a fifth of it."""

from __future__ import annotations

import subprocess
import sys


def test_a_server_without_definitions_loads_neither_cel_nor_the_schema_compiler_nor_etcd() -> None:
    code = (
        "import sys, remuda.cli.serve, remuda.embedded\n"
        "late = ('remuda.apiserver.cel', 'remuda.apiserver.schema', 'remuda.apiserver.store.etcd')\n"
        "print([name for name in late if name in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True)
    assert done.stdout.strip() == "[]"
