"""`/v1-remuda/versions`: the Kubernetes versions that this server has release data of, for every user (`remuda versions`)."""

from __future__ import annotations

from typing import Final

from aiohttp import web

from remuda.provisioning.releases import distributions
from remuda.provisioning.releases.release_data import kept

from . import norman
from .dependencies import Services
from .routing import RequestContext, Who

PATH: Final = "/v1-remuda/versions"


class Versions:
    def __init__(self, services: Services) -> None:
        self._client = services.client
        services.routes.add("GET", PATH, self.read, Who.USER, largest=0, quiet=True)

    async def read(self, asked: RequestContext) -> web.StreamResponse:
        """By distribution, the oldest first."""
        releases = await kept(self._client)
        return norman.shown({"versions": {each.name: list(releases.versions(each)) for each in distributions.ALL}})
