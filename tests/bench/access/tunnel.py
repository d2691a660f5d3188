"""What a tunnel carries and what a client in it costs: ours and Rancher's own remotedialer, in the same run.

Bytes go from a compiled source through the tunnel to a compiled reader and the other way, over plain websockets on loopback,
each side in a process of its own. CPU is that of both sides of the tunnel.
"""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import time
import urllib.parse
import urllib.request
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

from tests.bench import processes
from tests.bench.servers import ServerError
from tests.real import build, pki

OURS, THEIRS = "remuda", "remotedialer"
MIB = 1 << 20

Found = dict[str, float]
Process = subprocess.Popen[str]


def sides() -> dict[str, list[str]]:
    """The command of each kind, to which `server` or `client …` is added."""
    return {
        OURS: [sys.executable, "-m", "tests.bench.access.tunnel_side"],
        THEIRS: [str(build.programs("remotedialer")["remotedialer"])],
    }


@contextmanager
def started(*command: str, tls: Path | None = None) -> Iterator[Process]:
    environment = os.environ | ({"TUNNEL_TLS": str(tls)} if tls is not None else {})
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True, env=environment)
    try:
        yield process
    finally:
        process.kill()
        process.wait()


def line(process: Process) -> str:
    assert process.stdout is not None
    said = process.stdout.readline().strip()
    if not said:
        raise ServerError(f"{process.args!r} ended")
    return said


def ask(port: str, path: str, **query: str) -> str:
    where = f"http://127.0.0.1:{port}{path}?{urllib.parse.urlencode(query)}"
    with urllib.request.urlopen(where, timeout=30) as answer:
        return str(answer.read().decode())


def bulk(server: str, client: str, size: int) -> Found:
    """MB/s of one stream in each direction, and CPU-seconds per GiB."""
    commands = sides()
    load = commands[THEIRS]
    with ExitStack() as stack:
        serving = stack.enter_context(started(*commands[server], "server"))
        port = line(serving)
        dialling = stack.enter_context(started(*commands[client], "client", f"ws://127.0.0.1:{port}/connect", "c-bench"))
        line(dialling)
        source = line(stack.enter_context(started(*load, "source")))
        _until_known(port, 1)
        through = ask(port, "/forward", key="c-bench", network="tcp", address=f"127.0.0.1:{source}")
        found: Found = {}
        for direction in ("down", "up"):
            before = processes.cpu_seconds((serving.pid, dialling.pid))
            done = subprocess.run(
                [*load, "load", f"127.0.0.1:{through}", direction, str(size)],
                capture_output=True,
                text=True,
                timeout=300,
                check=True,
            )
            used = processes.cpu_seconds((serving.pid, dialling.pid)) - before
            found[f"{direction}_rate"] = size / float(done.stdout) / 1e6
            found[f"{direction}_cpu"] = used * (1 << 30) / size
        return found


def idle_with_tls(scratch: Path, count: int) -> Found:
    """The same of ours, with TLS as the gateway has it."""
    pki.Authority(scratch).serving("serving", ("127.0.0.1",))
    return {"tls_kilobytes": idle(OURS, count, scratch)["kilobytes"]}


def idle(server: str, count: int, tls: Path | None = None) -> Found:
    """Memory of a server per client that is connected and quiet, in KB."""
    commands = sides()
    with started(*commands[server], "server", tls=tls) as serving:
        port = line(serving)
        url = f"ws://127.0.0.1:{port}/connect" if tls is None else f"wss://127.0.0.1:{line(serving)}/connect"
        # Whatever a first session makes a program load counts as the program.
        with started(*commands[OURS], "client", url, "c-first", tls=tls) as first:
            line(first)
            _until_known(port, 1)
            before = processes.resident_mib((serving.pid,))
            with started(*commands[OURS], "client", url, "c-bench", str(count), tls=tls) as clients:
                for _ in range(count):
                    line(clients)
                _until_known(port, count + 1)
                time.sleep(6)
                used = processes.cpu_seconds((serving.pid,))
                time.sleep(10)
                used = processes.cpu_seconds((serving.pid,)) - used
                after = processes.resident_mib((serving.pid,))
    return {"kilobytes": (after - before) * MIB / count / 1000, "cpu_percent": used * 10}


def _until_known(port: str, count: int) -> None:
    for _ in range(600):
        if len(ask(port, "/clients").splitlines()) >= count:
            return
        time.sleep(0.05)
    raise ServerError(f"fewer than {count} clients are connected")


def slow_reader(size: int) -> Found:
    """How much memory both sides gain while a reader takes one MiB a turn, resting in between."""
    commands = sides()
    with ExitStack() as stack:
        serving = stack.enter_context(started(*commands[OURS], "server"))
        port = line(serving)
        dialling = stack.enter_context(started(*commands[OURS], "client", f"ws://127.0.0.1:{port}/connect", "c-bench"))
        line(dialling)
        source = line(stack.enter_context(started(*commands[THEIRS], "source")))
        _until_known(port, 1)
        through = ask(port, "/forward", key="c-bench", network="tcp", address=f"127.0.0.1:{source}")
        return _read_slowly(int(through), size, (serving.pid, dialling.pid))


def _read_slowly(port: int, size: int, pids: tuple[int, int]) -> Found:
    before = [processes.resident_mib((pid,)) for pid in pids]
    most = [0.0, 0.0]
    with socket.create_connection(("127.0.0.1", port)) as reader:
        reader.sendall(b"d" + size.to_bytes(8, "big"))
        got = turns = 0
        while got < size:
            got += len(reader.recv(MIB, socket.MSG_WAITALL))
            turns += 1
            if turns % 16 == 0:
                time.sleep(0.05)
                most = [max(most[i], processes.resident_mib((pid,)) - before[i]) for i, pid in enumerate(pids)]
    return {"server_mib": most[0], "client_mib": most[1]}
