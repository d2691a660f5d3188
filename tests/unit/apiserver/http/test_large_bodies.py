"""What Python would take long over is done beside the event loop, and comes out the same."""

from __future__ import annotations

import json
import threading
from typing import Any

import pytest
from aiohttp.test_utils import make_mocked_request

from remuda.apiserver.http import request_bodies, responses
from remuda.apiserver.http.negotiation import YAML
from remuda.apiserver.scheme import protobuf
from remuda.kube.encoding import yamlio


@pytest.mark.parametrize(("letters", "beside"), [(10, False), (40_000, True)])
async def test_yaml_is_written_beside_the_loop_when_it_is_long(
    monkeypatch: pytest.MonkeyPatch, letters: int, beside: bool
) -> None:
    threads: list[int] = []
    written = yamlio.dumps

    def dumps(value: Any) -> str:
        threads.append(threading.get_ident())
        return written(value)

    monkeypatch.setattr(yamlio, "dumps", dumps)
    value = {"kind": "List", "items": [{"text": "x" * letters}]}
    response = await responses.body(make_mocked_request("GET", "/"), json.dumps(value).encode(), media_type=YAML)
    assert isinstance(response.body, bytes) and yamlio.loads(response.body) == value
    assert [each != threading.get_ident() for each in threads] == [beside]


def in_protobuf(letters: int) -> bytes:
    """`gracePeriodSeconds: 7`, and a field that nobody knows."""

    def part(number: int, content: bytes) -> bytes:
        size = len(content)
        return bytes((number << 3 | 2, size & 127 | 128, size >> 7 & 127 | 128, size >> 14)) + content

    kind = part(1, b"v1") + part(2, b"DeleteOptions")
    return protobuf.MAGIC + part(1, kind) + part(2, b"\x08\x07" + part(15, b"x" * letters))


@pytest.mark.parametrize("letters", [10, 100_000])
async def test_delete_options_are_read_whatever_they_are_padded_with(letters: int) -> None:
    in_yaml = f"# {'x' * letters}\ngracePeriodSeconds: 7\n".encode()
    assert (await request_bodies.read_delete_options(in_yaml, "application/yaml"))["gracePeriodSeconds"] == 7
    found = await request_bodies.read_delete_options(in_protobuf(letters), protobuf.CONTENT_TYPE)
    assert found["gracePeriodSeconds"] == 7
