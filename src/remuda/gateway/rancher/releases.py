"""`/v1-k3s-release` and `/v1-rke2-release`: the versions of a distribution with their arguments, and its channels.

Rancher's page builds the form of a new cluster from them. The data is that of the planner (:mod:`remuda.provisioning.releases`).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

from aiohttp import web

from remuda.provisioning.releases.catalog import Argument, Release
from remuda.provisioning.releases.distributions import K3S, RKE2, Runtime
from remuda.provisioning.releases.release_data import kept

from ..server import norman
from ..server.dependencies import Services
from ..server.routing import Access, Answer, RequestContext

Obj = dict[str, Any]

SERVED: Final = (K3S, RKE2)
# All versions that there are belong to all servers of this version of Rancher.
_EARLIEST, _LATEST = "v2.6.0", "v2.99.99"


def path_of(runtime: Runtime) -> str:
    return f"/v1-{runtime.name}-release"


class ReleaseApi:
    def __init__(self, services: Services) -> None:
        self._services = services
        for runtime in SERVED:
            for page, answer in (("releases", self._releases(runtime)), ("channels", self._channels(runtime))):
                services.routes.add("GET", f"{path_of(runtime)}/{page}", norman.told(answer), Access.USER, largest=0, quiet=True)

    def _releases(self, runtime: Runtime) -> Answer:
        async def answer(asked: RequestContext) -> web.StreamResponse:
            found = (await kept(self._services.client)).by_runtime.get(runtime.name, ())
            return self._collection(asked, runtime, "release", [_release(each) for each in found])

        return answer

    def _channels(self, runtime: Runtime) -> Answer:
        async def answer(asked: RequestContext) -> web.StreamResponse:
            versions = (await kept(self._services.client)).versions(runtime)
            chosen = self._services.settings().text(f"{runtime.name}-default-version")
            data = [
                {"id": name, "type": "channel", "name": name, "latest": latest}
                for name, latest in channels(versions, chosen).items()
            ]
            return self._collection(asked, runtime, "channel", data)

        return answer

    def _collection(self, asked: RequestContext, runtime: Runtime, type_: str, data: list[Obj]) -> web.Response:
        itself = f"{norman.base_url(asked, self._services)}{path_of(runtime)}/{type_}s"
        shown = [{**each, "links": {"self": f"{itself}/{each['id']}"}} for each in data]
        return norman.shown(norman.collection(type_, shown, itself))


def _release(release: Release) -> Obj:
    return {
        "id": release.version,
        "type": "release",
        "version": release.version,
        "minChannelServerVersion": _EARLIEST,
        "maxChannelServerVersion": _LATEST,
        "serverArgs": _arguments(release.server_arguments),
        "agentArgs": _arguments(release.agent_arguments),
        # Charts of a distribution are in its images.
        "charts": {},
        "featureVersions": dict(release.features),
    }


def _arguments(arguments: Mapping[str, Argument]) -> Obj:
    return {name: _argument(each) for name, each in sorted(arguments.items())}


def _argument(argument: Argument) -> Obj:
    found: Obj = {"type": argument.type or "string"}
    if argument.default is not None:
        found["default"] = argument.default
    return {**found, "options": list(argument.options)} if argument.options else found


def channels(versions: Sequence[str], chosen: str = "") -> dict[str, str]:
    """The newest version of each channel: of each minor version, of all (`latest`, `stable`), and the one that new clusters get
    (`default`: `chosen`, else the newest). `versions` begin with the oldest."""
    if not versions:
        return {}
    newest = versions[-1]
    by_minor = {".".join(version.split(".")[:2]): version for version in versions}
    return {"default": chosen or newest, "latest": newest, "stable": newest, **by_minor}
