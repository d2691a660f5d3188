"""`/v2/`: our own images for clusters that we provision, by the OCI distribution protocol, read-only.

Pulling needs no credential: our images contain only our sources, and a node has no token of ours when it needs its first one.
Every answer is a file of a layout that `make images` wrote (:mod:`remuda.images.layout`), sent from disk in pieces. Missing
installers of our own distribution are made at the first request for one (:mod:`remuda.images.installer`).
"""

from __future__ import annotations

import asyncio
import logging
import re
from pathlib import Path
from urllib.parse import parse_qs, urlencode

from aiohttp import web

from remuda.images import Layout, LayoutError, images_directory, installer
from remuda.kube.encoding import jsonio

from .dependencies import Services
from .routing import Access, RequestContext

log = logging.getLogger(__name__)

_NAME = re.compile(r"[a-z0-9]+(?:(?:\.|_|__|-+)[a-z0-9]+)*(?:/[a-z0-9]+(?:(?:\.|_|__|-+)[a-z0-9]+)*)*")
_TAG = re.compile(r"[A-Za-z0-9_][A-Za-z0-9._-]{0,127}")
_DIGEST = re.compile(r"[a-z0-9]+:[A-Fa-f0-9]{32,128}")
_LONGEST_NAME = 255
_MOST_TAGS = 1000
_VERSION = {"Docker-Distribution-API-Version": "registry/2.0"}
# Content named by its digest never changes.
_FOR_EVER = {"Cache-Control": "public, max-age=31536000, immutable"}


class ImageRegistry:
    """`directory` has a layout for each repository, at the path that is its name."""

    def __init__(self, services: Services, directory: Path | None = None) -> None:
        self._directory = directory or images_directory(services.environment)
        self._environment = services.environment
        self._making = asyncio.Lock()
        self._made = False
        services.routes.add("GET HEAD", "/v2/{path*}", self.answer, Access.PUBLIC, largest=0, quiet=True)
        services.routes.add("*", "/v2/{path*}", self.refuse, Access.PUBLIC, largest=0)

    async def answer(self, asked: RequestContext) -> web.StreamResponse:
        path = asked.parameters["path"]
        if not path:
            return _json({})
        name, kind, reference = _split(path)
        if not _NAME.fullmatch(name) or len(name) > _LONGEST_NAME:
            return _error(404, "NAME_UNKNOWN", "no repository has this name")
        layout = Layout(self._directory / name)
        if name == installer.REPOSITORY and not await self._have_installers():
            return _error(404, "NAME_UNKNOWN", "this server could not make the image; its log says why")
        if not layout.exists():
            return _error(404, "NAME_UNKNOWN", "no repository has this name")
        try:
            if kind == "tags":
                return _tags(layout, name, asked.target.query)
            if kind == "manifests":
                return _manifest(layout, reference)
            return _blob(layout, reference)
        except LayoutError:
            # The error's text names files of this machine.
            return _error(404, "NAME_UNKNOWN", "the repository can't be read")

    async def _have_installers(self) -> bool:
        if self._made:
            return True
        async with self._making:
            try:
                await asyncio.to_thread(installer.ensure, self._directory, self._environment)
            except (installer.InstallerError, OSError) as error:
                log.warning("the installer images can't be made: %s", error)
                return False
            self._made = True
            return True

    async def refuse(self, asked: RequestContext) -> web.StreamResponse:
        refusal = _error(405, "UNSUPPORTED", "this registry is read-only")
        refusal.headers["Allow"] = "GET, HEAD"
        return refusal


def _split(path: str) -> tuple[str, str, str]:
    """Repository, kind, and reference; the name of a repository may have slashes. All are empty for another path."""
    parts = path.split("/")
    if len(parts) >= 3 and parts[-2] in ("manifests", "blobs"):
        return "/".join(parts[:-2]), parts[-2], parts[-1]
    if len(parts) >= 3 and parts[-2:] == ["tags", "list"]:
        return "/".join(parts[:-2]), "tags", ""
    return "", "", ""


def _manifest(layout: Layout, reference: str) -> web.StreamResponse:
    found = layout.manifest(reference) if _TAG.fullmatch(reference) or _DIGEST.fullmatch(reference) else None
    if found is None:
        return _error(404, "MANIFEST_UNKNOWN", "the repository has no such manifest")
    headers = {**_VERSION, "Content-Type": found.media_type, "Docker-Content-Digest": found.digest, "ETag": f'"{found.digest}"'}
    return web.Response(body=found.content, headers=headers | (_FOR_EVER if reference == found.digest else {}))


def _blob(layout: Layout, digest: str) -> web.StreamResponse:
    if not _DIGEST.fullmatch(digest):
        return _error(400, "DIGEST_INVALID", "this is not a digest")
    path = layout.blob(digest)
    if path is None:
        return _error(404, "BLOB_UNKNOWN", "the repository has no such blob")
    headers = {**_VERSION, **_FOR_EVER, "Content-Type": "application/octet-stream", "Docker-Content-Digest": digest}
    return web.FileResponse(path, headers=headers)


def _tags(layout: Layout, name: str, query: str) -> web.StreamResponse:
    asked = parse_qs(query, max_num_fields=10) if query.count("&") < 10 else {}
    wanted = asked.get("n", [""])[0]
    if wanted and not (wanted.isascii() and wanted.isdigit() and len(wanted) < 10):
        return _error(400, "PAGINATION_NUMBER_INVALID", "n is not a number")
    most = min(int(wanted or _MOST_TAGS), _MOST_TAGS)
    after = asked.get("last", [""])[0]
    tags = sorted(tag for tag in layout.tags() if tag > after)
    response = _json({"name": name, "tags": tags[:most]})
    if 0 < most < len(tags):
        following = urlencode({"n": most, "last": tags[most - 1]})
        response.headers["Link"] = f'</v2/{name}/tags/list?{following}>; rel="next"'
    return response


def _json(value: object, status: int = 200) -> web.Response:
    return web.Response(status=status, body=jsonio.dumps(value), headers={**_VERSION, "Content-Type": "application/json"})


def _error(status: int, code: str, message: str) -> web.Response:
    return _json({"errors": [{"code": code, "message": message, "detail": None}]}, status)
