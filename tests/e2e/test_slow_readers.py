"""A watcher that does not read is cut off before it costs much memory, and the others notice nothing."""

from __future__ import annotations

import itertools
import json
import ssl
from typing import Any

from tests.api.harness import Endpoint

from .serving import Served, config_map, eventually, make_namespace, send

# Three times what one watcher may have waiting for it (8 MiB).
SIZE, CHANGES = 400_000, 60
SLEEPERS, ROUNDS = 6, 3


def _open_watch(served: Served, collection: str) -> ssl.SSLSocket:
    connection = served.connect()
    connection.sendall(f"GET {collection}?watch=1&resourceVersion=0 HTTP/1.1\r\nHost: x\r\n\r\n".encode())
    return connection


def test_watchers_that_never_read_are_cut_and_memory_stays_bounded(served: Served) -> None:
    collection = make_namespace(served, "slow")
    endpoint = served.endpoint
    assert send(endpoint, "POST", collection, config_map("big", a="x" * SIZE)).status == 201
    # So that what the work itself takes is not counted: the ring of changes keeps the newest ones anyway.
    for number in range(CHANGES):
        _change(endpoint, collection, f"warm {number}")
    sizes = [served.memory()]
    sleepers = []
    with endpoint.stream(f"{collection}?watch=1&resourceVersion=0&fieldSelector=metadata.name=big") as awake:
        assert json.loads(awake.readline())["type"] == "ADDED"
        for round_ in range(ROUNDS):
            sleepers += [_open_watch(served, collection) for _ in range(SLEEPERS)]
            for number in range(CHANGES):
                turn = f"turn {round_}.{number}"
                _change(endpoint, collection, turn)
                event: dict[str, Any] = json.loads(awake.readline())
                assert event["object"]["data"]["turn"] == turn, "a reader that keeps up misses nothing"
            sizes.append(served.memory())
    unread = SIZE * CHANGES * SLEEPERS
    shown = ", ".join(f"{size >> 20}" for size in sizes)
    print(f"{unread >> 20} MiB not read by {SLEEPERS} sleepers in each round; resident MiB before and after each: {shown}")
    # The changes themselves stay in memory while a watch may resume from them; what is not read does not.
    kept = SIZE * CHANGES
    for before, after in itertools.pairwise(sizes[1:]):
        assert after - before < kept + unread / 4, "the server keeps what its slow readers do not read"
    # The one that was awake has just left, which takes the server a moment to notice.
    eventually(lambda: _watchers(served) <= 2, why="the sleepers are still being watched for")
    for sleeper in sleepers:
        assert _ends(sleeper), "a sleeper that wakes up finds its watch ended"


def _change(writer: Endpoint, collection: str, turn: str) -> None:
    body = json.dumps({"data": {"turn": turn}}).encode()
    assert writer.request("PATCH", f"{collection}/big", body, {"Content-Type": "application/merge-patch+json"}).status == 200


def _watchers(served: Served) -> int:
    """How many watches of config maps are open, ours and the server's own."""
    text = served.endpoint.request("GET", "/metrics").raw.decode()
    lines = [line for line in text.splitlines() if line.startswith("apiserver_registered_watchers{") and '"ConfigMap"' in line]
    return sum(int(float(line.split()[-1])) for line in lines)


def _ends(connection: ssl.SSLSocket) -> bool:
    connection.settimeout(90)
    try:
        while connection.recv(1 << 20):
            pass
    except (ssl.SSLError, ConnectionError):
        return True
    except TimeoutError:
        return False
    finally:
        connection.close()
    return True
