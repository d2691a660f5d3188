"""Runs the compiled client in `load/`: one measurement for each call."""

from __future__ import annotations

import json
import subprocess
import time
import uuid
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
    """What the client measured, and the CPU time the server used meanwhile."""

    done: int
    seconds: float
    p50_ms: float
    p99_ms: float
    protocol: str
    server_cpu: float
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


class Loader:
    """The client, pointed at one server. Bodies are templates with @NAME@, @SEQ@, @TEXT@ and @RUN@."""

    def __init__(self, server: Server, scratch: Path, http2: bool = False) -> None:
        self._server = server
        self._http2 = http2
        self._scratch = scratch
        self._program = build.programs(TARGET)["load"]
        # While it measured: seconds, and the CPU time that neither the server nor this client used.
        self.measured = 0.0
        self.disturbed = 0.0

    def run(self, mode: str, path: str, *, seconds: float, body: str = "", **flags: int | float | str | bool) -> Run:
        server = self._server
        command = [str(self._program), mode, f"-url={server.url}", f"-ca={server.ca}", f"-cert={server.certificate}"]
        command += [f"-key={server.key}", f"-path={path}", f"-seconds={seconds}", f"-http2={str(self._http2).lower()}"]
        command += [f"-{name}={str(value).lower() if isinstance(value, bool) else value}" for name, value in flags.items()]
        if body:
            # New in every run: a write that changes nothing would make no event.
            file = self._scratch / "body.json"
            file.write_text(body.replace("@RUN@", uuid.uuid4().hex))
            command.append(f"-body={file}")
        process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        try:
            return self._measured(process, mode, seconds)
        finally:
            if process.poll() is None:
                process.kill()
            process.wait()

    def _measured(self, process: subprocess.Popen[str], mode: str, seconds: float) -> Run:
        assert process.stdout is not None
        if process.stdout.readline() != "ready\n":
            raise LoadError(f"{mode}: {process.communicate()[1]}")
        before, all_before, started = cpu_seconds(self._server.pids), machine_cpu_seconds(), time.monotonic()
        try:
            out, err = process.communicate("go\n", timeout=seconds + 60)
        except subprocess.TimeoutExpired:
            raise LoadError(f"{mode} did not end in time") from None
        used = cpu_seconds(self._server.pids) - before
        if process.returncode:
            raise LoadError(f"{mode}: {err}")
        run = _parsed(json.loads(out), used)
        self.measured += time.monotonic() - started
        self.disturbed += max(0.0, machine_cpu_seconds() - all_before - used - run.client_cpu)
        return run


def _parsed(found: dict[str, Any], server_cpu: float) -> Run:
    problem = found.get("first_error", "")
    return Run(
        done=found["done"],
        seconds=found["seconds"],
        p50_ms=found["p50_ms"],
        p99_ms=found["p99_ms"],
        protocol=found["protocol"],
        server_cpu=server_cpu,
        client_cpu=found["client_cpu_seconds"],
        size=found.get("bytes", 0),
        lost=found.get("expected", 0) - found.get("delivered", 0),
        problem=f"{found['errors']} requests failed, the first with: {problem}" if found["errors"] else "",
    )
