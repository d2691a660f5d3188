"""`/clusterctl/`: clusterctl's repository of this server (:mod:`remuda.clusterctl.repository`), read-only.

clusterctl sends no credential for a template, and no file here has anything of this server's own. The templates are also at
`/clusterctl/<name>`, for `clusterctl generate cluster --from`.
"""

from __future__ import annotations

from functools import cache

from aiohttp import web

from remuda.clusterctl.repository import files, templates
from remuda.kube.errors import no_such_path

from ..server.dependencies import Services
from ..server.routing import Access, RequestContext


@cache
def served() -> dict[str, str]:
    """Everything that is served, by its path below `/clusterctl/`."""
    return {**files(), **templates()}


class ClusterctlRepository:
    def __init__(self, services: Services) -> None:
        services.routes.add("GET HEAD", "/clusterctl/{path*}", self.answer, Access.PUBLIC, largest=0, quiet=True)

    async def answer(self, asked: RequestContext) -> web.StreamResponse:
        text = served().get(asked.parameters["path"])
        if text is None:
            raise no_such_path()
        return web.Response(text=text, content_type="application/yaml")
