"""Watches over a websocket, as browsers open them."""

from __future__ import annotations

import base64
import json
import os
import socket
from typing import Any

import pytest

from .builders import CMS, MINE, cm
from .harness import OURS, REAL, SIDES, Endpoint, Pair, Truth, difference
from .masks import masked
from .recording import current, value

Obj = dict[str, Any]

ORIGIN = {"Origin": "https://page.example.com"}


class Heard:
    """All that a server says on one websocket until it closes it."""

    def __init__(self, endpoint: Endpoint, path: str, headers: dict[str, str]) -> None:
        plain = socket.create_connection((endpoint.host, endpoint.port), timeout=60)
        with endpoint.context.wrap_socket(plain, server_hostname=endpoint.host) as wire:
            asked = {
                "Host": f"{endpoint.host}:{endpoint.port}",
                "Connection": "Upgrade",
                "Upgrade": "websocket",
                "Sec-WebSocket-Key": base64.b64encode(os.urandom(16)).decode(),
                "Sec-WebSocket-Version": "13",
                **headers,
            }
            lines = [f"GET {path} HTTP/1.1", *(f"{name}: {each}" for name, each in asked.items() if each)]
            wire.sendall(("\r\n".join(lines) + "\r\n\r\n").encode())
            with wire.makefile("rb") as file:
                self.status = int(file.readline().split()[1])
                self.headers: dict[str, str] = {}
                while line := file.readline().strip():
                    name, _, said = line.decode().partition(":")
                    self.headers[name.lower()] = said.strip()
                self.messages: list[tuple[int, str]] = []
                self.closed = 0
                if self.status == 101:
                    self._listen(file)

    def _listen(self, file: Any) -> None:
        while head := file.read(2):
            kind, size = head[0] & 0x0F, head[1] & 0x7F
            assert head[0] & 0x80 and not head[1] & 0x80, "a frame in pieces, or masked"
            if size > 125:
                size = int.from_bytes(file.read(2 if size == 126 else 8))
            data = file.read(size)
            if kind == 8:
                self.closed = int.from_bytes(data[:2])
                return
            self.messages.append((kind, data.decode()))

    @property
    def said(self) -> list[Any]:
        shown = {name: self.headers.get(name) for name in ("upgrade", "sec-websocket-protocol", "warning")}
        return [self.status, shown, self.messages, self.closed]


def heard(pair: Pair, path: Any, headers: dict[str, str] | None = None) -> dict[str, list[Any]]:
    """The same websocket on both servers, to its end."""
    found: dict[str, list[Any]] = {}
    for side in SIDES:
        where = (path(side) if callable(path) else path).format(ns=pair.ns)
        endpoint = pair.endpoints[side]

        def listen(endpoint: Endpoint = endpoint, where: str = where) -> list[Any]:
            live = endpoint.live if isinstance(endpoint, Truth) else endpoint
            assert live is not None
            return json.loads(json.dumps(Heard(live, where, ORIGIN if headers is None else headers).said))

        found[side] = listen() if side == OURS else value(f"WEBSOCKET {where}", listen)
    left, right = (_events(found[side]) for side in (OURS, REAL))
    current().compared(f"WEBSOCKET {path if not callable(path) else path(REAL)}", right)
    assert left == right, difference(left, right, f"WEBSOCKET {path}")
    return found


def _events(said: list[Any]) -> list[Any]:
    """With the events parsed. How each was written stays: its kind, and whether a line ends with it."""
    status, headers, messages, closed = said
    return [status, headers, [[kind, text.endswith("\n"), masked(json.loads(text))] for kind, text in messages], closed]


def since(pair: Pair) -> Any:
    found = pair.get(CMS, compare=False)
    return lambda side: found[side].json["metadata"]["resourceVersion"]


def test_events_are_text_messages(pair: Pair) -> None:
    begin = since(pair)
    pair.post(CMS, cm("a", x="1"))
    pair.patch(CMS + "/a", {"data": {"long": "x" * 300}})
    pair.patch(CMS + "/a", {"data": {"longer": "x" * 70_000}})
    pair.delete(CMS + "/a")
    pair.get(CMS, compare=False)
    found = heard(pair, lambda side: f"{CMS}?watch=true&resourceVersion={begin(side)}&timeoutSeconds=1&{MINE}")
    assert found[OURS][0] == 101 and len(found[OURS][2]) == 4


def test_the_present_state_comes_first(pair: Pair) -> None:
    pair.post(CMS, cm("a", x="1"))
    pair.get(CMS, compare=False)
    heard(pair, f"{CMS}?watch=1&timeoutSeconds=1&{MINE}")


def test_a_path_of_the_old_form(pair: Pair) -> None:
    pair.post(CMS, cm("a", x="1"))
    pair.get(CMS, compare=False)
    heard(pair, "/api/v1/watch/namespaces/{ns}/configmaps/a?timeoutSeconds=1&resourceVersion=0")


def test_rows_of_a_table(pair: Pair) -> None:
    pair.post(CMS, cm("a", x="1"))
    pair.get(CMS, compare=False)
    accept = {"Accept": "application/json;as=Table;g=meta.k8s.io;v=v1"}
    heard(pair, f"{CMS}?watch=1&timeoutSeconds=1&{MINE}", {**ORIGIN, **accept})


def test_initial_events_end_with_a_bookmark(pair: Pair) -> None:
    query = "sendInitialEvents=true&resourceVersionMatch=NotOlderThan&allowWatchBookmarks=true"
    heard(pair, f"{CMS}?watch=1&timeoutSeconds=1&{query}&{MINE}")


@pytest.mark.parametrize("protocol", ["", "v4.channel.k8s.io", "anything"])
def test_the_protocol_is_echoed(pair: Pair, protocol: str) -> None:
    heard(pair, f"{CMS}?watch=1&timeoutSeconds=1&{MINE}", {**ORIGIN, "Sec-WebSocket-Protocol": protocol})


@pytest.mark.parametrize(
    "query",
    ["watch=1&resourceVersion=nonsense", "watch=1&fieldSelector=a=b", "watch=1&labelSelector=!!", "watch=1&timeoutSeconds=x"],
)
def test_a_watch_that_is_refused_has_a_status(pair: Pair, query: str) -> None:
    headers = {**ORIGIN, "Connection": "Upgrade", "Upgrade": "websocket"}
    headers |= {"Sec-WebSocket-Key": "c2l4dGVlbiBieXRlcyAhIQ==", "Sec-WebSocket-Version": "13"}
    pair.get(f"{CMS}?{query}", headers=headers)


def test_a_list_is_no_websocket(pair: Pair) -> None:
    headers = {**ORIGIN, "Connection": "Upgrade", "Upgrade": "websocket"}
    headers |= {"Sec-WebSocket-Key": "c2l4dGVlbiBieXRlcyAhIQ==", "Sec-WebSocket-Version": "13"}
    pair.get(f"{CMS}?{MINE}", headers=headers)


@pytest.mark.xfail(strict=True, reason="kube-apiserver refuses a websocket whose client names no origin; here it is of no use")
def test_a_client_that_names_no_origin(pair: Pair) -> None:
    heard(pair, f"{CMS}?watch=1&timeoutSeconds=1&{MINE}", {})
