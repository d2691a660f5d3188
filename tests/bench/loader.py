"""Runs the compiled client in `load/`: one measurement for each call, or a load that goes on while something happens."""

from __future__ import annotations

import json
import resource
import subprocess
import time
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.bench.processes import cpu_seconds, machine_cpu_seconds
from tests.bench.servers import Server
from tests.real import build

TARGET = build.Target(name="load", package=".", binary="load", folder=Path(__file__).resolve().parent / "load")


class LoadError(Exception):
    """The client could not do its work."""


@dataclass(frozen=True, slots=True)
class Run:
    """What the client measured, and the CPU time the server used meanwhile; `etcd_cpu` is the part of it that was etcd's."""

    done: int
    seconds: float
    p50_ms: float
    p99_ms: float
    protocol: str
    server_cpu: float
    etcd_cpu: float
    client_cpu: float
    size: int
    lost: int
    problem: str

    @property
    def rate(self) -> float:
        return self.done / self.seconds if self.seconds else 0.0

    @property
    def cpu_us(self) -> float:
        return self.server_cpu * 1e6 / self.done if self.done else 0.0

    @property
    def etcd_cpu_us(self) -> float:
        return self.etcd_cpu * 1e6 / self.done if self.done else 0.0


@dataclass(frozen=True, slots=True)
class Retried:
    """What clients saw that try another server when one fails.

    failed: requests whose first attempt failed, and `why`: how often which reason, of all attempts.
    lost:   requests that never succeeded, or were refused for good; `problem` is the first of them.
    stale:  objects that were not found right after their creation was acknowledged.
    unsure: numbers of the objects whose creation was never acknowledged; all others up to `created` must be there.
    waits:  the longest that a request took, before the mark and after it, with all its attempts.
    """

    done: int
    created: int
    failed: int
    lost: int
    stale: int
    unsure: frozenset[int]
    why: dict[str, int]
    calm_ms: float
    longest_ms: float
    problem: str


class Going:
    """A load that goes on until it is told to stop."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        self._process = process

    def mark(self) -> None:
        """From now on something is different."""
        assert self._process.stdin is not None
        self._process.stdin.write("mark\n")
        self._process.stdin.flush()

    def stop(self) -> Retried:
        """Let requests that wait go on to their end, and tell what was seen."""
        try:
            out, err = self._process.communicate("stop\n", timeout=120)
        except subprocess.TimeoutExpired:
            raise LoadError("the load did not end in time") from None
        if self._process.returncode:
            raise LoadError(f"steady: {err}")
        found = json.loads(out)
        return Retried(
            done=found["done"],
            created=found["created"],
            failed=found["failed_first"],
            lost=found["lost"],
            stale=found["stale"],
            unsure=frozenset(found["unsure"] or ()),
            why=found["reasons"] or {},
            calm_ms=found["calm_max_ms"],
            longest_ms=found["max_ms"],
            problem=found.get("first_error", ""),
        )


class Loader:
    """The client, pointed at one server. Bodies are templates with @NAME@, @SEQ@, @TEXT@ and @RUN@.

    token: a file with a bearer token to send, instead of the administrator's certificate.
    """

    def __init__(self, server: Server, scratch: Path, http2: bool = False, token: Path | None = None) -> None:
        self._server = server
        self._http2 = http2
        self._credential = [f"-token={token}"] if token else [f"-cert={server.certificate}", f"-key={server.key}"]
        self._scratch = scratch
        self._program = build.programs(TARGET)["load"]
        # While it measured: seconds, and the CPU time that neither the server nor this client used.
        self.measured = 0.0
        self.disturbed = 0.0

    def run(self, mode: str, path: str, *, seconds: float, body: str = "", **flags: int | float | str | bool) -> Run:
        with self._client(mode, path, seconds, body, flags) as process:
            return self._measured(process, mode, seconds)

    @contextmanager
    def standing(self, path: str, *, body: str, seconds: float, **flags: int | float | str | bool) -> Iterator[Callable[[], Run]]:
        """Watches that are open while the block runs, and hear nothing until what it is given is called."""
        with self._client("watch", path, seconds, body, flags) as process:
            _await_ready(process, "watch")
            yield lambda: self._measured(process, "watch", seconds, ready=True)

    @contextmanager
    def busy(self, mode: str, path: str, **flags: int | float | str | bool) -> Iterator[None]:
        """A load that goes on while the block runs, and is not measured."""
        with self._client(mode, path, 3600, "", flags) as process:
            _await_ready(process, mode)
            assert process.stdin is not None
            process.stdin.write("go\n")
            process.stdin.flush()
            yield

    @contextmanager
    def going(self, path: str, *, body: str, clients: int, rate: float, prefix: str) -> Iterator[Going]:
        """Creates and reads at a steady rate by clients that retry, until the block's :meth:`Going.stop`."""
        flags: dict[str, int | float | str | bool] = {"clients": clients, "rate": rate, "prefix": prefix}
        with self._client("steady", path, 0, body, flags) as process:
            _await_ready(process, "steady")
            assert process.stdin is not None
            process.stdin.write("go\n")
            process.stdin.flush()
            yield Going(process)

    @contextmanager
    def _client(
        self, mode: str, path: str, seconds: float, body: str, flags: dict[str, int | float | str | bool]
    ) -> Iterator[subprocess.Popen[str]]:
        server = self._server
        command = [str(self._program), mode, f"-url={server.url}", f"-ca={server.ca}", *self._credential]
        command += [f"-path={path}", f"-seconds={seconds}", f"-http2={str(self._http2).lower()}"]
        command += [f"-{name}={str(value).lower() if isinstance(value, bool) else value}" for name, value in flags.items()]
        if body:
            # New in every run: a write that changes nothing would make no event.
            file = self._scratch / "body.json"
            file.write_text(body.replace("@RUN@", uuid.uuid4().hex))
            command.append(f"-body={file}")
        process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        try:
            yield process
        finally:
            if process.poll() is None:
                process.kill()
            process.wait()

    def _measured(self, process: subprocess.Popen[str], mode: str, seconds: float, ready: bool = False) -> Run:
        if not ready:
            _await_ready(process, mode)
        etcd_before = cpu_seconds(self._server.etcd_pids)
        before, all_before, started = cpu_seconds(self._server.pids), machine_cpu_seconds(), time.monotonic()
        try:
            out, err = process.communicate("go\n", timeout=seconds + 60)
        except subprocess.TimeoutExpired:
            raise LoadError(f"{mode} did not end in time") from None
        used = cpu_seconds(self._server.pids) - before
        etcd_used = cpu_seconds(self._server.etcd_pids) - etcd_before
        if process.returncode:
            raise LoadError(f"{mode}: {err}")
        run = _parsed(json.loads(out), used, etcd_used)
        self.measured += time.monotonic() - started
        self.disturbed += max(0.0, machine_cpu_seconds() - all_before - used - run.client_cpu)
        return run


def raise_file_limit(wanted: int = 8192) -> None:
    """A thousand watchers are as many files in the client and in the server."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft < wanted and soft != hard:
        resource.setrlimit(resource.RLIMIT_NOFILE, (min(wanted, hard) if hard > 0 else wanted, hard))


def _await_ready(process: subprocess.Popen[str], mode: str) -> None:
    assert process.stdout is not None
    if process.stdout.readline() != "ready\n":
        raise LoadError(f"{mode}: {process.communicate()[1]}")


def _parsed(found: dict[str, Any], server_cpu: float, etcd_cpu: float) -> Run:
    problem = found.get("first_error", "")
    return Run(
        done=found["done"],
        seconds=found["seconds"],
        p50_ms=found["p50_ms"],
        p99_ms=found["p99_ms"],
        protocol=found["protocol"],
        server_cpu=server_cpu,
        etcd_cpu=etcd_cpu,
        client_cpu=found["client_cpu_seconds"],
        size=found.get("bytes", 0),
        lost=found.get("expected", 0) - found.get("delivered", 0),
        problem=f"{found['errors']} requests failed, the first with: {problem}" if found["errors"] else "",
    )
