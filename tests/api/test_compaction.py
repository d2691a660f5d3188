"""After compaction: the past is gone, and a client is told so and how to go on.

Both servers are started for this file: Remuda with a window of a second; the real one without its watch cache, which would
otherwise still know the past long after etcd has forgotten it.
"""

from __future__ import annotations

import json
import urllib.request
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest

from tests.real import cluster as real_cluster
from tests.real import need

from .builders import CMS, MINE, NAMESPACES, cm, namespace
from .harness import OURS, REAL, Both, Endpoint, Pair, RemudaProcess, backing
from .masks import masked
from .test_watch_websocket import ORIGIN, Heard

# It compacts the real server's etcd, so there is nothing to record.
pytestmark = pytest.mark.live

SIDES = (OURS, REAL)
NS = "compaction"


@pytest.fixture(scope="module")
def forgetful(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Pair, str]]:
    need.programs("kubernetes", "etcd")
    with ExitStack() as stack:
        # Not the one that others use: what is forgotten is forgotten for all.
        etcd = stack.enter_context(backing())
        process = RemudaProcess(Path(tmp_path_factory.mktemp("remuda")), "--watch-window", "1s", etcd=etcd)
        process.start()
        stack.callback(process.stop)
        with real_cluster.RealCluster(fsync=False, apiserver_args=["--watch-cache=false"]) as real:
            theirs = Endpoint(real.url, Path(real.ca_pem), Path(real.admin_cert), Path(real.admin_key))
            pair = Pair({OURS: process.endpoint, REAL: theirs}, ns=NS)
            pair.post(NAMESPACES, namespace(NS))
            yield pair, real.etcd_url


def compact(etcd: str, revision: str) -> None:
    body = json.dumps({"revision": revision, "physical": True}).encode()
    urllib.request.urlopen(urllib.request.Request(f"{etcd}/v3/kv/compaction", body)).close()


@pytest.fixture(scope="module")
def past(forgetful: tuple[Pair, str]) -> tuple[Pair, Both]:
    """A first page, and then enough changes and time that its revision is gone on both sides."""
    pair, etcd = forgetful
    for index in range(6):
        pair.post(CMS, cm(f"c{index}"))
    page = pair.get(CMS + "?limit=2&labelSelector=!nothing", compare=False)
    for index in range(6):
        pair.patch(f"{CMS}/c{index}", {"data": {"x": "later"}})
    newest = pair.get(CMS, compare=False)
    compact(etcd, newest.real.json["metadata"]["resourceVersion"])
    pair.eventually(exactly(page), lambda answer: answer.status == 410, compare=False)
    return pair, page


def version(page: Both, side: str) -> str:
    return str(page[side].json["metadata"]["resourceVersion"])


def exactly(page: Both) -> Any:
    return lambda side: f"{CMS}?resourceVersionMatch=Exact&resourceVersion={version(page, side)}"


def test_an_exact_list_of_the_past_is_gone(past: tuple[Pair, Both]) -> None:
    pair, page = past
    assert pair.get(exactly(page)).status == 410


def test_an_expired_page_says_how_to_go_on(past: tuple[Pair, Both]) -> None:
    pair, page = past
    gone = pair.get(lambda side: f"{CMS}?limit=2&continue={quote(page[side].json['metadata']['continue'])}")
    assert gone.status == 410
    rest = pair.get(lambda side: f"{CMS}?limit=3&continue={quote(gone[side].json['metadata']['continue'])}", ignore=names)
    assert rest.status == 200


def names(body: Any) -> Any:
    return [item["metadata"]["name"] for item in body["items"]], "continue" in body["metadata"]


def test_a_list_not_older_than_the_past_is_the_present(past: tuple[Pair, Both]) -> None:
    pair, page = past
    pair.get(lambda side: f"{CMS}?resourceVersion={version(page, side)}&fieldSelector=metadata.name=c0")


def test_a_watch_from_the_past_ends_with_an_error_event(past: tuple[Pair, Both]) -> None:
    pair, page = past
    seen = {}
    for side in SIDES:
        where = f"{CMS}?watch=1&timeoutSeconds=60&resourceVersion={version(page, side)}".format(ns=NS)
        with pair.endpoints[side].stream(where) as response:
            assert response.status == 200
            event = masked(json.loads(response.readline()))
            # With its watch cache on, the real server words it as we do: "too old resource version: 5 (9)".
            event["object"].pop("message")
            seen[side] = event
    assert seen[OURS] == seen[REAL]
    assert seen[OURS]["object"]["code"] == 410


def test_a_websocket_from_the_past_gets_the_error_as_an_event(past: tuple[Pair, Both]) -> None:
    pair, page = past
    seen = {}
    for side in SIDES:
        where = f"{CMS}?watch=1&timeoutSeconds=60&resourceVersion={version(page, side)}".format(ns=NS)
        heard = Heard(pair.endpoints[side], where, ORIGIN)
        ((kind, text),) = heard.messages
        event = masked(json.loads(text))
        # The words differ as in the test above.
        event["object"].pop("message")
        seen[side] = heard.status, kind, event, heard.closed
    assert seen[OURS] == seen[REAL]
    assert seen[OURS][2]["object"]["code"] == 410


def test_a_watch_from_the_present_goes_on(past: tuple[Pair, Both]) -> None:
    pair, _ = past
    now = pair.get(CMS, compare=False)
    pair.watch_both(
        lambda side: f"{CMS}?watch=1&{MINE}&resourceVersion={version(now, side)}", lambda: pair.post(CMS, cm("new")), 1
    )
