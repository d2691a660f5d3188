"""The drivers that come with Remuda, a module or package each; :mod:`remuda.machines.driver_registry` knows them by name."""

from __future__ import annotations
