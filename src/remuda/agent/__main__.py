"""``python -m remuda.agent``."""

from __future__ import annotations

from .cli import run

run()
