"""Several `remuda serve` processes on one etcd, and a client that goes to another when one does not answer."""

from __future__ import annotations

import base64
import contextlib
import http.client
import itertools
import json
import random
import shutil
import signal
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

from tests.api.harness import Answer, Endpoint
from tests.real.etcd import EtcdCluster

from .serving import Served, eventually

Obj = dict[str, Any]

LEASE = "/apis/coordination.k8s.io/v1/namespaces/kube-system/leases/remuda-controllers"
# A leader that is silent is replaced within seconds, so that tests need not wait longer.
TERM = ("--leader-elect-lease-duration=4s", "--leader-elect-renew-deadline=2500ms", "--leader-elect-retry-period=500ms")
TOKEN = "the token of the tests"
_prefixes = itertools.count(1)


class Replica(Served):
    """One of several; `controllers` as the option of that name."""

    def __init__(self, directory: Path, *options: str, controllers: str = "-capi,-access") -> None:
        super().__init__(directory)
        self.sharing = [*TERM, *options, f"--controllers={controllers}"]

    def command(self) -> list[str]:
        return [*super().command(), *self.sharing]

    def ask(self, method: str, path: str, body: Any = None, **headers: str) -> Answer:
        data = None if body is None else json.dumps(body).encode()
        kind = {"Content-Type": "application/json"} if data is not None else {}
        return self.endpoint.request(method, path, data, {**kind, **headers})

    @property
    def lease(self) -> Obj:
        answer = self.ask("GET", LEASE)
        return dict(answer.json["spec"]) if answer.status == 200 else {}

    def signal(self, number: signal.Signals) -> None:
        assert self.process is not None
        self.process.send_signal(number)

    def identities(self) -> list[str]:
        """As whom it was a candidate, in its lives so far."""
        marker = "waiting for the lease kube-system/remuda-controllers as "
        return [line.partition(marker)[2].strip() for line in self.told().splitlines() if marker in line]

    def told(self) -> str:
        return super().told() if self.log.exists() else ""

    def end(self) -> None:
        if self.alive:
            self.signal(signal.SIGCONT)
        super().end()


class Replicas:
    """Made in `directory`, on a part of etcd of their own."""

    def __init__(self, directory: Path, etcd: EtcdCluster, *options: str, keys: str = "token") -> None:
        self.directory = directory
        self.etcd = etcd
        self.prefix = f"/t{next(_prefixes)}"
        self.options = options
        self.keys = keys
        self.all: list[Replica] = []

    def add(self, **changes: str) -> Replica:
        number = len(self.all)
        common = ["--etcd", ",".join(self.etcd.urls), "--etcd-prefix", f"{self.prefix}/registry", *self._keys(number)]
        made = Replica(self.directory / f"r{number}", *common, *self.options, **changes)
        # What it logs about leadership is how tests know who is who.
        made.sharing.append("-v")
        self.all.append(made)
        return made

    def _keys(self, number: int) -> list[str]:
        if self.keys == "token":
            path = self.directory / "token"
            path.write_text(TOKEN)
            path.chmod(0o600)
            return ["--token-file", str(path)]
        path = self.directory / f"pki{number}"
        if number:
            # As somebody does who sets up another machine.
            shutil.copytree(self.directory / "pki0", path)
        return ["--pki-dir", str(path)]

    def start(self, *which: Replica) -> None:
        """All at once, which is harder for them than one by one."""
        failed: list[BaseException] = []

        def begin(replica: Replica) -> None:
            try:
                replica.start()
            except BaseException as error:
                failed.append(error)

        threads = [threading.Thread(target=begin, args=(each,)) for each in which or self.all]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        if failed:
            raise failed[0]

    def end(self) -> None:
        for each in self.all:
            each.end()

    def leader(self, asked: Replica) -> Replica | None:
        """Who holds the Lease, as `asked` knows."""
        holder = asked.lease.get("holderIdentity") or ""
        return next((each for each in self.all if holder and holder in each.identities()), None)

    def wait_leader(self, asked: Replica, *others_than: Replica, seconds: float = 90) -> Replica:
        found: list[Replica] = []

        def leads() -> bool:
            leader = self.leader(asked)
            if leader is None or leader in others_than:
                return False
            found.append(leader)
            return True

        eventually(leads, seconds, "nobody leads")
        return found[0]

    def stored(self, key: str) -> Obj | None:
        """What etcd itself says of a key: value, create and mod revision."""
        encoded = base64.b64encode(f"{self.prefix}{key}".encode()).decode()
        found = self.etcd.call("/v3/kv/range", {"key": encoded}).get("kvs") or []
        if not found:
            return None
        kv = found[0]
        return {
            "value": base64.b64decode(kv.get("value", "")),
            "mod": int(kv["mod_revision"]),
            "create": int(kv["create_revision"]),
        }

    def fence(self) -> int:
        found = self.stored("/remuda/fences/remuda-controllers")
        return found["mod"] if found else 0


class Patient:
    """A client that asks another server when one refuses, hangs up or is busy; what else it is told, it takes.

    `troubles` are the reasons for which it asked again.
    """

    RETRIED = (429, 500, 502, 503, 504)

    def __init__(self, replicas: Iterable[Replica], seed: int) -> None:
        self._replicas = list(replicas)
        self._random = random.Random(seed)
        self._endpoints: dict[Replica, Endpoint] = {}
        self.troubles: list[str] = []
        self._preferred = self._random.randrange(len(self._replicas))

    def request(self, method: str, path: str, body: Any = None, seconds: float = 60) -> tuple[Answer, bool]:
        """The answer, and whether an earlier try may have been done, too."""
        data = None if body is None else json.dumps(body).encode()
        headers = {"Content-Type": "application/json"} if data is not None else {}
        end = time.monotonic() + seconds
        doubtful = False
        while True:
            replica = self._replicas[self._preferred]
            try:
                endpoint = self._endpoints.setdefault(replica, replica.endpoint)
                answer = endpoint.request(method, path, data, headers, again=False)
                if answer.status not in self.RETRIED:
                    return answer, doubtful
                self.troubles.append(f"{answer.status} {answer.body}")
                doubtful = doubtful or answer.status in (500, 504)
            except ConnectionRefusedError:
                self.troubles.append("refused")
            except (OSError, http.client.HTTPException) as error:
                self.troubles.append(repr(error))
                doubtful = True
            if time.monotonic() > end:
                raise AssertionError(f"{method} {path} was not answered: {self.troubles[-10:]}")
            self._preferred = (self._preferred + 1) % len(self._replicas)
            time.sleep(self._random.uniform(0.005, 0.05))

    def create(self, collection: str, obj: Obj) -> None:
        """Exactly once, since the name is its own."""
        answer, doubtful = self.request("POST", collection, obj)
        if answer.status == 409 and doubtful:
            return
        assert answer.status == 201, (answer.status, answer.body, doubtful)

    def increment(self, path: str, slot: str) -> None:
        """One more in a place of the object that nobody else writes to."""
        wanted: int | None = None
        while True:
            answer, _ = self.request("GET", path)
            assert answer.status == 200, answer.body
            obj = answer.json
            now = int(obj.setdefault("data", {}).get(slot, "0"))
            wanted = now + 1 if wanted is None else wanted
            if now == wanted:
                return
            assert now == wanted - 1, f"{slot} was {wanted - 1} and is {now}"
            obj["data"][slot] = str(wanted)
            answer, doubtful = self.request("PUT", path, obj)
            if answer.status == 200 and not doubtful:
                return
            assert answer.status in (200, 409), (answer.status, answer.body)


class Follower(threading.Thread):
    """Follows a collection through whichever server answers; `seen` are names and revisions of what was added, as they came."""

    def __init__(self, replicas: list[Replica], collection: str, since: str) -> None:
        super().__init__(daemon=True)
        self._replicas = replicas
        self._collection = collection
        self._since = since
        self.seen: list[tuple[str, int]] = []
        self.relisted = 0
        self.enough = threading.Event()

    def run(self) -> None:
        for replica in itertools.cycle(self._replicas):
            if self.enough.is_set():
                return
            with contextlib.suppress(OSError, http.client.HTTPException, ValueError):
                self._follow(replica)
            time.sleep(0.02)

    def _follow(self, replica: Replica) -> None:
        path = f"{self._collection}?watch=1&allowWatchBookmarks=true&timeoutSeconds=5&resourceVersion={self._since}"
        with replica.endpoint.stream(path) as response:
            if response.status != 200:
                return
            while line := response.readline():
                event = json.loads(line)
                if event["type"] == "ERROR":
                    self.relisted += event["object"].get("code") == 410
                    return
                self._since = event["object"]["metadata"]["resourceVersion"]
                if event["type"] == "ADDED":
                    self.seen.append((event["object"]["metadata"]["name"], int(self._since)))


def running(work: Callable[[int, threading.Event], None], count: int) -> Iterator[None]:
    """For `contextmanager`: `count` threads of it run meanwhile; what one of them raises is raised here."""
    stop = threading.Event()
    failed: list[BaseException] = []

    def run(number: int) -> None:
        try:
            work(number, stop)
        except BaseException as error:
            failed.append(error)
            stop.set()

    threads = [threading.Thread(target=run, args=(number,), daemon=True) for number in range(count)]
    for thread in threads:
        thread.start()
    try:
        yield
    finally:
        stop.set()
        for thread in threads:
            thread.join(120)
    if failed:
        raise failed[0]
