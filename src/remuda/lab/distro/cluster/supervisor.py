"""The supervisor's own listener, on 9345: requests of joining hosts, and the server's own status.

As k3s has it under `/v1-k3s`. The CA needs no token. With the server's token a host gets the cluster's authorities and joins
etcd; with the agent's it gets certificates for the one node whose password it has. :mod:`..supervisor_client` is the other side.
"""

from __future__ import annotations

import base64
import binascii
import hmac
import ipaddress
import logging
from collections.abc import Awaitable, Callable, Mapping
from typing import Any
from urllib.parse import urlsplit

from aiohttp import web

from remuda.apiserver.builtin.core.service_addresses import SERVICE_RANGE
from remuda.apiserver.keys.pki import ALWAYS_SERVED
from remuda.apiserver.storage.store import StoreError
from remuda.client.interface import Client
from remuda.kube.encoding import jsonio
from remuda.kube.errors import ApiError
from remuda.kube.names import dns_subdomain_problems
from remuda.kube.objects import GroupVersionResource, annotations_of, dig, is_being_deleted, name_of

from ..etcd import endpoints, members
from ..etcd.client import EtcdClient, Member
from ..pki import authorities, certificates, join_tokens
from ..pki.authorities import SERVER_CA
from ..pki.certificates import Leaf
from ..state import ServerState
from ..supervisor_client import NODE_IP, NODE_NAME, NODE_PASSWORD, PREFIX
from . import node_passwords
from .etcd_member_removal import NODES, REMOVE
from .node_passwords import NotThatNode

log = logging.getLogger(__name__)

SERVICES = GroupVersionResource("", "v1", "services")
_LARGEST_BODY = 64 * 1024
_MOST_ADDRESSES = 16
# Loopback addresses, which every host may have in its certificate.
_ITS_OWN = frozenset(("127.0.0.1", "::1"))


class Refusal(Exception):
    def __init__(self, status: int, words: str) -> None:
        super().__init__(words)
        self.status = status


Page = Callable[[web.BaseRequest], Awaitable[web.StreamResponse]]
_READYZ = "/readyz"


class SupervisorHandler:
    """Answers requests; :class:`~remuda.apiserver.http.listener.Listener` has the sockets. `beside` answers all others, for an
    API on the same port."""

    def __init__(self, state: ServerState, beside: Page | None = None) -> None:
        self._state = state
        self._beside = beside
        public, nodes, servers = (), (join_tokens.NODE, join_tokens.SERVER), (join_tokens.SERVER,)
        self._pages: Mapping[tuple[str, str], tuple[tuple[str, ...], Page]] = {
            ("GET", "/cacerts"): (public, self._cacerts),
            ("GET", "/ping"): (public, self._ping),
            ("GET", _READYZ): (public, self._readyz),
            ("GET", "/db/info"): (public, self._db_info),
            ("GET", f"{PREFIX}/server-ca.crt"): (public, self._cacerts),
            ("GET", f"{PREFIX}/apiservers"): (nodes, self._apiservers),
            ("GET", f"{PREFIX}/config"): (nodes, self._config),
            ("POST", f"{PREFIX}/client-kubelet.crt"): (nodes, self._client_kubelet),
            ("POST", f"{PREFIX}/serving-kubelet.crt"): (nodes, self._serving_kubelet),
            ("GET", f"{PREFIX}/server-bootstrap"): (servers, self._bootstrap),
            ("POST", f"{PREFIX}/etcd/members"): (servers, self._add_member),
        }

    async def __call__(self, request: web.BaseRequest) -> web.StreamResponse:
        allowed, page = self._pages.get((request.method, request.path), ((), None))
        if self._beside is not None and (page is None or request.path == _READYZ):
            return await self._beside(request)
        if page is None:
            return web.Response(status=404, text="not found\n")
        try:
            if allowed:
                self._authenticate(request, allowed)
            return await page(request)
        except Refusal as error:
            headers = {"WWW-Authenticate": 'Basic realm="remuda"'} if error.status == 401 else None
            return web.Response(status=error.status, text=f"{error}\n", headers=headers)
        except members.NotNow as error:
            return web.Response(status=503, text=f"{error}\n")
        except members.Never as error:
            return web.Response(status=409, text=f"{error}\n")
        except (StoreError, ApiError) as error:
            return web.Response(status=503, text=f"not ready: {error}\n")

    def _authenticate(self, request: web.BaseRequest, allowed: tuple[str, ...]) -> str:
        scheme, _, text = request.headers.get("Authorization", "").partition(" ")
        try:
            user, _, password = base64.b64decode(text, validate=True).decode().partition(":")
        except (binascii.Error, UnicodeDecodeError):
            user = password = ""
        known = {join_tokens.SERVER: self._state.server_password, join_tokens.NODE: self._state.agent_password}
        right = scheme == "Basic" and hmac.compare_digest(password.encode(), known.get(user, "").encode()) and bool(password)
        if not right:
            raise Refusal(401, "the token is not the one of this cluster")
        if user not in allowed:
            raise Refusal(403, f"the token of a {user} is not enough here")
        return user

    # --- without a token ------------------------------------------------------------------------------------------------

    async def _cacerts(self, request: web.BaseRequest) -> web.Response:
        return web.Response(body=self._state.authorities.bundle(SERVER_CA), content_type="text/plain")

    async def _ping(self, request: web.BaseRequest) -> web.Response:
        return web.Response(text="pong")

    async def _readyz(self, request: web.BaseRequest) -> web.Response:
        return web.Response(text="ok") if self._state.ready else web.Response(status=503, text="not ready\n")

    async def _db_info(self, request: web.BaseRequest) -> web.Response:
        """The members of etcd, in one line: no token is needed on this host."""
        if not _is_local(request.remote or ""):
            self._authenticate(request, (join_tokens.SERVER,))
        found = await self._etcd().members(linearizable=False)
        return _json({"members": [_member(member) for member in found]})

    # --- for hosts that join --------------------------------------------------------------------------------------------

    async def _apiservers(self, request: web.BaseRequest) -> web.Response:
        return _json(list((await endpoints.known(self._etcd())).values()))

    async def _config(self, request: web.BaseRequest) -> web.Response:
        return _json({"release": self._state.settings.release, "supervisor": self._state.settings.supervisor_url})

    async def _bootstrap(self, request: web.BaseRequest) -> web.Response:
        return web.Response(body=authorities.encode(self._state.authorities.files), content_type="application/json")

    async def _add_member(self, request: web.BaseRequest) -> web.Response:
        body = await _body(request)
        name, url = body.get("name"), body.get("peerURL")
        if not isinstance(name, str) or not isinstance(url, str) or not name or not url.startswith("https://"):
            raise Refusal(400, "a member has a name and a peerURL")
        await self._check_not_leaving(str(body.get("node") or ""))
        # While there is no API yet, the host gets this error when it registers.
        if self._state.api is not None:
            await self._check_node(request, self._state.api)
        return _json({"initialCluster": await members.admit(self._etcd(), name, url)})

    async def _check_not_leaving(self, name: str) -> None:
        """A member whose Node asks for its removal would be removed again."""
        if self._state.api is None or not name:
            return
        try:
            node = await self._state.api.get(NODES, name)
        except ApiError as error:
            if error.is_not_found:
                return
            raise
        if annotations_of(node).get(REMOVE, "").lower() == "true" or is_being_deleted(node):
            raise Refusal(503, f"the Node {name} is about to leave: delete it, or take {REMOVE} off it")

    async def _client_kubelet(self, request: web.BaseRequest) -> web.Response:
        return await self._signed(request, 0)

    async def _serving_kubelet(self, request: web.BaseRequest) -> web.Response:
        return await self._signed(request, 1)

    async def _signed(self, request: web.BaseRequest, which: int) -> web.Response:
        state = self._state
        if state.api is None:
            known = ", ".join((await endpoints.known(self._etcd())).values())
            raise Refusal(503, f"there is no API on this server to know nodes by; it is at {known or 'no server yet'}")
        node = await self._check_node(request, state.api)
        leaf = _kubelet_leaf(which, node, request.headers.get(NODE_IP, ""))
        if leaf.served:
            await self._check_names(state.api, leaf, request.remote or "")
        try:
            signed = certificates.signed_for(await _read(request), leaf, state.authorities, state.clock, state.entropy)
        except ValueError as error:
            raise Refusal(400, f"the signing request can't be used: {error}") from None
        return web.Response(body=signed, content_type="application/x-pem-file")

    async def _check_node(self, request: web.BaseRequest, api: Client) -> str:
        """The node that a host has claimed with its password."""
        node, password = request.headers.get(NODE_NAME, ""), request.headers.get(NODE_PASSWORD, "")
        if dns_subdomain_problems(node) or not password:
            raise Refusal(400, f"say the node's name and its password in {NODE_NAME} and {NODE_PASSWORD}")
        try:
            await node_passwords.ensure(api, node, password, self._state.entropy)
        except NotThatNode as error:
            raise Refusal(403, str(error)) from None
        return node

    async def _check_names(self, api: Client, leaf: Leaf, remote: str) -> None:
        """With a certificate for a name or an address of the API, of a Service or of another node, a node could impersonate
        that one: all are signed by the same CA."""
        settings = self._state.settings
        taken = {
            *ALWAYS_SERVED,
            *settings.tls_san,
            *settings.node_ips,
            *settings.external_ips,
            settings.address,
            settings.loopback,
        }
        if self._state.etcd is not None:
            urls = list((await endpoints.known(self._state.etcd)).values())
            for member in await self._state.etcd.members(linearizable=False):
                urls += (*member.client_urls, *member.peer_urls)
            taken |= {urlsplit(url).hostname or "" for url in urls}
        wanted = {_canonical(name) for name in leaf.served} - _ITS_OWN
        found = sorted(wanted & {_canonical(name) for name in taken} | {name for name in wanted if _is_local_name(name)})
        if found:
            raise Refusal(403, f"{', '.join(found)}: the API is known by that, so no node can be")
        if found := sorted(wanted & await _service_names(api) | {name for name in wanted if _is_of_services(name)}):
            raise Refusal(403, f"{', '.join(found)}: a Service is known by that, so no node can be")
        for other in (await api.list(NODES))["items"]:
            # The address that the host's request comes from is its own, even if another Node claims it.
            found = sorted(wanted & _node_names(other) - {_canonical(remote)}) if name_of(other) != leaf.name else []
            if found:
                # It may be of the previous host, whose Node is about to be deleted: worth a retry.
                why = f"the Node {name_of(other)} is known by that; delete it if its host is gone"
                raise Refusal(503, f"{', '.join(found)}: {why}")

    def _etcd(self) -> EtcdClient:
        if self._state.etcd is None:
            raise Refusal(503, "etcd is not ready")
        return self._state.etcd


def _kubelet_leaf(which: int, node: str, ips: str) -> Leaf:
    addresses = []
    for text in ips.split(",", _MOST_ADDRESSES + 1):
        if not text.strip():
            continue
        try:
            address = ipaddress.ip_address(text.strip())
        except ValueError:
            raise Refusal(400, f"what {NODE_IP} says is no address") from None
        if _is_no_nodes(address):
            raise Refusal(400, f"{address} in {NODE_IP} can't be the address of a node")
        addresses.append(str(address))
    if len(addresses) > _MOST_ADDRESSES:
        raise Refusal(400, f"{NODE_IP} says more than {_MOST_ADDRESSES} addresses")
    return certificates.kubelet_leaf(which, node, addresses)


def _is_no_nodes(address: ipaddress.IPv4Address | ipaddress.IPv6Address) -> bool:
    if isinstance(address, ipaddress.IPv6Address) and (address.ipv4_mapped is not None or address.scope_id is not None):
        return True
    # The IPv6 loopback is reserved, too.
    reserved = address.is_reserved and not address.is_loopback
    return address.is_unspecified or address.is_multicast or address.is_link_local or reserved


def _canonical(name: str) -> str:
    try:
        return str(ipaddress.ip_address(name))
    except ValueError:
        return name.lower().rstrip(".")


def _is_local_name(name: str) -> bool:
    return name == "localhost" or name.endswith(".localhost")


def _is_of_services(name: str) -> bool:
    try:
        return ipaddress.ip_address(name) in ipaddress.ip_network(SERVICE_RANGE)
    except ValueError:
        return name.endswith((".svc", ".cluster.local"))


async def _service_names(api: Client) -> set[str]:
    specs = [service.get("spec") or {} for service in (await api.list(SERVICES))["items"]]
    return {_canonical(str(ip)) for spec in specs for ip in (*(spec.get("clusterIPs") or ()), *(spec.get("externalIPs") or ()))}


def _node_names(node: dict[str, Any]) -> set[str]:
    return {name_of(node), *(_canonical(str(each.get("address") or "")) for each in dig(node, "status", "addresses") or ())}


def _member(member: Member) -> dict[str, Any]:
    found: dict[str, Any] = {"ID": member.id, "name": member.name, "peerURLs": list(member.peer_urls)}
    found["clientURLs"] = list(member.client_urls)
    return {**found, "isLearner": True} if member.is_learner else found


def _is_local(remote: str) -> bool:
    try:
        return ipaddress.ip_address(remote).is_loopback
    except ValueError:
        return False


async def _read(request: web.BaseRequest) -> bytes:
    content = await request.content.read(_LARGEST_BODY + 1) if request.can_read_body else b""
    while not request.content.at_eof() and len(content) <= _LARGEST_BODY:
        content += await request.content.read(_LARGEST_BODY + 1 - len(content))
    if len(content) > _LARGEST_BODY:
        raise Refusal(413, "that is too long")
    return content


async def _body(request: web.BaseRequest) -> dict[str, Any]:
    try:
        found = jsonio.loads(await _read(request))
    except jsonio.JsonError:
        raise Refusal(400, "the body is not JSON") from None
    if not isinstance(found, dict):
        raise Refusal(400, "the body is not an object")
    return found


def _json(value: Any) -> web.Response:
    return web.Response(body=jsonio.dumps(value) + b"\n", content_type="application/json")
