"""Non-resource paths: discovery, OpenAPI, health, version, metrics, token keys."""

from __future__ import annotations

import platform
import sys
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, Protocol

import msgspec
from aiohttp import web

from remuda import __version__
from remuda.kube import errors
from remuda.kube.authorization.users import User
from remuda.kube.encoding import jsonio

from ..auth.token_keys import KEYS_PATH, TokenKeys, openid_configuration
from ..cache.watch_cache import WatchCache
from ..discovery.documents import Discovery
from ..discovery.openapi import OpenApi
from ..registry.resources import Registry
from . import negotiation, responses
from .metrics import Metrics
from .paths import Target

if TYPE_CHECKING:
    from .handler import Handler

Obj = dict[str, Any]

# The Kubernetes API that we speak; clients choose their behaviour by it.
KUBERNETES_MAJOR, KUBERNETES_MINOR, KUBERNETES_PATCH = "1", "36", "3"


_HEALTH = ("healthz", "livez", "readyz")
_EMPTY_V2: Obj = {"swagger": "2.0", "info": {"title": "Kubernetes", "version": f"v{__version__}"}, "paths": {}}
_V2_PROTOBUF = "application/com.github.proto-openapi.spec.v2.v1.0+protobuf"
# The same, as far as its readers look: field 1 is the version of OpenAPI.
_EMPTY_V2_PROTOBUF = b"\x0a\x032.0"


def version_info() -> Obj:
    return {
        "major": KUBERNETES_MAJOR,
        "minor": KUBERNETES_MINOR,
        "emulationMajor": KUBERNETES_MAJOR,
        "emulationMinor": KUBERNETES_MINOR,
        "minCompatibilityMajor": KUBERNETES_MAJOR,
        "minCompatibilityMinor": str(int(KUBERNETES_MINOR) - 1),
        "gitVersion": f"v{KUBERNETES_MAJOR}.{KUBERNETES_MINOR}.{KUBERNETES_PATCH}+remuda-{__version__}",
        "gitCommit": "",
        "gitTreeState": "clean",
        "buildDate": "1970-01-01T00:00:00Z",
        "goVersion": f"python{platform.python_version()}",
        "compiler": platform.python_implementation().lower(),
        "platform": f"{sys.platform}/{platform.machine()}",
    }


class _BackgroundTasks(Protocol):
    @property
    def store_answers(self) -> bool: ...


class _Server(Protocol):
    """The parts of a server that these paths describe."""

    registry: Registry
    cache: WatchCache
    metrics: Metrics
    handler: Handler
    draining: bool

    @property
    def url(self) -> str: ...
    @property
    def background(self) -> _BackgroundTasks: ...


class NonResourcePaths:
    def __init__(self, server: _Server, token_keys: TokenKeys, issuer: str) -> None:
        self._server = server
        self._keys = token_keys
        self._issuer = issuer
        self._discovery = Discovery(server.registry)
        self._openapi = OpenApi(server.registry, self._discovery)

    def register(self, handler: Handler) -> None:
        handler.paths.update(
            {
                "": self._root,
                "/": self._root,
                "/api": self._api,
                "/apis": self._apis,
                "/version": self._version,
                "/metrics": self._metrics,
                "/openapi/v2": self._openapi_v2,
                "/openapi/v3": self._openapi_index,
                "/.well-known/openid-configuration": self._openid,
                "/openid/v1/jwks": self._jwks,
            }
        )
        handler.prefixes.update(
            {
                "/api/": self._core_version,
                "/apis/": self._group,
                "/openapi/v3/": self._openapi_document,
            }
        )
        for name in _HEALTH:
            handler.paths[f"/{name}"] = self._health
            handler.prefixes[f"/{name}/"] = self._health

    def raw(self, path: str) -> Any:
        """A document for an in-process caller."""
        path = path.rstrip("/") or "/"
        parts = path.strip("/").split("/")
        if path == "/version":
            return version_info()
        if path == "/api":
            return self._discovery.api_versions("")
        if path == "/apis":
            return self._discovery.group_list()
        if parts[0] == "api" and len(parts) == 2 and parts[1] in self._discovery.versions(""):
            return self._discovery.resource_list("", parts[1])
        if parts[0] == "apis" and len(parts) in (2, 3) and self._discovery.versions(parts[1]):
            if len(parts) == 2:
                return self._discovery.group(parts[1])
            if parts[2] in self._discovery.versions(parts[1]):
                return self._discovery.resource_list(parts[1], parts[2])
        if parts[0] in _HEALTH and len(parts) <= 2:
            checks = self._checks(parts[0])
            if len(parts) == 2 and parts[1] not in checks:
                raise errors.no_such_path()
            if all(checks.values() if len(parts) == 1 else [checks[parts[1]]]):
                return "ok"
            raise errors.internal(f"{parts[0]} check failed")
        if path == "/metrics":
            return self._server.metrics.text()
        if path == KEYS_PATH:
            return self._keys.key_set()
        if path == "/openapi/v3":
            return self._openapi.index()
        if path.startswith("/openapi/v3/"):
            found = self._openapi.document(path.removeprefix("/openapi/v3/"))
            if found is not None:
                return jsonio.loads(found[0])
        raise errors.no_such_path()

    # --- discovery -----------------------------------------------------------------------------------------------------

    async def _root(self, request: web.BaseRequest, target: Target, user: User) -> web.StreamResponse:
        known = {path for path in self._server.handler.paths if path not in ("", "/")} | {"/api/v1", "/apis/", "/openapi/v3/"}
        for group in self._discovery.groups():
            known |= {f"/apis/{group}", *(f"/apis/{group}/{version}" for version in self._discovery.versions(group))}
        for kind in _HEALTH:
            known |= {f"/{kind}/{check}" for check in self._checks(kind)}
        return responses.plain(jsonio.dumps({"paths": sorted(known)}) + b"\n")

    async def _api(self, request: web.BaseRequest, target: Target, user: User) -> web.StreamResponse:
        _only_get(target)
        if _wants_aggregated(request):
            return self._aggregated(request, core=True)
        return await _document(request, self._discovery.api_versions(_address(request)), routed=True)

    async def _apis(self, request: web.BaseRequest, target: Target, user: User) -> web.StreamResponse:
        if _wants_aggregated(request):
            return self._aggregated(request, core=False)
        return await _document(request, self._discovery.group_list())

    def _aggregated(self, request: web.BaseRequest, core: bool) -> web.StreamResponse:
        data, tag = self._discovery.aggregated(core)
        etag = f'"{tag}"'
        headers = {
            "Content-Type": "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList",
            "ETag": etag,
            "Vary": "Accept",
            "Cache-Control": "public",
        }
        if request.headers.get("If-None-Match") == etag:
            return web.Response(status=304, headers=headers)
        return web.Response(body=data, headers=headers)

    async def _core_version(self, request: web.BaseRequest, target: Target, user: User) -> web.StreamResponse:
        _only_get(target)
        parts = target.path.strip("/").split("/")
        if len(parts) != 2 or parts[1] not in self._discovery.versions(""):
            raise errors.no_such_path()
        return await _document(request, self._discovery.resource_list("", parts[1]), routed=True)

    async def _group(self, request: web.BaseRequest, target: Target, user: User) -> web.StreamResponse:
        parts = target.path.strip("/").split("/")
        versions = self._discovery.versions(parts[1])
        if not parts[1] or not versions:
            raise errors.page_not_found()
        if len(parts) == 2:
            return await _document(request, self._discovery.group(parts[1]))
        _only_get(target)
        if parts[2] not in versions:
            # The router of Kubernetes' own groups serves their versions; nothing routes those of CRDs.
            raise errors.no_such_path() if self._discovery.is_builtin(parts[1]) else errors.page_not_found()
        return await _document(request, self._discovery.resource_list(parts[1], parts[2]), routed=True)

    # --- OpenAPI -------------------------------------------------------------------------------------------------------

    async def _openapi_v2(self, request: web.BaseRequest, target: Target, user: User) -> web.StreamResponse:
        """Only its head: kubectl asks here for kinds that v3 lacks, and must learn that v2 lacks them as well."""
        if "protobuf" in request.headers.get("Accept", ""):
            return web.Response(body=_EMPTY_V2_PROTOBUF, headers={"Content-Type": _V2_PROTOBUF})
        return await _document(request, _EMPTY_V2)

    async def _openapi_index(self, request: web.BaseRequest, target: Target, user: User) -> web.StreamResponse:
        return await _document(request, self._openapi.index())

    async def _openapi_document(self, request: web.BaseRequest, target: Target, user: User) -> web.StreamResponse:
        name = target.path.removeprefix("/openapi/v3/").strip("/")
        found = self._openapi.document(name)
        if found is None:
            return web.Response(status=404, headers={"Cache-Control": "no-cache, private"})
        data, tag = found
        etag = f'"{tag}"'
        headers = {"ETag": etag, "Vary": "Accept"}
        if target.query.get("hash", tag) != tag:
            return web.Response(status=301, headers={**headers, "Location": f"/openapi/v3/{name}?hash={tag}"})
        if "hash" in target.query:
            headers["Cache-Control"] = "public, immutable"
            headers["Expires"] = "Thu, 31 Dec 2099 23:59:59 GMT"
        if request.headers.get("If-None-Match") == etag:
            return web.Response(status=304, headers=headers)
        response = await responses.body(request, data)
        response.headers.update(headers)
        return response

    # --- the rest ------------------------------------------------------------------------------------------------------

    async def _version(self, request: web.BaseRequest, target: Target, user: User) -> web.StreamResponse:
        _only_get(target)
        accepted = [clause.partition(";")[0].strip() for clause in request.headers.get("Accept", "").split(",")]
        if not {"", "*/*", negotiation.JSON} & set(accepted):
            raise negotiation.not_representable([negotiation.JSON])
        return responses.plain(msgspec.json.format(jsonio.dumps(version_info()), indent=2))

    async def _metrics(self, request: web.BaseRequest, target: Target, user: User) -> web.StreamResponse:
        response = responses.text(self._server.metrics.text())
        response.headers["Content-Type"] = "text/plain; version=0.0.4; charset=utf-8"
        return response

    async def _openid(self, request: web.BaseRequest, target: Target, user: User) -> web.StreamResponse:
        return await _document(request, openid_configuration(self._issuer, self._server.url))

    async def _jwks(self, request: web.BaseRequest, target: Target, user: User) -> web.StreamResponse:
        response = await _document(request, self._keys.key_set())
        response.headers["Content-Type"] = "application/jwk-set+json"
        return response

    async def _health(self, request: web.BaseRequest, target: Target, user: User) -> web.StreamResponse:
        kind, _, single = target.path.strip("/").partition("/")
        checks = self._checks(kind)
        if single:
            if single not in checks:
                raise errors.page_not_found()
            good = checks[single]
            response = responses.text("ok") if good else responses.text("internal server error: not ok\n", 500)
            del response.headers["X-Content-Type-Options"]
            return response
        excluded = target.query.all("exclude")
        failed = [name for name, good in checks.items() if not good and name not in excluded]
        if not failed and "verbose" not in target.query:
            return responses.text("ok")
        end = f"{kind} check failed" if failed else f"{kind} check passed"
        return responses.text("\n".join([*_told(checks, excluded), end]) + "\n", 500 if failed else 200)

    def _checks(self, kind: str) -> dict[str, bool]:
        alive = self._server.cache.failed is None
        # A server with an unavailable store is alive: a restart would not help.
        answered = alive if kind == "livez" else alive and self._server.background.store_answers
        checks = {"ping": True, "log": True, "etcd": answered}
        if kind == "readyz":
            checks["informer-sync"] = alive
            checks["shutdown"] = not self._server.draining
        return checks


def _told(checks: dict[str, bool], excluded: list[str]) -> Iterator[str]:
    for name, good in checks.items():
        if name in excluded:
            yield f"[+]{name} excluded: ok"
        else:
            yield f"[+]{name} ok" if good else f"[-]{name} failed: reason withheld"
    unknown = ",".join(f'"{name}"' for name in excluded if name not in checks)
    if unknown:
        yield f"warn: some health checks cannot be excluded: no matches for {unknown}"


def _only_get(target: Target) -> None:
    if target.method != "GET":
        raise errors.method_not_allowed()


def _wants_aggregated(request: web.BaseRequest) -> bool:
    accept = request.headers.get("Accept", "")
    return "as=APIGroupDiscoveryList" in accept and "v=v2;" in accept.replace(" ", "") + ";"


def _address(request: web.BaseRequest) -> str:
    return request.headers.get("Host", "")


async def _document(request: web.BaseRequest, obj: Obj, routed: bool = False) -> web.Response:
    """`routed` documents take kube-apiserver's first look at Accept, the others only the second."""
    accept = request.headers.get("Accept", "")
    if routed:
        negotiation.check_route(accept, False)
    media_type = negotiation.negotiate(accept, False, negotiation.NO_FORMS).media_type
    pretty = responses.wants_pretty(request, request.query)
    return await responses.body(request, jsonio.dumps(obj) + b"\n", media_type=media_type, pretty=pretty)
