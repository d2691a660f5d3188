"""kill -9 under concurrent HTTP writers, again and again on one data directory.

Writers create, update, patch and delete over connections of their own and note what was acknowledged; a watcher follows and
resumes from the last revision it has seen; a reader holds a continue token across each crash. Afterwards: nothing that was
acknowledged is missing, no revision ever meant two things, the watcher has seen every change exactly once and in order, and
the pages of a list that was begun before a crash are those of its revision.
"""

from __future__ import annotations

import http.client
import json
import random
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import pytest

from tests.api.harness import JSON_PATCH, MERGE, Answer, Endpoint

from .conftest import SOAK
from .serving import Served, config_map, eventually, make_namespace, send

pytestmark = pytest.mark.story

ROUNDS = 40 if SOAK else 4
WRITERS = 6
_CUT = (OSError, http.client.HTTPException)


@dataclass
class Note:
    """One acknowledged write: what it made of which object, and its revision (0 for a deletion, which is not told)."""

    name: str
    mark: str
    revision: int


@dataclass
class Writer:
    """Has names of its own, so it knows what each must look like; only a write without an answer leaves a doubt."""

    number: int
    collection: str
    chance: random.Random
    acknowledged: list[Note] = field(default_factory=list)
    # What each object is known to be: its mark and revision, or None when it is gone.
    known: dict[str, tuple[str, int] | None] = field(default_factory=dict)
    doubt: tuple[str, str] | None = None
    count: int = 0

    def write(self, endpoint: Endpoint, stop: threading.Event) -> None:
        try:
            while not stop.is_set():
                self.step(endpoint)
        except _CUT:
            return

    def step(self, endpoint: Endpoint) -> None:
        self.count += 1
        name = f"w{self.number}-{self.chance.randrange(8)}"
        mark = f"{self.number}.{self.count}"
        there = self.known.get(name)
        path = f"{self.collection}/{name}"
        padding = "x" * self.chance.randrange(2000)
        if there is None:
            self.doubt = (name, mark)
            answer = send(endpoint, "POST", self.collection, config_map(name, mark=mark, padding=padding))
            self.note(name, mark, answer, 201)
            return
        how = self.chance.randrange(4)
        self.doubt = (name, "" if how == 0 else mark)
        if how == 0:
            self.note(name, "", send(endpoint, "DELETE", path), 200)
        elif how == 1:
            body = config_map(name, mark=mark, padding=padding)
            body["metadata"]["resourceVersion"] = str(there[1])
            self.note(name, mark, send(endpoint, "PUT", path, body), 200)
        elif how == 2:
            self.note(name, mark, send(endpoint, "PATCH", path, {"data": {"mark": mark}}, MERGE), 200)
        else:
            steps = [
                {"op": "test", "path": "/data/mark", "value": there[0]},
                {"op": "replace", "path": "/data/mark", "value": mark},
            ]
            self.note(name, mark, send(endpoint, "PATCH", path, steps, JSON_PATCH), 200)

    def note(self, name: str, mark: str, answer: Answer, expected: int) -> None:
        assert answer.status == expected, (name, mark, answer.body)
        self.doubt = None
        revision = int(answer.json["metadata"]["resourceVersion"]) if mark else 0
        self.acknowledged.append(Note(name, mark, revision))
        self.known[name] = (mark, revision) if mark else None

    def look(self, held: dict[str, tuple[str, int]]) -> None:
        """After a crash: everything is as it was acknowledged, but for the one write whose answer never came."""
        for name, known in self.known.items():
            found = held.get(name)
            if found == known:
                continue
            assert self.doubt is not None and self.doubt[0] == name, f"{name} should be {known} but is {found}"
            assert (found[0] if found else "") == self.doubt[1], f"{name}: neither {known} nor {self.doubt} but {found}"
        if self.doubt is not None:
            self.known[self.doubt[0]] = held.get(self.doubt[0])
        self.doubt = None


@dataclass
class Follower:
    """A watch that goes on from its last revision; `events` has all that it ever saw."""

    collection: str
    revision: int
    events: list[tuple[int, str, str, str]] = field(default_factory=list)

    def follow(self, endpoint: Endpoint, until: Callable[[int], bool]) -> None:
        path = f"{self.collection}?watch=1&allowWatchBookmarks=true&resourceVersion={self.revision}"
        try:
            with endpoint.stream(path) as response:
                assert response.status == 200, response.read()
                while not until(self.revision):
                    line = response.readline()
                    if not line.endswith(b"\n"):
                        return
                    self.see(json.loads(line))
        except _CUT:
            return

    def see(self, event: dict[str, Any]) -> None:
        assert event["type"] != "ERROR", event
        meta = event["object"]["metadata"]
        self.revision = int(meta["resourceVersion"])
        if event["type"] != "BOOKMARK":
            data = event["object"].get("data") or {}
            self.events.append((self.revision, event["type"], meta["name"], data.get("mark", "")))

    def state_at(self, revision: int) -> dict[str, tuple[str, int]]:
        found: dict[str, tuple[str, int]] = {}
        for at, kind, name, mark in self.events:
            if at > revision:
                break
            if kind == "DELETED":
                del found[name]
            else:
                found[name] = (mark, at)
        return found


def items(answer: Answer) -> dict[str, tuple[str, int]]:
    assert answer.status == 200, answer.body
    return {
        item["metadata"]["name"]: (item["data"]["mark"], int(item["metadata"]["resourceVersion"]))
        for item in answer.json["items"]
        if item["metadata"]["name"] != "kube-root-ca.crt"
    }


@dataclass
class Page:
    """The first page of a list, whose rest is asked for after the crash."""

    revision: int
    first: dict[str, tuple[str, int]]
    token: str

    @classmethod
    def take(cls, endpoint: Endpoint, collection: str) -> Page | None:
        try:
            answer = endpoint.request("GET", f"{collection}?limit=4")
        except _CUT:
            return None
        meta = answer.json["metadata"]
        return cls(int(meta["resourceVersion"]), items(answer), meta["continue"]) if meta.get("continue") else None


@pytest.mark.soak
@pytest.mark.timeout(0 if SOAK else 600)
def test_kill_9_under_concurrent_writers_costs_nothing_that_was_acknowledged(serve: Callable[..., Served], seed: int) -> None:
    chance = random.Random(seed)
    served = serve()
    collection = make_namespace(served, "crash")
    start = int(served.endpoint.request("GET", collection).json["metadata"]["resourceVersion"])
    writers = [Writer(number, collection, random.Random(f"{seed}.{number}")) for number in range(WRITERS)]
    follower = Follower(collection, start)
    pages: list[tuple[Page, dict[str, tuple[str, int]]]] = []
    for _ in range(ROUNDS):
        page = _torment(served, writers, follower, chance.uniform(0.05, 1.2))
        assert served.process is not None
        served.start()
        held = items(served.endpoint.request("GET", collection))
        for writer in writers:
            writer.look(held)
        if page is not None:
            pages.append((page, _rest(served.endpoint, collection, page)))
    final = send(served.endpoint, "POST", collection, config_map("final", mark="final"))
    end = int(final.json["metadata"]["resourceVersion"])
    follower.follow(served.endpoint, lambda reached: reached >= end)
    _check(writers, follower, pages)
    assert follower.state_at(end) == items(served.endpoint.request("GET", collection))
    told = _acknowledged(writers)
    print(f"{ROUNDS} kills, {told} writes acknowledged, {len(follower.events)} events watched, {len(pages)} lists continued")
    assert told > ROUNDS
    assert served.stop() == 0
    assert served.tracebacks() == [], served.told()


def _torment(served: Served, writers: list[Writer], follower: Follower, seconds: float) -> Page | None:
    """Writers and a follower at work until the server is killed `seconds` later; a page of a list as it was on the way."""
    stop = threading.Event()
    failures: list[BaseException] = []

    def guarded(work: Callable[[], object]) -> threading.Thread:
        def run() -> None:
            try:
                work()
            except BaseException as error:
                failures.append(error)

        thread = threading.Thread(target=run, daemon=True)
        thread.start()
        return thread

    before = _acknowledged(writers)
    threads = [guarded(lambda writer=writer: writer.write(served.endpoint, stop)) for writer in writers]  # type: ignore[misc]
    threads.append(guarded(lambda: follower.follow(served.endpoint, lambda _: False)))
    # On a busy machine it may take longer than that until they have begun.
    eventually(lambda: bool(failures) or _acknowledged(writers) > before + 1)
    time.sleep(seconds * 0.7)
    page = Page.take(served.endpoint, follower.collection)
    time.sleep(seconds * 0.3)
    served.kill()
    stop.set()
    for thread in threads:
        thread.join(60)
        assert not thread.is_alive()
    if failures:
        raise failures[0]
    return page


def _acknowledged(writers: list[Writer]) -> int:
    return sum(len(writer.acknowledged) for writer in writers)


def _rest(endpoint: Endpoint, collection: str, page: Page) -> dict[str, tuple[str, int]]:
    """Everything from a token on, which is still good after the crash."""
    found: dict[str, tuple[str, int]] = {}
    token = page.token
    while token:
        answer = endpoint.request("GET", f"{collection}?limit=5&continue={token}")
        found |= items(answer)
        meta = answer.json["metadata"]
        assert int(meta["resourceVersion"]) == page.revision
        token = meta.get("continue", "")
    return found


def _check(writers: list[Writer], follower: Follower, pages: list[tuple[Page, dict[str, tuple[str, int]]]]) -> None:
    revisions = [event[0] for event in follower.events]
    assert revisions == sorted(set(revisions)), "the resumed watch repeats itself or goes back"
    by_revision = {at: (name, mark) for at, kind, name, mark in follower.events if kind != "DELETED"}
    for writer in writers:
        for note in writer.acknowledged:
            if note.revision:
                found = by_revision.get(note.revision)
                assert found == (note.name, note.mark), f"revision {note.revision} was {note} and is {found}"
        # What happened to the writer's objects is what it was told, in that order, with its doubts between.
        told = iter([(name, "" if kind == "DELETED" else mark) for _, kind, name, mark in follower.events])
        for note in writer.acknowledged:
            assert any(event == (note.name, note.mark) for event in told), f"no event for {note}"
    alive: set[str] = set()
    for at, kind, name, _ in follower.events:
        assert (kind == "ADDED") == (name not in alive), f"revision {at}: {kind} {name}"
        (alive.discard if kind == "DELETED" else alive.add)(name)
    for page, rest in pages:
        state = follower.state_at(page.revision)
        assert {**page.first, **rest} == state, "the pages of a list are not of one revision"
