"""Fifty large lists at once: writes and watch events get through meanwhile."""

from __future__ import annotations

import http.client
import json
import threading
from concurrent.futures import ThreadPoolExecutor

from .serving import Served, config_map, make_namespace, send

LISTS = 50
OBJECTS = 1500


def test_a_flood_of_lists_starves_neither_writes_nor_watches(served: Served) -> None:
    collection = make_namespace(served, "flood")
    endpoint = served.endpoint
    with ThreadPoolExecutor(8) as pool:
        clients = threading.local()

        def fill(number: int) -> int:
            if not hasattr(clients, "own"):
                clients.own = served.endpoint
            return send(clients.own, "POST", collection, config_map(f"m{number}", a="x" * 3000)).status

        assert set(pool.map(fill, range(OBJECTS))) == {201}
    start = endpoint.request("GET", f"{collection}?limit=1").json["metadata"]["resourceVersion"]
    finished: list[int] = []
    begun = threading.Barrier(LISTS + 1)

    def list_all() -> int:
        own = served.endpoint
        own.request("GET", "/readyz")
        begun.wait(180)
        status = own.request("GET", collection).status
        finished.append(status)
        return status

    with ThreadPoolExecutor(LISTS) as pool, endpoint.stream(f"{collection}?watch=1&resourceVersion={start}") as watch:
        answers = [pool.submit(list_all) for _ in range(LISTS)]
        begun.wait(180)
        # Writes one after the other, each seen by the watch, while the lists are at it.
        during = 0
        for number in range(20):
            assert send(endpoint, "POST", collection, config_map(f"during{number}")).status == 201
            event = json.loads(watch.readline())
            assert event["object"]["metadata"]["name"] == f"during{number}"
            if len(finished) < LISTS:
                during = number + 1
        # One write at a time against fifty lists: in a queue behind them all, none would have been made before their end.
        assert during >= 5, f"only {during} of 20 writes were made before all lists were answered"
        statuses = [answer.result(timeout=120) for answer in answers]
    assert set(statuses) <= {200, 429}, statuses
    assert statuses.count(200) >= 10


def test_who_is_turned_away_is_told_when_to_come_back(served: Served) -> None:
    """The queue for large lists is bounded; beyond it the answer is 429 with Retry-After, at once."""
    collection = make_namespace(served, "queue")
    endpoint = served.endpoint
    for number in range(600):
        assert send(endpoint, "POST", collection, config_map(f"m{number}", a="x" * 500)).status == 201
    waiting = []
    for _ in range(260):
        connection = http.client.HTTPSConnection("127.0.0.1", served.port, context=endpoint.context, timeout=240)
        connection.connect()
        waiting.append(connection)
    for connection in waiting:
        connection.putrequest("GET", collection)
        connection.endheaders()
    statuses = []
    for connection in waiting:
        response = connection.getresponse()
        body = response.read()
        statuses.append(response.status)
        if response.status == 429:
            assert response.headers["Retry-After"]
            assert json.loads(body)["reason"] == "TooManyRequests"
        connection.close()
    assert set(statuses) <= {200, 429}, set(statuses)
    assert send(endpoint, "POST", collection, config_map("after")).status == 201
