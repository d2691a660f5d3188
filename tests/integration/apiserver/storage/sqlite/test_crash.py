"""What a crash may cost: nothing that was acknowledged, no revision twice, no event twice or never.

kill -9 never loses the page cache, so it proves the logic; that the bytes reach the disk before the answer is shown by
strace.
"""

from __future__ import annotations

import os
import random
import re
import shutil
import signal
import subprocess
import sys
import textwrap
import time
from pathlib import Path

import pytest

from remuda.apiserver.storage.sqlite import SqliteStore
from remuda.apiserver.storage.store import Put
from remuda.kube.clock import SYSTEM_CLOCK

from .closed_database import meta_of

CHILD = Path(__file__).with_name("crashing.py")
ROUNDS = 60 if os.environ.get("REMUDA_SOAK") == "1" else 5


def run_and_kill(path: Path, seed: str, after: int, seconds: float) -> list[list[str]]:
    """What the child had told when it was killed `seconds` after it was ready. A line cut by the kill is dropped."""
    output = path.with_name("output")
    with output.open("wb") as out:
        child = subprocess.Popen([sys.executable, str(CHILD), str(path), seed, str(after)], stdout=out, stderr=subprocess.PIPE)
        try:
            while not output.stat().st_size and child.poll() is None:
                time.sleep(0.005)
            time.sleep(seconds)
        finally:
            child.send_signal(signal.SIGKILL)
            _, errors = child.communicate()
    assert child.returncode == -signal.SIGKILL, errors.decode()
    text = output.read_bytes()
    return [line.split() for line in text[: text.rfind(b"\n") + 1].decode().splitlines()]


def short(value: bytes) -> str:
    """The part of a child's value that says who wrote it."""
    return value[:40].decode().split("x")[0]


async def read_log(path: Path, keys: set[str]) -> tuple[dict[tuple[int, str], str], dict[str, tuple[int, str]], int]:
    """All that ever happened to `keys` (history outlives compaction), what is there now, and the revision."""
    store = await SqliteStore.open(path, SYSTEM_CLOCK)
    try:
        held = {kv.key: (kv.mod_revision, short(kv.value)) for kv in (await store.range("")).items}
        told = {
            (version.revision, key): "-" if version.kv is None else short(version.kv.value)
            for key in keys | set(held)
            for version in await store.history(key)
        }
        return dict(sorted(told.items())), held, store.revision
    finally:
        await store.close()


async def test_kill_9_under_concurrent_writers_costs_nothing_that_was_acknowledged(tmp_path: Path) -> None:
    seed = int(os.environ.get("REMUDA_SEED", random.SystemRandom().randrange(10**9)))
    print(f"seed {seed} (REMUDA_SEED={seed} repeats the writes)")
    chance = random.Random(seed)
    path = tmp_path / "state.db"
    acknowledged: dict[tuple[int, str], str] = {}
    seen: list[tuple[int, str]] = []
    for round_ in range(ROUNDS):
        # A watcher resumes from the last revision of which it has everything; the kill may have cut a transaction in two.
        whole = max((revision for revision, _ in seen if revision < seen[-1][0]), default=0)
        seen = [entry for entry in seen if entry[0] <= whole]
        for line in run_and_kill(path, f"{seed}.{round_}", whole, chance.uniform(0.0, 0.5)):
            if line[0] == "ack":
                place = int(line[1]), line[2]
                assert place not in acknowledged, f"revision {place} was given twice"
                acknowledged[place] = line[3]
            elif line[0] == "saw":
                seen.append((int(line[1]), line[2]))
        # sqlite recovers by itself; the next child opens what this one left.
        assert meta_of(path)["clean"] == 0
    logged, held, revision = await read_log(path, {key for _, key in [*acknowledged, *seen]})

    missing = [place for place in acknowledged if place not in logged]
    assert not missing, f"acknowledged but lost: {missing[:5]} of {len(acknowledged)}"
    assert {place: logged[place] for place in acknowledged} == acknowledged
    sharing: dict[int, set[str]] = {}
    for at, key in logged:
        sharing.setdefault(at, set()).add(key.removesuffix("/pair"))
    assert all(len(keys) == 1 for keys in sharing.values()), "a revision was used for two transactions"
    newest = {key: (at, value) for (at, key), value in logged.items()}
    assert held == {key: entry for key, entry in newest.items() if entry[1] != "-"}
    # Each was killed before it had written anything, when the machine had no time for them.
    assert revision >= max((place[0] for place in acknowledged), default=0)
    assert seen == list(logged)[: len(seen)], "the resumed watch has a gap or a repeat"
    print(f"{ROUNDS} kills, {len(acknowledged)} acknowledged, {len(logged)} in the log, {len(seen)} watched")


TRACED = textwrap.dedent(
    """
    import asyncio, os, sys
    from pathlib import Path
    from remuda.apiserver.storage.store import Put
    from remuda.apiserver.storage.sqlite import SqliteStore
    from remuda.kube.clock import SYSTEM_CLOCK

    async def main(path):
        store = await SqliteStore.open(path, SYSTEM_CLOCK)
        for index in range(3):
            os.write(1, b"MARK receipt")
            await store.write([Put(f"/traced/{index}", bytes(4096))])
            os.write(1, b"MARK acknowledged")
        os.write(1, b"MARK receipt")
        await asyncio.gather(*(store.write([Put(f"/together/{index}", bytes(4096))]) for index in range(20)))
        os.write(1, b"MARK acknowledged")
        await store.close()

    asyncio.run(main(Path(sys.argv[1])))
    """
)


def test_the_log_is_synced_to_disk_between_receipt_and_acknowledgement(tmp_path: Path) -> None:
    strace = shutil.which("strace")
    trace = tmp_path / "trace"
    works = strace is not None and subprocess.run([strace, "-o", "/dev/null", "true"], capture_output=True).returncode == 0
    if strace is None or not works:
        reason = "strace is not installed, or may not trace here"
        if os.environ.get("REMUDA_REQUIRE_REAL") == "1":
            pytest.fail(reason)
        pytest.skip(reason)
    path = tmp_path / "state.db"
    calls = "trace=fsync,fdatasync,write,pwrite64"
    command = [strace, "-f", "-y", "-e", calls, "-s", "32", "-o", str(trace), sys.executable, "-c", TRACED, str(path)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    between = re.findall(r'"MARK receipt"(.*?)"MARK acknowledged"', trace.read_text(), re.DOTALL)
    assert len(between) == 4
    for calls_made in between:
        written = [match.start() for match in re.finditer(r"pwrite64\(\d+<[^>]*state\.db-wal>", calls_made)]
        synced = [match.start() for match in re.finditer(r"(fdatasync|fsync)\(\d+<[^>]*state\.db-wal>", calls_made)]
        assert written and synced, calls_made
        assert synced[-1] > written[-1], f"something was written after the last sync:\n{calls_made}"
        finished = re.findall(r"(?:fdatasync|fsync)(?:\(\d+<[^>]*state\.db-wal>\)| resumed>\)) += (-?\d+)", calls_made)
        assert finished and set(finished) == {"0"}, calls_made
    # Group commit: twenty writes at once take a few syncs, not twenty.
    assert len(re.findall(r"(?:fdatasync|fsync)\(\d+<[^>]*state\.db-wal>", between[-1])) < 10


async def test_a_killed_server_leaves_a_lock_that_does_not_hold(tmp_path: Path) -> None:
    path = tmp_path / "state.db"
    run_and_kill(path, "lock", 0, 0.05)
    assert path.with_name("state.db.lock").exists()
    store = await SqliteStore.open(path, SYSTEM_CLOCK)
    before = store.revision
    assert await store.write([Put("/mine", b"")]) == before + 1
    await store.close()
    assert meta_of(path)["clean"] == 1
