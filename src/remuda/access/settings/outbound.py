"""The policy for outbound connections that holds at this moment, for controllers: :mod:`remuda.kube.network.outbound` by the
setting.
"""

from __future__ import annotations

from collections.abc import Mapping

from remuda.api.management_cattle_io import SETTINGS
from remuda.kube.network.outbound_http import Current
from remuda.runtime import Informers

from .settings import Settings


def for_administrators(informers: Informers, environment: Mapping[str, str]) -> Current:
    """For addresses that only administrators name."""
    settings = informers.of(SETTINGS)
    return lambda: Settings(settings.objects(), environment).administrators_outbound()
