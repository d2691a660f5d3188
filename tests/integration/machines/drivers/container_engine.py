"""A container engine on a socket, as its API is described: podman's own, or Docker's. It runs nothing; it remembers."""

from __future__ import annotations

import asyncio
import io
import json
import tarfile
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from aiohttp import web

Obj = dict[str, Any]


class ContainerEngine:
    """`faults` are answers to give instead, once each: (method and end of the path) → (status, message)."""

    def __init__(self, socket: Path, podman: bool = True) -> None:
        self.socket = socket
        self.podman = podman
        self.images = {"localhost/host:1"}
        self.remote = {"far/host:1"}
        self.builds = 0
        self.building = asyncio.Event()
        self.building.set()
        self.containers: dict[str, Obj] = {}
        self.faults: dict[tuple[str, str], tuple[int, str]] = {}
        self.has_address = True
        self.networks = {"lab": "10.9.0.0/28", "odd": "fd01::/64"}
        # Addresses that containers which the driver does not know have.
        self.foreign: set[str] = set()
        self._runner: web.AppRunner | None = None

    async def __aenter__(self) -> Self:
        app = web.Application(middlewares=[self._failing])
        base = "/v4.0.0/libpod" if self.podman else "/v1.41"
        if self.podman:
            app.router.add_get(f"{base}/_ping", self._ping)
            app.router.add_get(base + "/images/{name:.+}/exists", self._image)
            app.router.add_post(f"{base}/images/pull", self._pull)
            app.router.add_delete(base + "/containers/{name}", self._delete)
            app.router.add_get(base + "/networks/{name}/json", self._network)
        else:
            app.router.add_get(base + "/networks/{name}", self._network)
            app.router.add_get(base + "/images/{name:.+}/json", self._image)
            app.router.add_post(f"{base}/images/create", self._pull)
            app.router.add_delete(base + "/containers/{name}", self._delete)
        # Podman serves this one as Docker does.
        app.router.add_post("/v1.41/build", self._build)
        app.router.add_post(f"{base}/containers/create", self._create)
        app.router.add_get(f"{base}/containers/json", self._list)
        app.router.add_get(base + "/containers/{name}/json", self._inspect)
        app.router.add_post(base + "/containers/{name}/start", self._start)
        app.router.add_put(base + "/containers/{name}/archive", self._archive)
        self._runner = web.AppRunner(app)
        await self._runner.setup()
        await web.UnixSite(self._runner, str(self.socket)).start()
        return self

    async def __aexit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        assert self._runner is not None
        await self._runner.cleanup()

    def files(self, name: str) -> dict[str, str]:
        """What was put into a container before it was started."""
        found = {}
        with tarfile.open(fileobj=io.BytesIO(self.containers[name]["archive"])) as tar:
            for member in tar:
                stream = tar.extractfile(member) if member.isreg() else None
                found[member.name] = stream.read().decode() if stream is not None else member.linkname
        return found

    @web.middleware
    async def _failing(self, request: web.Request, handler: Any) -> web.StreamResponse:
        for (method, end), (status, message) in list(self.faults.items()):
            if request.method == method and request.path.endswith(end):
                del self.faults[method, end]
                return _no(status, message)
        answer: web.StreamResponse = await handler(request)
        return answer

    async def _ping(self, request: web.Request) -> web.Response:
        return web.Response(text="OK")

    async def _image(self, request: web.Request) -> web.Response:
        name = request.match_info["name"]
        return web.Response(status=204 if self.podman else 200) if name in self.images else _no(404, f"{name}: image not known")

    async def _pull(self, request: web.Request) -> web.Response:
        name = request.query["reference" if self.podman else "fromImage"]
        if name not in self.remote:
            return web.Response(text='{"stream":"trying"}\n' + json.dumps({"error": f"{name}: not found in any registry"}))
        self.images.add(name)
        return web.Response(text='{"id":"sha"}')

    async def _build(self, request: web.Request) -> web.StreamResponse:
        """It takes until `building` is set, and the base must be one that can be pulled."""
        with tarfile.open(fileobj=io.BytesIO(await request.read())) as tar:
            stream = tar.extractfile(request.query["dockerfile"])
            assert stream is not None
            base = stream.read().decode().split()[1]
        self.builds += 1
        answer = web.StreamResponse()
        await answer.prepare(request)
        await answer.write(f'{{"stream":"STEP 1/4: FROM {base}\\n"}}\n{{"stream":"Resol'.encode())
        await answer.write(b'ving\\n"}\n')
        await self.building.wait()
        if base in self.remote:
            await answer.write(b'{"stream":"Step 2/4 : RUN apt-get update\\n"}\n{"stream":"Get:1 http://deb bookworm\\n"}\n')
            self.images.add(request.query["t"])
        else:
            await answer.write(b'{"error":"initializing source: dial tcp: no such host","errorDetail":{}}')
        return answer

    async def _create(self, request: web.Request) -> web.Response:
        spec = await request.json()
        name = spec["name"] if self.podman else request.query["name"]
        image = spec["image" if self.podman else "Image"]
        if name in self.containers:
            return _no(409, f"the container name {name!r} is already in use")
        if image not in self.images:
            return _no(404, f"no such image {image}")
        identifier = f"id-{len(self.containers)}-{name}"
        labels = spec["labels" if self.podman else "Labels"]
        self.containers[name] = {"spec": spec, "id": identifier, "labels": labels, "status": "created"}
        return web.json_response({"Id": identifier}, status=201)

    async def _list(self, request: web.Request) -> web.Response:
        assert request.query["all"] == "true"
        key, equals, value = json.loads(request.query["filters"])["label"][0].partition("=")
        labels = {name: each["labels"].get(key) for name, each in self.containers.items()}
        names = [name for name, found in labels.items() if (found == value if equals else found is not None)]
        found = [(name, self.containers[name]) for name in names]
        return web.json_response([{"Id": each["id"], "Names": [name], "Labels": each["labels"]} for name, each in found])

    async def _network(self, request: web.Request) -> web.Response:
        if request.match_info["name"] not in self.networks:
            return _no(404, "network not found")
        subnet = self.networks[request.match_info["name"]]
        if self.podman:
            return web.json_response({"subnets": [{"subnet": "fd00::/64"}, {"subnet": subnet}]})
        return web.json_response({"IPAM": {"Config": [{"Subnet": subnet}]}})

    def address_of(self, name: str) -> str:
        """The one that was asked for."""
        spec = self.containers[name]["spec"]
        if self.podman:
            return str(next((each["static_ips"][0] for each in spec.get("Networks", {}).values() if each), ""))
        named = spec.get("NetworkingConfig", {"EndpointsConfig": {}})["EndpointsConfig"].values()
        return str(next((each["IPAMConfig"]["IPv4Address"] for each in named), ""))

    async def _inspect(self, request: web.Request) -> web.Response:
        name = request.match_info["name"]
        if name not in self.containers:
            return _no(404, f"no such container {name}")
        found = self.containers[name]
        address = (self.address_of(name) or "10.88.0.7") if found["status"] == "running" and self.has_address else ""
        return web.json_response(
            {
                "Id": found["id"],
                "Name": name if self.podman else f"/{name}",
                "Created": "2026-01-02T03:04:05Z",
                "Config": {"Labels": found["labels"]},
                "State": {"Status": found["status"]},
                "NetworkSettings": {"IPAddress": "", "Networks": {"podman": {"IPAddress": address}}},
            }
        )

    async def _start(self, request: web.Request) -> web.Response:
        found = self.containers[request.match_info["name"]]
        if found["status"] == "running":
            return web.Response(status=304)
        assert "archive" in found, "started before it had what it shall do"
        if (wanted := self.address_of(request.match_info["name"])) in self.foreign:
            return _no(500, f"IPAM error: requested ip address {wanted} is already allocated to container ID x")
        found["status"] = "running"
        return web.Response(status=204)

    async def _archive(self, request: web.Request) -> web.Response:
        assert request.query["path"] == "/" and request.content_type == "application/x-tar"
        found = self.containers[request.match_info["name"]]
        assert found["status"] == "created"
        found["archive"] = await request.read()
        return web.Response()

    async def _delete(self, request: web.Request) -> web.Response:
        how = {"volumes": "true", "timeout": "0"} if self.podman else {"v": "true"}
        assert dict(request.query) == {"force": "true", **how}
        if self.containers.pop(request.match_info["name"], None) is None:
            return _no(404, "no such container")
        return web.Response(status=204)


def _no(status: int, message: str) -> web.Response:
    return web.json_response({"cause": message, "message": message, "response": status}, status=status)
