"""A real etcd on loopback, of one or three members that can be killed, paused and started again, and chaos among them.

    with EtcdCluster(members=3) as etcd, Chaos(etcd, seed=7):
        EtcdConfig(etcd.urls, ...)

The program comes from `build.py`, the certificates from `pki.py`; `proxy.py` is for what happens between a client and a
member. `cluster.py` can run a kube-apiserver on it. Data and logs are in one directory, which goes away with the cluster.
"""

from __future__ import annotations

import atexit
import contextlib
import http.client
import json
import random
import shutil
import signal
import ssl
import subprocess
import tempfile
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any, Self
from urllib.parse import urlsplit

from tests.real import build, pki
from tests.real.ports import HOST, free_ports

# Elections take a fraction of a second, so that tests need not wait for them; the ratio is etcd's own.
HEARTBEAT_MS = 50
ELECTION_MS = 500

# A killed test run must leave nothing behind. A pipe from the test says that it lives: unlike the kernel's "parent died" signal
# it does not care which thread started the member, and chaos starts them from its own.
_TIED = 'exec 3<&0; ( read -r _ <&3 || kill -9 $$ ) & exec "$@" 3<&- </dev/null'


class EtcdError(Exception):
    """etcd did not do what the test needs; the message ends with the last lines of its log."""


@dataclass
class Member:
    """One member: where it listens, and its process when it has one."""

    index: int
    client_port: int
    peer_port: int
    url: str
    process: subprocess.Popen[bytes] | None = None
    paused: bool = False

    @property
    def running(self) -> bool:
        return self.process is not None and self.process.poll() is None

    @property
    def peer_url(self) -> str:
        return f"http://{HOST}:{self.peer_port}"

    @property
    def name(self) -> str:
        return f"m{self.index}"


class EtcdCluster:
    """Start with `with` or `open()`, end with `close()`.

    members:  1 or 3 (any odd number works).
    tls:      clients speak TLS and must show a certificate of the cluster's CA: `ca`, `client_certificate`, `client_key`.
    fsync:    etcd waits for the disk. Off is quicker, and a killed process loses nothing that the kernel has.
    parent:   where its directory is made (default: where temporary files go).
    args:     more flags for every member; the last one given wins.
    """

    def __init__(
        self, members: int = 1, *, tls: bool = False, fsync: bool = False, parent: Path | None = None, args: Sequence[str] = ()
    ) -> None:
        self._tls = tls
        self._fsync = fsync
        self._args = tuple(args)
        self._closed = False
        self._token = random.SystemRandom().randbytes(6).hex()
        self.directory = Path(tempfile.mkdtemp(prefix="remuda-etcd-", dir=parent)).resolve()
        ports = free_ports(members * 2)
        scheme = "https" if tls else "http"
        self.members = [
            Member(index, client, peer, f"{scheme}://{HOST}:{client}")
            for index, (client, peer) in enumerate(zip(ports[:members], ports[members:], strict=True))
        ]
        self.ca: Path | None = None
        self.client_certificate: Path | None = None
        self.client_key: Path | None = None
        # Signed by the right CA for a server only: a client with it must be refused.
        self.wrong_certificate: Path | None = None
        self.wrong_key: Path | None = None
        self._serving: pki.Pair | None = None
        self._context: ssl.SSLContext | None = None

    # -- life ----------------------------------------------------------------------------------------------------------

    def __enter__(self) -> Self:
        self.open()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.close()

    def open(self) -> None:
        """Start all members; return when they have a leader and answer."""
        atexit.register(self.close)
        try:
            if self._tls:
                self._write_certificates()
            for member in self.members:
                self._spawn(member)
            self.wait_healthy()
        except BaseException:
            self.close()
            raise

    def close(self) -> None:
        """End every member, remove everything."""
        if self._closed:
            return
        self._closed = True
        atexit.unregister(self.close)
        for member in self.members:
            self._end(member, signal.SIGKILL)
        shutil.rmtree(self.directory, ignore_errors=True)

    @property
    def urls(self) -> tuple[str, ...]:
        return tuple(member.url for member in self.members)

    # -- what can happen to a member -----------------------------------------------------------------------------------

    def kill(self, index: int) -> None:
        """SIGKILL; its data stays."""
        self._end(self.members[index], signal.SIGKILL)

    def stop(self, index: int) -> None:
        """SIGTERM, and wait for its end."""
        self.resume(index)
        self._end(self.members[index], signal.SIGTERM)

    def start(self, index: int) -> None:
        """Start it again on its data; `wait_healthy` waits until it is back."""
        if not self.members[index].running:
            self._spawn(self.members[index])

    def pause(self, index: int) -> None:
        """SIGSTOP: connections stay open, nothing is answered."""
        member = self.members[index]
        if member.running:
            assert member.process is not None
            member.process.send_signal(signal.SIGSTOP)
            member.paused = True
            # Each of its threads stops when it is next about to run, and may still answer until then.
            end = time.monotonic() + 30
            while not _stopped(member.process.pid):
                assert time.monotonic() < end, "it does not stop"
                time.sleep(0.005)

    def resume(self, index: int) -> None:
        member = self.members[index]
        if member.paused and member.running:
            assert member.process is not None
            member.process.send_signal(signal.SIGCONT)
        member.paused = False

    def restore(self) -> None:
        """Everything runs again, and is healthy."""
        for member in self.members:
            self.resume(member.index)
            self.start(member.index)
        self.wait_healthy()

    # -- what it says --------------------------------------------------------------------------------------------------

    def leader(self) -> int | None:
        """The index of the leader as the newest term knows it; None when no running member knows one."""
        newest, found = -1, ""
        ids: dict[str, int] = {}
        for member in self.members:
            status = self._status(member.index)
            if status is None:
                continue
            ids[status["header"]["member_id"]] = member.index
            term = int(status.get("raftTerm", 0))
            if term > newest and status.get("leader", "0") != "0":
                newest, found = term, status["leader"]
        # A leader that does not answer by itself (paused, a moment ago) is not one that a test can do something with.
        return ids.get(found)

    def wait_leader(self, seconds: float = 90) -> int:
        """The leader, as soon as there is one."""
        end = time.monotonic() + seconds
        while (found := self.leader()) is None:
            if time.monotonic() > end:
                raise EtcdError(f"no leader after {seconds:.0f} s\n{self.tails()}")
            time.sleep(0.02)
        return found

    def wait_healthy(self, seconds: float = 120) -> None:
        """Until every member runs, answers, and follows the same leader."""
        end = time.monotonic() + seconds
        while not self._agreed():
            for member in self.members:
                if not member.running:
                    raise EtcdError(f"{member.name} is not running\n{self.tails()}")
            if time.monotonic() > end:
                raise EtcdError(f"not healthy after {seconds:.0f} s\n{self.tails()}")
            time.sleep(0.02)

    def call(self, path: str, body: Any = None, index: int | None = None, timeout: float = 5) -> Any:
        """One request to the JSON gateway of a member (default: any that answers): for what a test does behind our back."""
        wanted = range(len(self.members)) if index is None else (index,)
        # A member that has nobody to take its place may need longer on a busy machine.
        timeout = timeout if len(wanted) > 1 else max(timeout, 60)
        last: Exception | None = None
        for each in wanted:
            try:
                return self._ask(each, "POST", path, {} if body is None else body, timeout)
            # Also one that answers, but has just lost its leader.
            except (OSError, http.client.HTTPException, EtcdError) as error:
                last = error
        raise EtcdError(f"{path}: {last}\n{self.tails()}")

    def revision(self) -> int:
        return int(self.call("/v3/kv/range", {"key": "AA==", "count_only": True})["header"]["revision"])

    def log(self, index: int) -> str:
        path = self._log_path(self.members[index])
        return path.read_text(errors="replace") if path.exists() else ""

    def tails(self) -> str:
        return "\n".join(line for member in self.members for line in self.log(member.index).splitlines()[-8:])

    # -- parts ---------------------------------------------------------------------------------------------------------

    def _agreed(self) -> bool:
        leaders = set()
        for member in self.members:
            status = self._status(member.index)
            if status is None or status.get("leader", "0") == "0" or not self._answers_health(member.index):
                return False
            leaders.add(status["leader"])
        return len(leaders) == 1

    def _answers_health(self, index: int) -> bool:
        try:
            return bool(self._ask(index, "GET", "/health", None, 2)["health"] == "true")
        except (OSError, http.client.HTTPException, EtcdError):
            return False

    def _status(self, index: int) -> Any:
        member = self.members[index]
        if not member.running or member.paused:
            return None
        try:
            return self._ask(index, "POST", "/v3/maintenance/status", {}, 1)
        except (OSError, http.client.HTTPException, EtcdError):
            return None

    def _ask(self, index: int, method: str, path: str, body: Any, timeout: float) -> Any:
        netloc = urlsplit(self.members[index].url).netloc
        connection: http.client.HTTPConnection
        if self._context is not None:
            connection = http.client.HTTPSConnection(netloc, context=self._context, timeout=timeout)
        else:
            connection = http.client.HTTPConnection(netloc, timeout=timeout)
        try:
            content = None if body is None else json.dumps(body).encode()
            connection.request(method, path, content, {"Content-Type": "application/json"})
            response = connection.getresponse()
            text = response.read().decode(errors="replace")
        finally:
            connection.close()
        if response.status != 200:
            raise EtcdError(f"{path} of m{index} said {response.status}: {text}")
        try:
            return json.loads(text)
        except ValueError:
            raise EtcdError(f"{path} of m{index} said {text!r}") from None

    def _write_certificates(self) -> None:
        authority = pki.Authority(self.directory)
        self._serving = authority.peer("etcd", (HOST,))
        client = authority.client("client", "remuda")
        wrong = authority.serving("wrong", (HOST,))
        self.ca = authority.pair.cert
        self.client_certificate, self.client_key = client.cert, client.key
        self.wrong_certificate, self.wrong_key = wrong.cert, wrong.key
        self._context = ssl.create_default_context(cafile=str(self.ca))
        self._context.load_cert_chain(client.cert, client.key)

    def _log_path(self, member: Member) -> Path:
        return self.directory / f"{member.name}.log"

    def _flags(self, member: Member) -> list[str]:
        flags = [
            f"--name={member.name}",
            f"--data-dir={self.directory / member.name}",
            f"--listen-client-urls={member.url}",
            f"--advertise-client-urls={member.url}",
            f"--listen-peer-urls={member.peer_url}",
            f"--initial-advertise-peer-urls={member.peer_url}",
            f"--initial-cluster={','.join(f'{each.name}={each.peer_url}' for each in self.members)}",
            f"--initial-cluster-token={self._token}",
            f"--heartbeat-interval={HEARTBEAT_MS}",
            f"--election-timeout={ELECTION_MS}",
            "--log-level=warn",
        ]
        if not self._fsync:
            flags.append("--unsafe-no-fsync")
        if self._serving is not None:
            flags += [
                f"--cert-file={self._serving.cert}",
                f"--key-file={self._serving.key}",
                f"--trusted-ca-file={self.ca}",
                "--client-cert-auth",
            ]
        return [*flags, *self._args]

    def _spawn(self, member: Member) -> None:
        program = build.programs("etcd")["etcd"]
        with self._log_path(member).open("ab") as log:
            member.process = subprocess.Popen(
                ["/bin/sh", "-c", _TIED, "etcd", str(program), *self._flags(member)],
                stdin=subprocess.PIPE,
                stdout=log,
                stderr=log,
                cwd=self.directory,
                start_new_session=True,
            )
        member.paused = False

    @staticmethod
    def _end(member: Member, how: signal.Signals) -> None:
        process = member.process
        if process is None:
            return
        member.process = None
        if process.poll() is None:
            process.send_signal(how)
        try:
            process.wait(90)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
        member.paused = False
        assert process.stdin is not None
        # Whoever listens to the pipe is told that there is nothing left to kill: the number may soon be another's.
        with contextlib.suppress(OSError):
            process.stdin.write(b"\n")
            process.stdin.flush()
        with contextlib.suppress(OSError):
            process.stdin.close()


class Chaos:
    """A thread that kills, pauses and stops members at random, one at a time, so that the quorum is never lost for long.

    Every action is in `log`, in seconds since the start; the seed repeats the choices (not what comes of them). At the end
    everything is healthy again. An error of its own is raised by `stop()`.

    down:    for how long a member is away, in seconds.
    rest:    for how long all are well after it came back.
    actions: of `kill`, `pause`, `stop`.
    leader:  how often the leader is the one, of 1.
    """

    def __init__(
        self,
        cluster: EtcdCluster,
        seed: int,
        *,
        down: tuple[float, float] = (0.2, 3.0),
        rest: tuple[float, float] = (0.3, 1.5),
        actions: Sequence[str] = ("kill", "pause", "stop"),
        leader: float = 0.5,
    ) -> None:
        self._cluster = cluster
        self._chance = random.Random(seed)
        self._down = down
        self._rest = rest
        self._actions = tuple(actions)
        self._leader = leader
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name="chaos", daemon=True)
        self._begun = time.monotonic()
        self._error: BaseException | None = None
        self.log: list[str] = []
        self.rounds = 0

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.stop()

    def start(self) -> None:
        self._begun = time.monotonic()
        self._thread.start()

    def stop(self) -> None:
        """No more of it; all members are healthy when this returns."""
        self._stop.set()
        self._thread.join()
        self._cluster.restore()
        if self._error is not None:
            raise self._error

    def told(self) -> str:
        """What it did, a line for each thing: for the message of a test that failed."""
        return "\n".join(self.log)

    def _run(self) -> None:
        try:
            while not self._stop.is_set():
                self._round()
                self._stop.wait(self._chance.uniform(*self._rest))
        except BaseException as error:
            self._error = error

    def _round(self) -> None:
        leads = self._cluster.wait_leader()
        others = [member.index for member in self._cluster.members if member.index != leads]
        victim = leads if not others or self._chance.random() < self._leader else self._chance.choice(others)
        action = self._chance.choice(self._actions)
        self._say(f"{action} m{victim}{' (leader)' if victim == leads else ''}")
        does: dict[str, Callable[[int], None]] = {
            "kill": self._cluster.kill,
            "pause": self._cluster.pause,
            "stop": self._cluster.stop,
        }
        does[action](victim)
        self._stop.wait(self._chance.uniform(*self._down))
        self._say(f"m{victim} comes back")
        self._cluster.restore()
        self._say("all healthy")
        self.rounds += 1

    def _say(self, what: str) -> None:
        self.log.append(f"{time.monotonic() - self._begun:8.3f} {what}")


def _stopped(pid: int) -> bool:
    states = set()
    for task in Path(f"/proc/{pid}/task").glob("*"):
        with contextlib.suppress(OSError):
            states.add((task / "stat").read_text().rpartition(")")[2].split()[0])
    return states <= {"T", "Z"}
