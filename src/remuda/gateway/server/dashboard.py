"""The web page at `/dashboard`, and the way of browsers to it.

The page is files that `make page` builds from `page/` into `gateway/page` ([page.md](page.md)); its address in the browser names
the view, so every path that is no file answers with `index.html`. Files have names without hashes: the address of each has the
digest of the whole build instead, so that browsers keep files for ever and never mix two builds. A page that is still open after
an upgrade asks for files of the old build, gets 404, and loads itself anew.
"""

from __future__ import annotations

import asyncio
import gzip
import hashlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from importlib.resources.abc import Traversable
from pathlib import PurePosixPath
from typing import Final

from aiohttp import web

from remuda.kube.errors import no_such_path

from .dependencies import Services
from .path_validation import Target
from .routing import Access, RequestContext

HOME: Final = "/dashboard/"
INDEX: Final = "index.html"
# The hash of the sources, for `make lint`: not for browsers.
SOURCES: Final = "sources.sha256"
_BUILD: Final = "_"
# How a build names its own files in index.html.
_RELATIVE: Final = b'="./'
_KINDS: Final = {
    ".html": "text/html; charset=utf-8",
    ".js": "text/javascript; charset=utf-8",
    ".css": "text/css; charset=utf-8",
    ".svg": "image/svg+xml",
}
_FOR_EVER: Final = "public, max-age=31536000, immutable"
_ASK_AGAIN: Final = "no-cache"


@dataclass(frozen=True, slots=True)
class File:
    """One file of the page as it is sent; `packed` is its gzip form."""

    content: bytes
    packed: bytes
    kind: str
    tag: str
    caching: str


@dataclass(frozen=True, slots=True)
class Page:
    """A build: its digest, its index, and its other files by their path."""

    digest: str
    index: File
    files: Mapping[str, File]

    def at(self, path: str) -> File | None:
        """The file at a path below `/dashboard/`; None for one of another build."""
        first, _, rest = path.partition("/")
        if first != _BUILD:
            return self.index
        digest, _, name = rest.partition("/")
        return self.files.get(name) if digest == self.digest else None


@cache
def built() -> Page:
    """The build in this package. Reading and compressing it takes a moment the first time."""
    return page_of(dict(_walk(files("remuda.gateway") / "page")))


def page_of(contents: Mapping[str, bytes]) -> Page:
    found = {path: content for path, content in sorted(contents.items()) if path != SOURCES}
    whole = hashlib.sha256()
    for path, content in found.items():
        whole.update(f"{path}\0{len(content)}\0".encode() + content)
    digest = whole.hexdigest()[:16]
    index = found.pop(INDEX).replace(_RELATIVE, f'="{HOME}{_BUILD}/{digest}/'.encode())
    return Page(digest, _file(INDEX, index, _ASK_AGAIN), {path: _file(path, found[path], _FOR_EVER) for path in found})


def _file(path: str, content: bytes, caching: str) -> File:
    kind = _KINDS[PurePosixPath(path).suffix]
    return File(content, gzip.compress(content, mtime=0), kind, hashlib.sha256(content).hexdigest()[:32], caching)


def _walk(directory: Traversable, before: str = "") -> Iterator[tuple[str, bytes]]:
    for each in directory.iterdir():
        if each.is_dir():
            yield from _walk(each, f"{before}{each.name}/")
        else:
            yield before + each.name, each.read_bytes()


class Dashboard:
    """Another dashboard would take the same route."""

    def __init__(self, services: Services) -> None:
        services.routes.add("GET HEAD", "/dashboard/{path*}", self.answer, Access.PUBLIC, largest=0, quiet=True)

    async def answer(self, asked: RequestContext) -> web.StreamResponse:
        if asked.target.path == HOME.rstrip("/"):
            return web.Response(status=308, headers={"Location": HOME, "Cache-Control": _ASK_AGAIN})
        page = await asyncio.to_thread(built)
        found = page.at(asked.parameters["path"])
        if found is None:
            raise no_such_path()
        return sent(found, asked.request.headers)


def sent(found: File, headers: Mapping[str, str]) -> web.Response:
    """The file as the client takes it; 304 if it has this one."""
    packed = any(each.partition(";")[0].strip() == "gzip" for each in headers.get("Accept-Encoding", "").split(","))
    tag = f'"{found.tag}-gzip"' if packed else f'"{found.tag}"'
    said = {"ETag": tag, "Cache-Control": found.caching, "Vary": "Accept-Encoding"}
    if tag in (each.strip().removeprefix("W/") for each in headers.get("If-None-Match", "").split(",")):
        return web.Response(status=304, headers=said)
    if packed:
        said["Content-Encoding"] = "gzip"
    return web.Response(body=found.packed if packed else found.content, headers={**said, "Content-Type": found.kind})


def is_visit(method: str, target: Target, accepted: str) -> bool:
    """Tells whether a browser visits the server at `/`, which is the Kubernetes API for all other clients."""
    kinds = {each.partition(";")[0].strip().lower() for each in accepted.split(",")}
    return method in ("GET", "HEAD") and target.path == "/" and "text/html" in kinds


def to_home() -> web.Response:
    return web.Response(status=302, headers={"Location": HOME, "Cache-Control": "no-store", "Vary": "Accept"})
