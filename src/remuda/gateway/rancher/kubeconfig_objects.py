"""`POST /v1/ext.cattle.io.kubeconfigs`: a kubeconfig for some clusters, as Rancher's pages ask for it. It is not stored.

:mod:`remuda.gateway.auth.kubeconfigs` makes it, and with it a token of the caller.
"""

from __future__ import annotations

from typing import Any, Final

from aiohttp import web

from ..auth.kubeconfigs import Kubeconfigs
from ..server import norman
from ..server.dependencies import Services
from ..server.routing import Access, RequestContext

Obj = dict[str, Any]

TYPE: Final = "ext.cattle.io.kubeconfig"
PATH: Final = f"/v1/{TYPE}s"
_EVERY: Final = "*"
_LONGEST_TTL: Final = 1 << 31


class KubeconfigObjects:
    def __init__(self, services: Services, kubeconfigs: Kubeconfigs) -> None:
        self._services = services
        self._kubeconfigs = kubeconfigs
        for path in (PATH, PATH.removesuffix("s")):
            services.routes.add("POST", path, norman.told(self.create), Access.USER, largest=norman.LARGEST_BODY)

    async def create(self, asked: RequestContext) -> web.StreamResponse:
        spec = (await norman.body_of(asked)).get("spec")
        if not isinstance(spec, dict):
            raise norman.invalid("spec is missing")
        wanted = spec.get("clusters")
        if not isinstance(wanted, list) or not wanted or not all(isinstance(name, str) for name in wanted):
            raise norman.invalid("spec.clusters must be a list of names, or of * alone")
        names = None if _EVERY in wanted else wanted
        with_server = norman.flag_of(spec, "includeDefaultEntry") is True
        text = await self._kubeconfigs.text_for(asked, names, server=with_server, seconds=_seconds(spec))
        name = f"kubeconfig-{self._services.entropy.token_text(5)}"
        shown = {
            "id": name,
            "type": TYPE,
            "links": {},
            "actions": {},
            "apiVersion": "ext.cattle.io/v1",
            "kind": "Kubeconfig",
            "metadata": {"name": name},
            "spec": {"clusters": wanted, "includeDefaultEntry": with_server},
            "status": {"summary": "Complete", "value": text},
        }
        return norman.shown(shown, 201)


def _seconds(spec: Obj) -> float:
    """The wanted lifetime of the token; 0 for the one that settings say."""
    value = spec.get("ttl")
    if value is None:
        return 0.0
    if isinstance(value, bool) or not isinstance(value, int) or not 0 <= value < _LONGEST_TTL:
        raise norman.invalid("spec.ttl must be a number of seconds, 0 or more")
    return float(value)
