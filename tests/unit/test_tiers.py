"""A unit test waits for nothing that has a time of its own: it has one try, so a busy machine must not decide about it.

Time is :class:`~remuda.kube.clock.VirtualClock`, which moves when the test says so. What needs the machine's clock, a socket, a
child process or a thread is in `tests/integration`. `asyncio.sleep(0)` is a turn of the loop and no wait. That a test ends at all
is what pytest's own timeout is for.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parent
# The one module that may know what day it is.
TODAY = ROOT / "certificates.py"

# Modules that are of no use without a socket, a process or the machine's time.
MODULES = (
    "asyncssh",
    "http.client",
    "http.server",
    "multiprocessing",
    "remuda.app.attached",
    "select",
    "selectors",
    "socket",
    "socketserver",
    "subprocess",
    "tests.fuzz",
    "tests.integration",
    "urllib.request",
)
# Of modules that are fine otherwise.
NAMES = {
    "aiohttp": ("ClientSession", "request"),
    "aiohttp.test_utils": ("RawTestServer", "TestServer", "unused_port"),
    "aiohttp.web": ("SockSite", "TCPSite", "UnixSite", "run_app"),
    "asyncio": (
        *("timeout", "timeout_at", "wait_for"),
        *("create_subprocess_exec", "create_subprocess_shell"),
        *("open_connection", "open_unix_connection", "start_server", "start_unix_server"),
    ),
    "datetime.date": ("today",),
    "datetime.datetime": ("now", "utcnow"),
    "os": ("fork", "forkpty", "popen", "posix_spawn", "posix_spawnp", "system"),
    "remuda.app.embedded": ("running",),
    "remuda.kube.clock": ("SYSTEM_CLOCK", "SystemClock"),
    "threading": ("Thread", "Timer"),
    "time": ("monotonic", "monotonic_ns", "perf_counter", "perf_counter_ns", "sleep", "time", "time_ns"),
}
# Of whatever object: a loop's clock, and doors of ours and of asyncio.
METHODS = ("loop.time", ".create_server", ".create_unix_server", ".listen", ".subprocess_exec", ".subprocess_shell")


def found(source: str) -> Iterator[tuple[int, str]]:
    """Lines that a unit test may not have, and why."""
    tree = ast.parse(source)
    known: dict[str, str] = {}
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            for each in node.names:
                known[each.asname or each.name.partition(".")[0]] = each.name if each.asname else each.name.partition(".")[0]
                yield from _forbidden(node.lineno, each.name)
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            for each in node.names:
                known[each.asname or each.name] = f"{node.module}.{each.name}"
                yield from _forbidden(node.lineno, f"{node.module}.{each.name}")
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute):
            name = _dotted(node, known)
            yield from _forbidden(node.lineno, name)
            if name.endswith(METHODS):
                yield node.lineno, name
        if isinstance(node, ast.Call) and _dotted(node.func, known) == "asyncio.sleep":
            seconds = ", ".join(map(ast.unparse, [*node.args, *node.keywords]))
            if seconds != "0":
                yield node.lineno, f"asyncio.sleep({seconds})"


def _forbidden(line: int, name: str) -> Iterator[tuple[int, str]]:
    module, _, rest = name.rpartition(".")
    if rest in NAMES.get(module, ()) or any(name == each or name.startswith(f"{each}.") for each in MODULES):
        yield line, name


def _dotted(node: ast.expr, known: dict[str, str]) -> str:
    """The name of what is used, as its module calls it; of what is no module's, its end."""
    if isinstance(node, ast.Attribute):
        return f"{_dotted(node.value, known)}.{node.attr}"
    if isinstance(node, ast.Call):
        # A loop is known by how one gets it.
        return "loop" if _dotted(node.func, known).endswith("_loop") else f"{_dotted(node.func, known)}()"
    return known.get(node.id, "loop" if node.id == "loop" else "") if isinstance(node, ast.Name) else ""


def test_a_unit_test_waits_for_nothing_that_has_a_time_of_its_own() -> None:
    paths = sorted(ROOT.rglob("*.py"))
    lines = {(path, line, what) for path in paths for line, what in found(path.read_text())} - _allowed()
    told = "\n".join(f"{path.relative_to(ROOT.parents[1])}:{line}: {what}" for path, line, what in sorted(lines))
    assert not lines, f"move the test to tests/integration, or let it wait for an event or on the virtual clock:\n{told}"


def _allowed() -> set[tuple[Path, int, str]]:
    return {(TODAY, line, what) for line, what in found(TODAY.read_text()) if what == "datetime.datetime.now"}


@pytest.mark.parametrize(
    ("line", "what"),
    [
        ("import asyncio\nasyncio.sleep(0.01)", "asyncio.sleep(0.01)"),
        ("import asyncio\nasyncio.sleep(pause)", "asyncio.sleep(pause)"),
        ("import asyncio\nasyncio.sleep(delay=1)", "asyncio.sleep(delay=1)"),
        ("from asyncio import sleep as rest\nrest(1)", "asyncio.sleep(1)"),
        ("import time as t\nt.sleep(0)", "time.sleep"),
        ("from time import monotonic", "time.monotonic"),
        ("import datetime\ndatetime.datetime.now()", "datetime.datetime.now"),
        ("import asyncio\nasyncio.get_running_loop().time()", "loop.time"),
        ("loop.time()", "loop.time"),
        ("import asyncio\nasyncio.timeout(60)", "asyncio.timeout"),
        ("import asyncio\nasyncio.wait_for(task, 60)", "asyncio.wait_for"),
        ("import asyncio\nasyncio.create_subprocess_exec('true')", "asyncio.create_subprocess_exec"),
        ("import subprocess", "subprocess"),
        ("from subprocess import run", "subprocess.run"),
        ("import os\nos.fork()", "os.fork"),
        ("import threading\nthreading.Thread(target=print)", "threading.Thread"),
        ("import socket", "socket"),
        ("from http.server import HTTPServer", "http.server.HTTPServer"),
        ("import aiohttp\naiohttp.ClientSession()", "aiohttp.ClientSession"),
        ("from aiohttp import web\nweb.TCPSite(runner)", "aiohttp.web.TCPSite"),
        ("from aiohttp.test_utils import TestServer", "aiohttp.test_utils.TestServer"),
        ("import asyncio\nasyncio.start_server(serve)", "asyncio.start_server"),
        ("server.listen()", ".listen"),
        ("from remuda.kube.clock import SYSTEM_CLOCK", "remuda.kube.clock.SYSTEM_CLOCK"),
        ("from remuda.kube import clock\nclock.SystemClock()", "remuda.kube.clock.SystemClock"),
        ("from remuda.app.embedded import running", "remuda.app.embedded.running"),
        ("from tests.integration.tunnel.pair import echo", "tests.integration.tunnel.pair.echo"),
    ],
)
def test_what_has_a_time_of_its_own_is_found(line: str, what: str) -> None:
    assert what in [name for _, name in found(line)]


@pytest.mark.parametrize(
    "line",
    [
        "import asyncio\nasyncio.sleep(0)",
        "clock.sleep(5)\nclock.time()",
        "import time\ntime.thread_time()",
        "import threading\nthreading.Event()",
        "import asyncio\nasyncio.get_running_loop().create_future()",
        "from aiohttp.test_utils import make_mocked_request",
        "from urllib.parse import unquote",
        "import sockets\nsocket.name",
    ],
)
def test_what_has_none_is_left_alone(line: str) -> None:
    assert list(found(line)) == []
