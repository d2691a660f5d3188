"""Whatever is sent to whichever route, by whomever: an answer that says what is wrong, never an error of our own."""

from __future__ import annotations

import asyncio
import logging
from itertools import cycle

import pytest

from remuda.access.users.tokens import Presented
from remuda.api.management_cattle_io import API_VERSION, CLUSTERS
from remuda.kube.objects import GroupVersionResource
from tests.integration.gateway.registration.test_public_endpoints import TOKEN, with_registration

from .running_gateway import Standing, standing

BINDINGS = GroupVersionResource("rbac.authorization.k8s.io", "v1", "clusterrolebindings")

PARTS = (
    "x",
    "c-abcde",
    "local",
    "u-admin",
    "%00",
    "%ff%fe",
    "%E2%80%AE",
    "..%2f",
    "{}",
    "a" * 300,
    f"{TOKEN}_c-abcde.yaml",
    "%0d%0a",
)
QUERIES = (
    "",
    "?action=login",
    "?action=generateKubeconfig",
    "?action=setpassword",
    "?action=changepassword",
    "?action=%ff",
    "?a=1&a=2",
    "?clusterId=%00",
    "?n=-1&last=%ff",
    f"?{'&'.join(f'p{at}=1' for at in range(300))}",
    "?watch=true",
    "?%",
)
BODIES = (
    b"",
    b"{",
    b"[]",
    b"null",
    b"\xff\xfe",
    b'{"a":' * 2000,
    b'{"value":"\\ud800"}',
    b'{"a":NaN}',
    b'{"username":[],"password":{},"ttl":1e400,"responseType":7,"description":null}',
    b'{"clusters":[null],"direct":"x","clusterId":-1,"newPassword":0,"currentPassword":[]}',
    b'{"value":{},"id":[],"name":true,"enabled":"x","principalIds":7,"displayName":{"a":1}}',
)
HEADERS = (
    "",
    "Authorization: Basic !!!\r\n",
    "Authorization: Bearer stv-cluster-x\r\n",
    "Cookie: R_SESS=;;=;CSRF=\x7f\r\n",
    f"X-API-Tunnel-Token: {TOKEN}\r\nX-API-Tunnel-Params: x\r\n",
    "Upgrade: websocket\r\nConnection: Upgrade\r\nSec-WebSocket-Version: 13\r\nSec-WebSocket-Key: x\r\n",
    "Range: bytes=5-1\r\n",
    "Impersonate-User: a\r\nImpersonate-Extra-%zz: x\r\n",
    "Impersonate-Group: g\r\n",
    "X-Cattle-Nonce: n\r\nAuthorization: Bearer %%%\r\n",
    "Content-Encoding: gzip\r\n",
    "Accept: */*;q=x\r\n",
    "Sec-WebSocket-Protocol: base64url.bearer.authorization.k8s.io.!!\r\n",
)
METHODS = ("GET", "POST", "PUT", "DELETE", "HEAD", "PATCH", "OPTIONS", "FOO")


async def ask(place: Standing, method: str, path: str, headers: str, body: bytes, token: Presented | None) -> int:
    if token is not None and "Authorization" not in headers:
        headers += f"Authorization: Bearer {token.text}\r\n"
    head = f"{method} {path} HTTP/1.1\r\nHost: 127.0.0.1:{place.port}\r\nContent-Length: {len(body)}\r\n{headers}\r\n"
    reader, writer = await asyncio.open_connection("127.0.0.1", place.port)
    try:
        writer.write(head.encode() + body)
        async with asyncio.timeout(60):
            line = await reader.readline()
            assert line, f"no answer to {method} {path} with {headers!r} and {body[:80]!r}"
            return int(line.split(b" ")[1])
    finally:
        writer.close()


async def test_no_route_fails_by_what_it_is_sent(caplog: pytest.LogCaptureFixture) -> None:
    async with standing() as place:
        await with_registration(place)
        await place.user("u-admin")
        everything = {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "cluster-admin"}
        subject = {"apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": "u-admin"}
        await place.client.create(BINDINGS, {"metadata": {"name": "a"}, "roleRef": everything, "subjects": [subject]})
        cluster = {"apiVersion": API_VERSION, "kind": "Cluster", "metadata": {"name": "c-abcde"}, "spec": {"displayName": "\n'"}}
        await place.client.create(CLUSTERS, cluster)
        routes = place.gateway.services.routes
        patterns = sorted({route.pattern for found in routes._by_first.values() for route in found})
        assert len(patterns) > 20
        parts, queries, bodies, headers = cycle(PARTS), cycle(QUERIES), cycle(BODIES), cycle(HEADERS)
        failed = []
        for turn in range(3):
            for pattern in patterns:
                for method in METHODS:
                    # Some of it takes the token away.
                    token = await place.token("u-admin") if turn else None
                    path = "/" + "/".join(next(parts) if part.startswith("{") else part for part in pattern) + next(queries)
                    sent = (method, path, next(headers), next(bodies) if method not in ("GET", "HEAD") else b"")
                    status = await ask(place, *sent, token)
                    if status >= 500 and status != 503:
                        failed.append((status, *sent))
        assert failed == []
        assert [record.getMessage() for record in caplog.records if record.levelno >= logging.ERROR] == []
