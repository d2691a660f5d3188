"""DigitalOcean's double: a server of the part of its public API (v2) that a driver of machines needs, and as strict.

It is written from the public description: paths, fields, statuses, error bodies, pages, and that tags outlive what bore them.
A droplet gets its addresses after a few looks and goes a few looks after it was removed; a list shows a new one after a few.
"""

from __future__ import annotations

import asyncio
import base64
import contextlib
import hashlib
import re
import threading
from collections.abc import AsyncIterator, Iterator
from typing import Any

from aiohttp import web

from .rig import Answer, Way

TOKEN = "dop_v1_0123456789abcdef"
_TAG = re.compile(r"[A-Za-z0-9:_-]{1,255}")
_NAME = re.compile(r"[A-Za-z0-9.-]+")
_FIELDS = {
    "name": str,
    "region": str,
    "size": str,
    "image": (str, int),
    "ssh_keys": list,
    "backups": bool,
    "ipv6": bool,
    "private_networking": bool,
    "monitoring": bool,
    "user_data": str,
    "tags": list,
}


def refused(status: int, kind: str, message: str, headers: dict[str, str] | None = None) -> Answer:
    return web.json_response({"id": kind, "message": message, "request_id": "4d9d8375"}, status=status, headers=headers)


class Refusal(Exception):
    def __init__(self, status: int, kind: str, message: str) -> None:
        self.answer = refused(status, kind, message)


def unprocessable(message: str) -> Refusal:
    return Refusal(422, "unprocessable_entity", message)


NOT_FOUND = Refusal(404, "not_found", "The resource you were accessing could not be found.")


class Ocean:
    """`way` is what a driver talks to; the rest is what is there."""

    def __init__(self) -> None:
        self.droplets: dict[int, dict[str, Any]] = {}
        self.keys: dict[int, dict[str, Any]] = {}
        self.tags: set[str] = set()
        self.regions = {"nyc3": ["s-1vcpu-1gb", "s-2vcpu-2gb"], "fra1": ["s-1vcpu-1gb"], "sfo1": []}
        self.images = {"ubuntu-20-04-x64", "debian-13-x64", "4711"}
        self.limit = 10
        # In looks: until a droplet is listed, until it has addresses, until a removed one is gone.
        self.hidden, self.starting, self.going = 0, 0, 0
        self._next = 1000
        self.way = Way("", self._name)

    @contextlib.asynccontextmanager
    async def open(self, host: str = "127.0.0.1") -> AsyncIterator[Ocean]:
        """`host` is where drivers find it."""
        application = web.Application(middlewares=[self._outermost])
        application.add_routes(
            [
                web.get("/v2/account", self._account),
                web.get("/v2/regions", self._regions),
                web.get("/v2/images/{image}", self._image),
                web.get("/v2/account/keys", self._list_keys),
                web.post("/v2/account/keys", self._add_key),
                web.get("/v2/account/keys/{key}", self._get_key),
                web.delete("/v2/account/keys/{key}", self._delete_key),
                web.get("/v2/droplets", self._list_droplets),
                web.post("/v2/droplets", self._add_droplet),
                web.get("/v2/droplets/{droplet}", self._get_droplet),
                web.delete("/v2/droplets/{droplet}", self._delete_droplet),
                web.delete("/v2/tags/{tag}", self._delete_tag),
            ]
        )
        runner = web.AppRunner(application, shutdown_timeout=1)
        await runner.setup()
        await web.TCPSite(runner, "127.0.0.1", 0).start()
        self.way.behind = f"http://127.0.0.1:{runner.addresses[0][1]}"
        try:
            async with self.way.open(host):
                yield self
        finally:
            await runner.cleanup()

    @contextlib.contextmanager
    def beside(self, host: str = "127.0.0.1") -> Iterator[Ocean]:
        """Open in a thread of its own, for tests that are not asynchronous."""
        ready, loop, over = threading.Event(), asyncio.new_event_loop(), asyncio.Event()

        async def serve() -> None:
            async with self.open(host):
                ready.set()
                await over.wait()

        thread = threading.Thread(target=lambda: loop.run_until_complete(serve()), daemon=True)
        thread.start()
        assert ready.wait(60)
        try:
            yield self
        finally:
            loop.call_soon_threadsafe(over.set)
            thread.join(60)
            loop.close()

    def left(self) -> dict[str, Any]:
        """Everything that somebody would pay for or wonder about; a tag of an owner is one for all machines."""
        found = {
            "droplets": list(self.droplets),
            "keys": [key["name"] for key in self.keys.values()],
            "tags": sorted(tag for tag in self.tags if not tag.startswith("remuda:owner:")),
        }
        return {kind: things for kind, things in found.items() if things}

    @staticmethod
    def _name(request: web.BaseRequest, body: bytes) -> str:
        path = re.sub(r"^/v2/(droplets|account/keys|tags|images)/.+", r"/v2/\1/ID", request.path)
        return f"{request.method} {path}"

    @web.middleware
    async def _outermost(self, request: web.Request, handler: Any) -> web.StreamResponse:
        if request.headers.get("Authorization") != f"Bearer {TOKEN}":
            return refused(401, "Unauthorized", "Unable to authenticate you")
        try:
            answer: web.StreamResponse = await handler(request)
        except Refusal as refusal:
            return Answer(status=refusal.answer.status, body=refusal.answer.body, content_type="application/json")
        answer.headers.update({"ratelimit-limit": "5000", "ratelimit-remaining": "4816", "ratelimit-reset": "1444931833"})
        return answer

    async def _account(self, request: web.Request) -> Answer:
        return web.json_response({"account": {"droplet_limit": self.limit, "status": "active", "email": "a@example.com"}})

    async def _regions(self, request: web.Request) -> Answer:
        found = [
            {"slug": slug, "name": slug, "sizes": sizes, "features": [], "available": bool(sizes)}
            for slug, sizes in self.regions.items()
        ]
        return self._page(request, "regions", found)

    async def _image(self, request: web.Request) -> Answer:
        if request.match_info["image"] not in self.images:
            raise NOT_FOUND
        return web.json_response({"image": {"id": 4711, "slug": request.match_info["image"]}})

    async def _list_keys(self, request: web.Request) -> Answer:
        return self._page(request, "ssh_keys", list(self.keys.values()))

    async def _add_key(self, request: web.Request) -> Answer:
        body = await request.json()
        if set(body) != {"name", "public_key"} or len(body["name"]) > 255:
            raise unprocessable("name and public_key are wanted")
        digest = hashlib.md5(base64.b64decode(body["public_key"].split()[1])).hexdigest()
        fingerprint = ":".join(re.findall("..", digest))
        if any(key["fingerprint"] == fingerprint for key in self.keys.values()):
            raise unprocessable("SSH Key is already in use on your account")
        key = {"id": self._number(), "fingerprint": fingerprint, **body}
        self.keys[key["id"]] = key
        return web.json_response({"ssh_key": key}, status=201)

    async def _get_key(self, request: web.Request) -> Answer:
        return web.json_response({"ssh_key": self._key(request.match_info["key"])})

    async def _delete_key(self, request: web.Request) -> Answer:
        del self.keys[self._key(request.match_info["key"])["id"]]
        return Answer(status=204)

    async def _list_droplets(self, request: web.Request) -> Answer:
        tag = request.query.get("tag_name")
        found = []
        for droplet in self.droplets.values():
            if tag is not None and tag not in droplet["tags"]:
                continue
            if droplet["_hidden"]:
                droplet["_hidden"] -= 1
                continue
            found.append(_shown(droplet))
        return self._page(request, "droplets", found)

    async def _add_droplet(self, request: web.Request) -> Answer:
        body = await request.json()
        self._check(body)
        droplet = {
            "id": self._number(),
            "name": body["name"],
            "status": "new",
            "created_at": "2026-07-21T18:37:44Z",
            "networks": {"v4": [], "v6": []},
            "tags": list(body.get("tags") or ()),
            "_asked": body,
            "_hidden": self.hidden,
            "_starting": self.starting,
            "_going": None,
        }
        self.tags |= set(droplet["tags"])
        self.droplets[droplet["id"]] = droplet
        return web.json_response({"droplet": _shown(droplet)}, status=202)

    def _check(self, body: dict[str, Any]) -> None:
        for field, value in body.items():
            if field not in _FIELDS or not isinstance(value, _FIELDS[field]):
                raise unprocessable(f"{field} is no field, or of the wrong kind")
        if not _NAME.fullmatch(body.get("name", "")):
            raise unprocessable("Only valid hostname characters are allowed. (a-z, A-Z, 0-9, . and -)")
        if body["size"] not in self.regions.get(body["region"], ()):
            raise unprocessable("Size is not available in this region.")
        if str(body["image"]) not in self.images:
            raise unprocessable("You specified an invalid image for Droplet creation.")
        if any(key not in self.keys for key in body.get("ssh_keys", ())):
            raise unprocessable("at least one of the SSH keys is not known")
        if any(not _TAG.fullmatch(tag) for tag in body.get("tags", ())):
            raise unprocessable("a tag has characters that it may not have")
        if len(body.get("user_data", "")) > 64 * 1024:
            raise unprocessable("user_data is too long")
        if len(self.droplets) >= self.limit:
            raise unprocessable("creating this/these droplet(s) will exceed your droplet limit")

    async def _get_droplet(self, request: web.Request) -> Answer:
        droplet = self._droplet(request)
        if droplet["_going"] is not None:
            droplet["_going"] -= 1
            if droplet["_going"] < 0:
                del self.droplets[droplet["id"]]
                raise NOT_FOUND
        elif droplet["_starting"]:
            droplet["_starting"] -= 1
        elif droplet["status"] == "new":
            self._start(droplet)
        return web.json_response({"droplet": _shown(droplet)})

    @staticmethod
    def _start(droplet: dict[str, Any]) -> None:
        number, asked = droplet["id"] % 250, droplet["_asked"]
        droplet["status"] = "active"
        networks = droplet["networks"]
        if asked.get("private_networking"):
            networks["v4"].append({"ip_address": f"10.128.0.{number}", "netmask": "255.255.0.0", "type": "private"})
        networks["v4"].append({"ip_address": f"192.0.2.{number}", "netmask": "255.255.255.0", "type": "public"})
        if asked.get("ipv6"):
            networks["v6"].append({"ip_address": f"2001:db8::{number:x}", "netmask": 64, "type": "public"})

    async def _delete_droplet(self, request: web.Request) -> Answer:
        droplet = self._droplet(request)
        if droplet["_going"] is None:
            droplet["_going"] = self.going
        return Answer(status=204)

    async def _delete_tag(self, request: web.Request) -> Answer:
        tag = request.match_info["tag"]
        if tag not in self.tags:
            raise NOT_FOUND
        self.tags.remove(tag)
        for droplet in self.droplets.values():
            droplet["tags"] = [one for one in droplet["tags"] if one != tag]
        return Answer(status=204)

    def _key(self, named: str) -> dict[str, Any]:
        for key in self.keys.values():
            if named in (str(key["id"]), key["fingerprint"]):
                return key
        raise NOT_FOUND

    def _droplet(self, request: web.Request) -> dict[str, Any]:
        named = request.match_info["droplet"]
        if not named.isdigit() or int(named) not in self.droplets:
            raise NOT_FOUND
        return self.droplets[int(named)]

    def _number(self) -> int:
        self._next += 1
        return self._next

    def _page(self, request: web.Request, key: str, found: list[Any]) -> Answer:
        """Two to a page, whatever is asked for: so that whoever reads only one finds too little."""
        page, size = int(request.query.get("page", "1")), 2
        links: dict[str, Any] = {}
        if len(found) > page * size:
            following = request.url.update_query(page=str(page + 1)).with_host("api.digitalocean.com").with_scheme("https")
            links = {"pages": {"next": str(following), "last": str(following)}}
        body = {key: found[(page - 1) * size : page * size], "links": links, "meta": {"total": len(found)}}
        return web.json_response(body)


def _shown(droplet: dict[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in droplet.items() if not key.startswith("_")}
