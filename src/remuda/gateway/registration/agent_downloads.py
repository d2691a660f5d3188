"""Downloads for hosts: the install script, the agent in one file, and the uninstall script.

They need no credential: none contains a secret. Files below `/assets/` have fixed names. The agent is built once from the
sources that this server runs. Binaries of the original agent, for hosts without Python, are served if an administrator puts them
into `assets` of the data directory, under the names of its own releases.
"""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Final

from aiohttp import web

from remuda.agent.install import ARCHIVE, build, install_script, uninstall_script
from remuda.kube.errors import no_such_path

from ..server import norman
from ..server.dependencies import Services
from ..server.routing import Access, RequestContext
from ..server.serving_certificate import ca_checksum, ca_text

UNINSTALL: Final = "system-agent-uninstall.sh"
SUMS: Final = "sha256sum.txt"
BINARIES: Final = tuple(f"rancher-system-agent-{arch}" for arch in ("amd64", "arm64", "arm", "s390x"))
_SCRIPT, _BINARY = "text/plain", "application/octet-stream"
_WINDOWS = """\
Write-Error 'This server can not install nodes that run Windows.'
exit 1
"""


@dataclass(frozen=True, slots=True)
class Asset:
    content: bytes
    kind: str

    @property
    def checksum(self) -> str:
        return hashlib.sha256(self.content).hexdigest()


@cache
def assets() -> dict[str, Asset]:
    """The assets that this server has by itself. Building takes a moment the first time."""
    return {ARCHIVE: Asset(build(), _BINARY), UNINSTALL: Asset(uninstall_script().encode(), _SCRIPT)}


class AgentFiles:
    def __init__(self, services: Services) -> None:
        self._services = services
        add = services.routes.add
        add("GET HEAD", "/system-agent-install.sh", self.install, Access.PUBLIC, largest=0, quiet=True)
        add("GET HEAD", f"/{UNINSTALL}", self.uninstall, Access.PUBLIC, largest=0, quiet=True)
        add("GET HEAD", "/wins-agent-install.ps1", self.windows, Access.PUBLIC, largest=0, quiet=True)
        add("GET HEAD", "/assets/{name}", self.asset, Access.PUBLIC, largest=0, quiet=True)

    async def install(self, asked: RequestContext) -> web.StreamResponse:
        await asyncio.to_thread(assets)
        text = script(self._services, norman.base_url(asked, self._services), checksum=assets()[ARCHIVE].checksum)
        # It contains this server's address and CA, which may change.
        return web.Response(text=text, headers={"Cache-Control": "no-store"})

    async def uninstall(self, asked: RequestContext) -> web.StreamResponse:
        return web.Response(text=uninstall_script())

    async def windows(self, asked: RequestContext) -> web.StreamResponse:
        """Tells users of the command for Windows that it is not supported, and runs nothing."""
        return web.Response(text=_WINDOWS)

    async def asset(self, asked: RequestContext) -> web.StreamResponse:
        name = asked.parameters["name"]
        found = await asyncio.to_thread(assets)
        if name in found:
            return _sent(asked, found[name])
        if name == SUMS:
            return web.Response(text="".join(f"{each.checksum}  {name}\n" for name, each in sorted(found.items())))
        if name in BINARIES and (path := _binaries(self._services).get(name)) is not None:
            return web.FileResponse(path, headers={"Content-Type": _BINARY})
        raise no_such_path()


def script(
    services: Services, server: str, bootstrap_token: str = "", env: Iterable[tuple[str, str]] = (), checksum: str = ""
) -> str:
    """The script for any host, or with a token for one machine's host; `env` is the environment of the cluster's agents.

    `checksum` is the agent's, for a script that is used at once: a stored script may be older than the agent that it fetches.
    """
    settings = services.settings()
    return install_script(
        server=server,
        base_url=f"{server}/assets",
        ca_checksum=ca_checksum(ca_text(settings.text("cacerts") or services.authority.ca)),
        env=env,
        strict=settings.text("agent-tls-mode") == "strict",
        bootstrap_token=bootstrap_token,
        checksum=checksum,
        fallback_url=f"{server}/assets/rancher-system-agent-{{arch}}" if _binaries(services) else "",
    )


def _binaries(services: Services) -> dict[str, Path]:
    """Binaries of the original agent, where an administrator put some."""
    if services.data_dir is None:
        return {}
    places = {name: services.data_dir / "assets" / name for name in BINARIES}
    return {name: path for name, path in places.items() if path.is_file()}


def _sent(asked: RequestContext, found: Asset) -> web.StreamResponse:
    tag = f'"{found.checksum}"'
    headers = {"ETag": tag, "Cache-Control": "no-cache"}
    known = asked.request.headers.get("If-None-Match", "")
    if tag in (each.strip().removeprefix("W/") for each in known.split(",")):
        return web.Response(status=304, headers=headers)
    return web.Response(body=found.content, headers={**headers, "Content-Type": found.kind})
