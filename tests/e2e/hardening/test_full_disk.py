"""A disk with no room left: writes are refused in words, everything else goes on, and all is well when there is room again."""

from __future__ import annotations

import json
import os
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.e2e.serving import config_map, eventually, make_namespace, send

from .disks import Disk, Housed, small_disk


class Whole(Housed):
    """With the gateway, its audit log and all controllers, as a user has it."""

    def command(self) -> list[str]:
        return [word for word in super().command() if not word.startswith("--controllers")]


class Writer(threading.Thread):
    """Creates one after the other, and notes what was acknowledged and how it was refused."""

    def __init__(self, served: Housed, collection: str, number: int) -> None:
        super().__init__(daemon=True)
        self.endpoint = served.endpoint
        self.collection = collection
        self.number = number
        self.acknowledged: list[str] = []
        self.refused: list[tuple[int, dict[str, Any], dict[str, str]]] = []
        self.stopped = threading.Event()

    def run(self) -> None:
        count = 0
        while not self.stopped.is_set():
            count += 1
            name = f"w{self.number}-{count}"
            answer = send(self.endpoint, "POST", self.collection, config_map(name, a="x" * 3000))
            if answer.status == 201:
                self.acknowledged.append(name)
            else:
                self.refused.append((answer.status, answer.json, answer.headers))
                time.sleep(0.05)


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[Disk]:
    with small_disk(tmp_path / "disk", 40) as found:
        yield found


@pytest.fixture
def housed(disk: Disk, tmp_path: Path) -> Iterator[Callable[..., Housed]]:
    made: list[Housed] = []

    def house(kind: type[Housed] = Housed, **options: bool) -> Housed:
        made.append(kind(disk, tmp_path / "server.log", **options))
        return made[-1]

    yield house
    for each in made:
        each.end()


@pytest.mark.story
def test_a_full_disk_refuses_writes_and_nothing_else(disk: Disk, housed: Callable[..., Housed]) -> None:
    """Database, audit log and log on one disk that fills up under writers, and is freed again."""
    served = housed(Whole, log_on_disk=True)
    served.start()
    _announced(served, 1)
    collection = make_namespace(served, "full")
    endpoint = served.endpoint
    assert send(endpoint, "POST", collection, config_map("before")).status == 201
    revision = endpoint.request("GET", collection).json["metadata"]["resourceVersion"]
    writers = [Writer(served, collection, number) for number in range(4)]
    with endpoint.stream(f"{collection}?watch=1&resourceVersion={revision}") as watch:
        for writer in writers:
            writer.start()
        eventually(lambda: all(writer.acknowledged for writer in writers))
        _fill_the_page(served.log)
        disk.fill()
        # So many that their lines in the audit log are more than what it has room for in a page of its own.
        eventually(lambda: all(len(writer.refused) >= 10 for writer in writers))
        # Reading goes on, new watches too.
        assert endpoint.request("GET", f"{collection}/before").status == 200
        assert endpoint.request("GET", "/readyz").status == 200
        with endpoint.stream(f"{collection}?watch=1&resourceVersion=0") as another:
            assert json.loads(another.readline())["type"] == "ADDED"
        before = [len(writer.acknowledged) for writer in writers]
        disk.free()
        eventually(lambda: all(len(writer.acknowledged) > had for writer, had in zip(writers, before, strict=True)))
        for writer in writers:
            writer.stopped.set()
            writer.join(60)
        acknowledged = {name for writer in writers for name in writer.acknowledged}
        assert _told(watch, len(acknowledged)) == acknowledged
    for status, body, headers in (refusal for writer in writers for refusal in writer.refused):
        assert (status, body["kind"], body["reason"]) == (503, "Status", "ServiceUnavailable"), body
        assert "state.db: database or disk is full" in body["message"] and "free some space" in body["message"], body
        assert headers["retry-after"] == "1" and body["details"]["retryAfterSeconds"] == 1
    # The logs say what they lack, once each; a line may have found the last page that was free.
    eventually(lambda: any(said in served.told() for said in ("lines before this one are missing", "no write is accepted until")))
    eventually(lambda: any("lost" in line for line in _audited(disk)))
    eventually(lambda: "takes writes again" in served.told())
    assert served.tracebacks() == [], served.told()
    served.kill()
    served.start()
    _announced(served, 2)
    assert acknowledged | {"before"} <= _names(served, collection)
    disk.fill()
    assert served.stop() == 0, "a server stops also on a full disk"
    assert served.tracebacks() == [], served.told()


def _announced(served: Housed, times: int) -> None:
    """It has started to the end: on a disk that is full before it would say so, and not start."""
    eventually(lambda: served.told().count("Ctrl-C stops.") == times)


def _fill_the_page(path: Path) -> None:
    """Up to where the next line needs room of its own."""
    with path.open("ab") as file:
        file.write(b"\n" * (-path.stat().st_size % os.sysconf("SC_PAGESIZE")))


def _told(watch: Any, count: int) -> set[str]:
    found = set()
    while len(found) < count:
        event = json.loads(watch.readline())
        assert event["type"] == "ADDED", event
        found.add(event["object"]["metadata"]["name"])
    return found


def _names(served: Housed, collection: str) -> set[str]:
    return {item["metadata"]["name"] for item in served.endpoint.request("GET", collection).json["items"]}


def _audited(disk: Disk) -> list[dict[str, Any]]:
    """The lines of the audit log but for one that was cut short, and for one that is just being written."""
    found = []
    torn = 0
    for line in (disk.seen / "data" / "audit" / "audit.log").read_text().split("\n")[:-1]:
        try:
            found.append(json.loads(line))
        except ValueError:
            torn += 1
    assert torn <= 1
    return found


def test_a_server_that_finds_no_room_to_start_says_so(disk: Disk, housed: Callable[..., Housed]) -> None:
    """In one sentence, wherever it runs out; and what it could write does not keep it from starting later."""
    served = housed()
    for left in (0, 300_000):
        disk.fill(left)
        refused = served.run()
        assert refused.returncode == 1
        said = refused.stderr.strip().splitlines()
        assert (said[-1].startswith("remuda: ") and " full" in said[-1]) or "No space left" in said[-1], refused.stderr
        assert "ree some space" in said[-1] and str(disk.place) in said[-1], refused.stderr
        assert "Traceback" not in refused.stderr
        disk.free()
    served.start()
    collection = make_namespace(served, "later")
    assert send(served.endpoint, "POST", collection, config_map("there")).status == 201
    assert served.stop() == 0
    disk.fill()
    refused = served.run()
    assert refused.returncode == 1
    assert "state.db" in refused.stderr and "free some space" in refused.stderr, refused.stderr
    disk.free()
    served.start()
    assert served.endpoint.request("GET", f"{collection}/there").status == 200
