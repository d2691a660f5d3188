"""The drivers that come with Remuda, a module or package each; :mod:`remuda.machines.finding` knows them by name."""

from __future__ import annotations
