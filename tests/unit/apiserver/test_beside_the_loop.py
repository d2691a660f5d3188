"""What Python would take long over is done beside the event loop, and comes out the same."""

from __future__ import annotations

import json
import threading
from typing import Any

import pytest
from aiohttp.test_utils import make_mocked_request

from remuda.apiserver.http import reading, responses
from remuda.apiserver.http.negotiation import YAML
from remuda.kube import yamlio


@pytest.mark.parametrize(("letters", "beside"), [(10, False), (40_000, True)])
async def test_yaml_is_written_beside_the_loop_when_it_is_long(
    monkeypatch: pytest.MonkeyPatch, letters: int, beside: bool
) -> None:
    threads: list[threading.Thread] = []
    written = yamlio.dumps

    def dumps(value: Any) -> str:
        threads.append(threading.current_thread())
        return written(value)

    monkeypatch.setattr(yamlio, "dumps", dumps)
    value = {"kind": "List", "items": [{"text": "x" * letters}]}
    response = await responses.body(make_mocked_request("GET", "/"), json.dumps(value).encode(), media_type=YAML)
    assert isinstance(response.body, bytes) and yamlio.loads(response.body) == value
    assert [each is not threading.main_thread() for each in threads] == [beside]


@pytest.mark.parametrize("letters", [10, 40_000])
async def test_delete_options_are_read_whatever_they_are_padded_with(letters: int) -> None:
    said = f"# {'x' * letters}\ngracePeriodSeconds: 7\n".encode()
    assert (await reading.read_delete_options(said, "application/yaml"))["gracePeriodSeconds"] == 7
