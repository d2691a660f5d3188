"""Two servers side by side, and requests that go to both.

A :class:`Pair` sends each request to Remuda and to the real server, compares status, body and Warning headers under
:mod:`.masks`, and gives back both answers so that the next request can use what each server said.
"""

from __future__ import annotations

import http.client
import json
import os
import random
import signal
import socket
import ssl
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Self
from urllib.parse import urlsplit

import yaml

from tests.real import need
from tests.real.etcd import Chaos, EtcdCluster
from tests.real.ports import free_port

from . import recording
from .masks import masked

OURS, REAL = "ours", "real"
SIDES = (OURS, REAL)
MERGE, JSON_PATCH, STRATEGIC, APPLY = (
    "application/merge-patch+json",
    "application/json-patch+json",
    "application/strategic-merge-patch+json",
    "application/apply-patch+yaml",
)


@dataclass
class Answer:
    status: int
    headers: dict[str, str]
    warnings: list[str]
    raw: bytes

    @classmethod
    def read(cls, response: http.client.HTTPResponse) -> Self:
        headers = {name.lower(): value for name, value in response.headers.items()}
        return cls(response.status, headers, response.headers.get_all("Warning") or [], response.read())

    @property
    def json(self) -> Any:
        return json.loads(self.raw) if self.raw else None

    @property
    def body(self) -> Any:
        try:
            return self.json
        except ValueError:
            return self.raw.decode(errors="replace")


# What kube-apiserver says while a cache of its own is being made, as that of a CRD is when it is new or has changed, and to a
# request that has come to a definition's handlers in the moment when new ones replace them. It has done nothing for such a
# request; all clients come back then, and so do ours.
_LATER = (b"storage is (re)initializing", b"apiserver is shutting down")


def _is_later(status: int, body: bytes) -> bool:
    return status in (429, 503) and any(words in body for words in _LATER)


class Endpoint:
    """One server as a client with an admin certificate sees it."""

    def __init__(self, url: str, ca: Path, cert: Path | None, key: Path | None) -> None:
        parts = urlsplit(url)
        self.url = url
        self.host, self.port = parts.hostname or "", parts.port or 443
        self.context = ssl.create_default_context(cafile=str(ca))
        self.anonymous_context = ssl.create_default_context(cafile=str(ca))
        if cert is not None:
            self.context.load_cert_chain(str(cert), str(key))
        self._connection: http.client.HTTPSConnection | None = None

    def request(
        self,
        method: str,
        path: str,
        body: bytes | None = None,
        headers: dict[str, str] | None = None,
        anonymous: bool = False,
        again: bool = True,
    ) -> Answer:
        """`again`: once more when a connection that was kept turns out to be closed."""
        headers = {"User-Agent": "differential/1.0", "Accept": "application/json", **(headers or {})}
        end = time.monotonic() + 90
        while True:
            answer = self._request(method, path, body, headers, anonymous, again)
            if not _is_later(answer.status, answer.raw) or time.monotonic() > end:
                return answer
            time.sleep(0.02)

    def _request(
        self, method: str, path: str, body: bytes | None, headers: dict[str, str], anonymous: bool, again: bool
    ) -> Answer:
        if anonymous:
            connection = http.client.HTTPSConnection(self.host, self.port, context=self.anonymous_context, timeout=60)
            try:
                return self._exchange(connection, method, path, body, headers)
            finally:
                connection.close()
        for attempt in (1, 2):
            if self._connection is None:
                self._connection = http.client.HTTPSConnection(self.host, self.port, context=self.context, timeout=60)
            try:
                return self._exchange(self._connection, method, path, body, headers)
            except (http.client.RemoteDisconnected, ConnectionError, ssl.SSLError):
                self._connection.close()
                self._connection = None
                if attempt == 2 or not again:
                    raise
        raise AssertionError

    def fresh(self) -> Endpoint:
        """The same with a connection of its own."""
        other = Endpoint.__new__(Endpoint)
        other.__dict__.update({**self.__dict__, "_connection": None})
        return other

    def signed(self, ca: Path, cert: Path, key: Path, *, verify: bool = True) -> Endpoint:
        """The same server for a client with another certificate."""
        other = Endpoint(self.url, ca, cert, key)
        if not verify:
            other.context.check_hostname = False
            other.context.verify_mode = ssl.CERT_NONE
        return other

    @staticmethod
    def _exchange(
        connection: http.client.HTTPSConnection, method: str, path: str, body: bytes | None, headers: dict[str, str]
    ) -> Answer:
        connection.request(method, path, body=body, headers=headers)
        return Answer.read(connection.getresponse())

    @contextmanager
    def stream(self, path: str, headers: dict[str, str] | None = None) -> Iterator[http.client.HTTPResponse]:
        headers = {"Accept": "application/json", "User-Agent": "differential/1.0", **(headers or {})}
        end = time.monotonic() + 90
        while True:
            connection = http.client.HTTPSConnection(self.host, self.port, context=self.context, timeout=60)
            connection.request("GET", path, headers=headers)
            response = connection.getresponse()
            # Only an error has a body at once: to look into a watch is to wait for what it tells first.
            if response.status == 200 or not _is_later(response.status, response.peek(1000)) or time.monotonic() > end:
                break
            connection.close()
            time.sleep(0.02)
        try:
            yield response
        finally:
            # A watch never ends by itself: cut it.
            if connection.sock is not None:
                connection.sock.close()
            response.close()
            connection.close()


class Truth(Endpoint):
    """The real server: what it says is recorded, or comes from the recording, and then there is no `live` one."""

    def __init__(self, live: Endpoint | None) -> None:
        self.live = live
        self.url = live.url if live is not None else "https://127.0.0.1:6443"

    def request(
        self,
        method: str,
        path: str,
        body: bytes | None = None,
        headers: dict[str, str] | None = None,
        anonymous: bool = False,
        again: bool = True,
    ) -> Answer:
        def live() -> Any:
            assert self.live is not None
            answer = self.live.request(method, path, body, headers, anonymous, again)
            return [answer.status, answer.headers, answer.warnings, recording.packed(answer.raw)]

        status, found, warnings, raw = recording.current().take(f"{method} {path}", _sent(body, headers), live)
        return Answer(status, found, warnings, recording.unpacked(raw))

    @contextmanager
    def stream(self, path: str, headers: dict[str, str] | None = None) -> Iterator[Any]:
        tape, key = recording.current(), f"WATCH {path}"
        if tape.plays:
            yield Told(tape.take(key, _sent(None, headers), lambda: None))
            return
        assert self.live is not None
        with self.live.stream(path, headers) as response:
            shown = {name: value for name, value in response.headers.items() if name.lower() != "date"}
            kept: Any = tape.take(key, _sent(None, headers), lambda: {"status": response.status, "headers": shown, "read": []})
            yield Telling(response, kept["read"])

    def fresh(self) -> Endpoint:
        assert self.live is not None
        return self.live.fresh()

    def signed(self, ca: Path, cert: Path, key: Path, *, verify: bool = True) -> Endpoint:
        return Truth(None if self.live is None else self.live.signed(ca, cert, key, verify=verify))


def _sent(body: bytes | None, headers: dict[str, str] | None) -> str:
    kept = {name: value for name, value in (headers or {}).items() if name.lower() not in ("authorization", "if-none-match")}
    return recording.sent(body, **kept)


class Telling:
    """A stream of the real server; what is read of it is kept."""

    def __init__(self, response: http.client.HTTPResponse, kept: list[Any]) -> None:
        self._response, self._kept = response, kept
        self.status, self.headers = response.status, response.headers

    def readline(self) -> bytes:
        return self._keep(self._response.readline())

    def read(self) -> bytes:
        return self._keep(self._response.read())

    def _keep(self, data: bytes) -> bytes:
        self._kept.append(recording.packed(data))
        return data


class Told:
    """The same out of a recording."""

    def __init__(self, kept: Any) -> None:
        self.status = int(kept["status"])
        self.headers = http.client.HTTPMessage()
        for name, value in kept["headers"].items():
            self.headers[name] = value
        self._left = [recording.unpacked(each) for each in kept["read"]]

    def read(self) -> bytes:
        assert self._left, "more is read of a watch than was recorded"
        return self._left.pop(0)

    readline = read


class Watch:
    """A watch on one server; `next(n)` reads n events."""

    def __init__(self, response: Any) -> None:
        self._response = response
        self.status = response.status

    def next(self, count: int) -> list[dict[str, Any]]:
        events: list[dict[str, Any]] = []
        while len(events) < count:
            line = self._response.readline()
            if not line:
                break
            events += told([line])
        return events


def told(lines: list[bytes]) -> list[dict[str, Any]]:
    """The events of a watch. A mere mark of time comes when it comes, and tells nothing."""
    events = [json.loads(line) for line in lines]
    return [event for event in events if event["type"] != "BOOKMARK" or "k8s.io/initial-events-end" in json.dumps(event)]


@dataclass
class Both:
    ours: Answer
    real: Answer

    def __getitem__(self, side: str) -> Answer:
        return self.ours if side == OURS else self.real

    @property
    def status(self) -> int:
        return self.real.status

    @property
    def json(self) -> Any:
        """The real server's body, for what is the same on both."""
        return self.real.json


# A body may depend on the side: it is then made from what that server said before.
Body = Any | Callable[[str], Any]


@dataclass
class Pair:
    endpoints: dict[str, Endpoint]
    ns: str = "default"
    log: list[str] = field(default_factory=list)

    def send(
        self,
        method: str,
        path: Body,
        body: Body = None,
        headers: dict[str, str] | None = None,
        *,
        content_type: str = "application/json",
        compare: bool = True,
        raw: bytes | None = None,
        anonymous: bool = False,
        ignore: Callable[[Any], Any] | None = None,
    ) -> Both:
        """Send to both; `ignore` takes a masked body and gives what is to be compared."""
        answers = {}
        for side in SIDES:
            where = path(side) if callable(path) else path
            data = raw
            given = body(side) if callable(body) else body
            if given is not None:
                data = given if isinstance(given, bytes) else json.dumps(given).encode()
            sent = dict(headers or {})
            if data is not None:
                sent.setdefault("Content-Type", content_type)
            answers[side] = self.endpoints[side].request(
                method, where.format(ns=self.ns) if "{ns}" in where else where, data, sent, anonymous
            )
        both = Both(answers[OURS], answers[REAL])
        if compare:
            compare_answers(both, f"{method} {path if not callable(path) else path(REAL)}", ignore)
        return both

    def get(self, path: Body, **kwargs: Any) -> Both:
        return self.send("GET", path, **kwargs)

    def post(self, path: Body, body: Body = None, **kwargs: Any) -> Both:
        return self.send("POST", path, body, **kwargs)

    def put(self, path: Body, body: Body = None, **kwargs: Any) -> Both:
        return self.send("PUT", path, body, **kwargs)

    def delete(self, path: Body, body: Body = None, **kwargs: Any) -> Both:
        return self.send("DELETE", path, body, **kwargs)

    def patch(self, path: Body, body: Body, kind: str = MERGE, **kwargs: Any) -> Both:
        return self.send("PATCH", path, body, content_type=kind, **kwargs)

    def apply(self, path: str, body: Body, manager: str = "tester", force: bool = False, **kwargs: Any) -> Both:
        joint = "&" if "?" in path else "?"
        where = f"{path}{joint}fieldManager={manager}" + ("&force=true" if force else "")
        return self.send("PATCH", where, body, content_type=APPLY, **kwargs)

    def watch_both(
        self,
        path: Body,
        act: Callable[[], object],
        count: int,
        ignore: Callable[[Any], Any] | None = None,
        headers: dict[str, str] | None = None,
    ) -> dict[str, list[Any]]:
        """Open a watch on both, act, read `count` events from each, and compare them."""
        found: dict[str, list[Any]] = {}
        paths = {side: (path(side) if callable(path) else path).format(ns=self.ns) for side in SIDES}
        mine, theirs = (self.endpoints[side].stream(paths[side], headers) for side in SIDES)
        with mine as ours, theirs as real:
            act()
            found[OURS], found[REAL] = Watch(ours).next(count), Watch(real).next(count)
        left, right = masked(found[OURS]), masked(found[REAL])
        if ignore is not None:
            left, right = ignore(left), ignore(right)
        recording.current().compared(f"WATCH {paths[REAL]}", right)
        assert left == right, difference(left, right, f"WATCH {path}")
        return found

    def eventually(
        self,
        path: Body,
        done: Callable[[Answer], bool],
        quiet: float = 90.0,
        compare: bool = True,
        ignore: Callable[[Any], Any] | None = None,
        headers: dict[str, str] | None = None,
    ) -> Both:
        """Poll until `done` holds on both sides, then compare these answers: the next ones may be others again."""
        for attempt in recording.attempts(str(path), quiet):
            both = self.send("GET", path, headers=headers, compare=False)
            if done(both.ours) and done(both.real):
                if compare:
                    compare_answers(both, f"GET {path if not callable(path) else path(REAL)}", ignore)
                return both
            attempt.saw({side: (both[side].status, both[side].body, done(both[side])) for side in SIDES})
        raise AssertionError


def settled(body: Any) -> Any:
    """A refused custom object with its causes in one order: the real server has that of a Go map, which is none."""
    details = body.get("details") if isinstance(body, dict) else None
    if not isinstance(details, dict) or not str(details.get("group")).endswith((".example.com", ".example.io")):
        return body
    causes = details.get("causes") or []
    if len(causes) < 2:
        return body
    ordered = sorted(causes, key=lambda cause: (cause.get("field", ""), cause.get("message", "")))
    return {**body, "details": {**details, "causes": ordered}, "message": "".join(sorted(body["message"]))}


def compare_answers(both: Both, what: str, ignore: Callable[[Any], Any] | None = None) -> None:
    def shown(answer: Answer) -> Any:
        body = settled(masked(answer.body))
        if ignore is not None:
            body = ignore(body)
        return {"status": answer.status, "body": body, "warnings": masked(answer.warnings)}

    left, right = shown(both.ours), shown(both.real)
    recording.current().compared(what, right)
    assert left == right, difference(left, right, what)


def difference(ours: Any, real: Any, what: str) -> str:
    import difflib

    left = yaml.safe_dump(real, sort_keys=True, width=200).splitlines()
    right = yaml.safe_dump(ours, sort_keys=True, width=200).splitlines()
    lines = list(difflib.unified_diff(left, right, "kube-apiserver", "remuda", lineterm="", n=4))
    return f"{what}\n" + "\n".join(lines[:120])


class RemudaProcess:
    """`remuda serve` on a directory of its own, with what every Kubernetes has: Cluster API is for tests that ask for it.

    With `etcd` its state is there, and the keys that servers share are in a directory beside its own.
    """

    def __init__(self, directory: Path, *options: str, etcd: EtcdCluster | None = None) -> None:
        self.directory = directory
        self.options = options
        # Where the keys of the authority and of service accounts are.
        self.keys = directory / "pki"
        if etcd is not None:
            self.keys = directory.with_name(directory.name + "-shared")
            self.options = (*options, *etcd_options(etcd), "--pki-dir", str(self.keys))
        self.port = free_port()
        self.process: subprocess.Popen[bytes] | None = None
        self.kubeconfig = directory / "kubeconfig"
        self.log = directory / "serve.log"

    def start(self) -> None:
        self.directory.mkdir(parents=True, exist_ok=True)
        with self.log.open("ab") as log:
            self.process = subprocess.Popen(
                [
                    sys.executable,
                    "-m",
                    "remuda",
                    "serve",
                    "--data-dir",
                    str(self.directory),
                    "--listen",
                    f"127.0.0.1:{self.port}",
                    "--controllers=-capi,-access",
                    *self.options,
                ],
                stdout=log,
                stderr=log,
                # Workload clusters of Cluster API's tests are on this machine.
                env={**os.environ, "PYTHONUNBUFFERED": "1", "REMUDA_OUTBOUND_POLICY": "allow:127.0.0.0/8"},
            )
        end = time.monotonic() + 120
        while not self.kubeconfig.exists() or not _listening(self.port):
            if self.process.poll() is not None or time.monotonic() > end:
                raise RuntimeError(f"remuda serve did not start:\n{self.log.read_text()}")
            time.sleep(0.02)

    @property
    def endpoint(self) -> Endpoint:
        pki = self.directory / "pki"
        return Endpoint(f"https://127.0.0.1:{self.port}", pki / "ca.crt", pki / "admin.crt", pki / "admin.key")

    def stop(self) -> int:
        assert self.process is not None
        self.process.send_signal(signal.SIGTERM)
        try:
            return self.process.wait(90)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
            raise


def etcd_options(etcd: EtcdCluster) -> list[str]:
    """What `remuda serve` is told to use it."""
    options = ["--etcd", ",".join(etcd.urls)]
    if etcd.ca is not None:
        options += ["--etcd-cafile", str(etcd.ca)]
        options += ["--etcd-certfile", str(etcd.client_certificate), "--etcd-keyfile", str(etcd.client_key)]
    return options


# What befalls the etcds of this process: a test that fails tells of it.
WEATHER: list[Chaos] = []


ON_ETCD = os.environ.get("REMUDA_TEST_STORE", "sqlite") == "etcd"


@contextmanager
def backing() -> Iterator[EtcdCluster | None]:
    """What Remuda keeps its state in: nothing but files, or, when REMUDA_TEST_STORE says `etcd`, three members of which now this
    and now that one is killed, paused or stopped. That is gentle enough for every request to survive by Remuda's own patience.
    """
    if not ON_ETCD:
        yield None
        return
    need.programs("etcd")
    seed = int(os.environ.get("REMUDA_SEED", random.SystemRandom().randrange(10**9)))
    with EtcdCluster(members=3) as etcd, Chaos(etcd, seed, down=(0.2, 2.0), rest=(1.0, 5.0)) as chaos:
        chaos.log.append(f"seed {seed} (REMUDA_SEED={seed} repeats the choices)")
        WEATHER.append(chaos)
        yield etcd
        WEATHER.remove(chaos)


def _listening(port: int) -> bool:
    with socket.socket() as probe:
        probe.settimeout(5)
        return probe.connect_ex(("127.0.0.1", port)) == 0
