"""The audit log: no secret in it, one line one object, and a bad disk costs lines but no request."""

from __future__ import annotations

import asyncio
import errno
import json
import os
import time
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from remuda.gateway.server.audit_log import LONGEST_FIELD, AuditLog, Fsync, Record, Result, render
from remuda.kube.clock import Entropy, VirtualClock
from remuda.kube.redaction import redacted

SECRET = Entropy(seed=7).token_text(54)
JWT = "eyJhbGciOiJFUzI1NiJ9.eyJzdWIiOiJhZG1pbiJ9.c2lnbmF0dXJl"


def record(path: str = "/v3/clusters", **more: Any) -> Record:
    return Record("GET", path, Result.ALLOWED, **more)


def lines(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text().splitlines()]


# --- no secrets -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "left"),
    [
        (f"/v3/import/{SECRET}_c-m-abcdefgh.yaml", "/v3/import/[hidden]_c-m-abcdefgh.yaml"),
        (f"/V3/Import/{SECRET}_c-abcde.yaml?authImage=x", "/V3/Import/[hidden]_c-abcde.yaml?authImage="),
        ("/v3/import/short_local.yaml", "/v3/import/[hidden]_local.yaml"),
        (f"/v3/import/{SECRET}.yaml", "/v3/import/[hidden]"),
        ("/v3/import/abc", "/v3/import/[hidden]"),
        ("/a?token=abc&watch=1", "/a?token=[hidden]&watch=1"),
        ("/a?watch=1&access_token=abc", "/a?watch=1&access_token=[hidden]"),
        ("/a?t%6Fken=abc", "/a?t%6Fken=[hidden]"),
        ("/a?t%256Fken=abc", "/a?t%256Fken=[hidden]"),
        ("/a;password=abc;b=c", "/a;password=[hidden];b=c"),
        ("/a?X-Amz-Signature=abc", "/a?X-Amz-Signature=[hidden]"),
        (f"Bearer token-abcde:{SECRET}", "Bearer [hidden]"),
        ("basic dXNlcjpwYXNz, x", "basic [hidden], x"),
        (f"user agent token-abcde:{SECRET}", "user agent token-abcde:[hidden]"),
        (f"/a/token-abcde%3A{SECRET}", "/a/token-abcde:[hidden]"),
        (f"/a/token-abcde%253a{SECRET}", "/a/token-abcde:[hidden]"),
        ("token-abcde:x", "token-abcde:[hidden]"),
        (f"stv-cluster-{SECRET}", "stv-cluster-[hidden]"),
        (f"/x{SECRET}y", "/[hidden]y"),
        (f"/assets/{JWT}", "/assets/[hidden]"),
        (f"x{JWT}", "[hidden]"),
        (f"R_SESS=token-a:{SECRET}; a=b", "R_SESS=[hidden]; a=b"),
        ("-----BEGIN EC PRIVATE KEY-----\nAAAA\n-----END EC PRIVATE KEY----- x", "[hidden] x"),
        ("-----BEGIN PRIVATE KEY-----\nAAAA", "[hidden]"),
        # What is no secret stays readable.
        ("/k8s/clusters/c-m-abcdefgh/api/v1/pods?watch=1", "/k8s/clusters/c-m-abcdefgh/api/v1/pods?watch=1"),
        ("/apis/rbac.authorization.k8s.io/v1/roles/system:node", "/apis/rbac.authorization.k8s.io/v1/roles/system:node"),
        ("kubectl/v1.36.0 (linux/amd64) kubernetes/abc1234", "kubectl/v1.36.0 (linux/amd64) kubernetes/abc1234"),
    ],
)
def test_secrets_are_hidden_and_the_rest_stays(text: str, left: str) -> None:
    hidden = redacted(text)
    assert hidden.startswith(left)
    assert SECRET not in hidden
    assert redacted(hidden) == hidden


@given(st.text(alphabet="abc /?&=;:.-", max_size=20), st.text(alphabet="abc /?&=;:.-", max_size=20), st.integers(0, 2**32))
def test_a_token_of_ours_is_hidden_wherever_it_is(before: str, after: str, seed: int) -> None:
    secret = Entropy(seed).token_text(54)
    assert secret not in redacted(f"{before}{secret}{after}")
    assert secret not in redacted(f"{before}token-abcde:{secret}{after}")
    for field in ("user", "why", "agent", "cluster", "address", "request", "impersonated"):
        line = render(record(**{field: f"{before}{secret}{after}"}), 0)
        assert secret.encode() not in line


_MARKS = ("?", "&", ";", "=", ":", "%3a", "-", ".", " ", "/", ",", '"', "\n", "x", "[hidden]", SECRET)
_WORDS = (
    "/v3/import/",
    "_c-ab",
    ".yaml",
    "token",
    "u-",
    "eyJ",
    "Bearer",
    "basic+",
    "R_SESS=",
    "CSRF=",
    "-----BEGIN PRIVATE KEY-----",
)
_PIECES = st.sampled_from((*_MARKS, *_WORDS))


@given(st.one_of(st.text(), st.lists(_PIECES, max_size=12).map("".join)))
def test_a_token_is_hidden_in_whatever_text_it_comes(text: str) -> None:
    assert SECRET not in redacted(text)
    assert SECRET.encode() not in render(record(text, why=text), 0)


@pytest.mark.parametrize(
    "piece",
    [
        "?token",
        "eyJ",
        "eyJ.",
        "token-",
        "token-a:",
        "/v3/import/",
        "_c-",
        "-----BEGIN PRIVATE KEY-----",
        "bearer ",
        "authorization: ",
        "token=",
        'token": ',
        "K10",
        "a.",
        "?",
        "%3a",
    ],
)
def test_no_text_that_a_caller_makes_up_takes_long(piece: str) -> None:
    text = piece * (2 * LONGEST_FIELD // len(piece))
    began = time.thread_time()
    for _ in range(10):
        redacted(text)
    # Of this thread only. A few milliseconds each; what grows with the square takes a hundred times as long.
    assert time.thread_time() - began < 2


# --- one line, one object -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("text", ['a\n{"user":"forged"}', "a\r\nb", "a\u2028b", "a\0b", "\x1b[2J", "\ud800", '"', "\\"])
def test_clients_can_not_forge_a_line(text: str) -> None:
    line = render(record(text, user=text, agent=text, groups=(text,)), 0)
    assert line.count(b"\n") == 1
    assert line.endswith(b"\n")
    assert json.loads(line)["method"] == "GET"


def test_a_megabyte_of_path_is_a_short_line() -> None:
    line = render(record("/" + "a" * (1 << 20), groups=("g" * 10_000,) * 1000), 0)
    assert len(line) < 80 * (LONGEST_FIELD + 20)


def test_annotations_are_cut_and_without_secrets() -> None:
    given = {"a.example.com/why": "token=abcdefghijklmnop", "b" * 5000: "c" * 5000, **{f"k{i}": "" for i in range(100)}}
    found = json.loads(render(record("/", annotations=given), 0))["annotations"]
    assert "abcdefghijklmnop" not in found["a.example.com/why"]
    assert len(found) == 64
    assert max(len(text) for pair in found.items() for text in pair) <= LONGEST_FIELD + 1


def test_a_line_has_the_user_request_path_and_result() -> None:
    found = json.loads(
        render(
            Record(
                "POST",
                "/k8s/clusters/c-1/api",
                Result.REFUSED,
                403,
                "u-1",
                token="token-abcde",
                cluster="c-1",
                address="192.0.2.1",
                why="no access",
                forged=("x-remote-user",),
            ),
            1.5,
        )
    )
    assert found == {
        "time": "1970-01-01T00:00:01.500000Z",
        "method": "POST",
        "path": "/k8s/clusters/c-1/api",
        "result": "refused",
        "status": 403,
        "user": "u-1",
        "token": "token-abcde",
        "cluster": "c-1",
        "address": "192.0.2.1",
        "why": "no access",
        "forged": ["x-remote-user"],
    }


# --- files ----------------------------------------------------------------------------------------------------------------


def test_the_file_is_its_owners_and_goes_on_where_it_ended(tmp_path: Path) -> None:
    path = tmp_path / "deep" / "audit.log"
    for user in ("one", "two"):
        log = AuditLog(path, VirtualClock())
        assert log.record(record(user=user))
        log.close()
    assert [line["user"] for line in lines(path)] == ["one", "two"]
    assert path.stat().st_mode & 0o777 == 0o600


def test_it_is_not_written_through_a_link(tmp_path: Path) -> None:
    victim = tmp_path / "victim"
    victim.write_text("keep")
    (tmp_path / "audit.log").symlink_to(victim)
    log = AuditLog(tmp_path / "audit.log", VirtualClock())
    assert not log.record(record())
    assert (victim.read_text(), log.lost) == ("keep", 1)


def test_files_are_rotated_by_size_and_only_so_many_are_kept(tmp_path: Path) -> None:
    path = tmp_path / "audit.log"
    size = len(render(record(user="u00"), 1.8e9))
    log = AuditLog(path, VirtualClock(1.8e9), largest=2 * size, keep=2)
    for number in range(9):
        assert log.record(record(user=f"u{number:02}"))
    log.close()
    files = {found.name: [line["user"] for line in lines(found)] for found in tmp_path.iterdir()}
    assert files == {"audit.log": ["u08"], "audit.log.1": ["u06", "u07"], "audit.log.2": ["u04", "u05"]}


@given(st.lists(st.integers(0, 300), max_size=40), st.integers(1, 1500), st.integers(0, 4))
@settings(max_examples=30)
def test_of_what_is_kept_nothing_is_missing_in_between(
    tmp_path_factory: pytest.TempPathFactory, sizes: list[int], largest: int, keep: int
) -> None:
    path = tmp_path_factory.mktemp("audit") / "audit.log"
    log = AuditLog(path, VirtualClock(), largest=largest, keep=keep)
    for number, size in enumerate(sizes):
        assert log.record(record("/" + "a" * size, status=number + 1))
    log.close()
    kept = [path.with_name(f"audit.log.{number}") for number in range(keep, 0, -1)] + [path]
    seen = [line["status"] for found in kept if found.exists() for line in lines(found)]
    assert seen == list(range(len(sizes) - len(seen) + 1, len(sizes) + 1))
    assert not sizes or seen
    assert len(list(path.parent.iterdir())) <= keep + 1


def test_rotation_that_fails_costs_no_line(tmp_path: Path) -> None:
    path = tmp_path / "audit.log"
    (tmp_path / "audit.log.1").mkdir()
    (tmp_path / "audit.log.1" / "x").touch()
    log = AuditLog(path, VirtualClock(), largest=1, keep=1)
    assert all(log.record(record()) for _ in range(3))
    assert len(lines(path)) == 3


# --- a bad disk -----------------------------------------------------------------------------------------------------------


class Disk:
    """Takes so many bytes and no more."""

    def __init__(self, room: int) -> None:
        self.room = room

    def write(self, file: int, data: bytes) -> int:
        if self.room <= 0:
            raise OSError(errno.ENOSPC, "No space left on device")
        wrote = os.write(file, data[: self.room])
        self.room -= wrote
        return wrote


def test_a_full_disk_costs_lines_that_are_counted_and_told_afterwards(tmp_path: Path) -> None:
    path, disk = tmp_path / "audit.log", Disk(1 << 20)
    log = AuditLog(path, VirtualClock(), write=disk.write)
    assert log.record(record(user="before"))
    disk.room = 0
    assert not any(log.record(record(user="gone")) for _ in range(5))
    assert log.lost == 5
    disk.room = 1 << 20
    assert log.record(record(user="after"))
    assert log.record(record(user="last"))
    found = lines(path)
    assert [line.get("user", line.get("lost")) for line in found] == ["before", 5, "after", "last"]


def test_half_a_line_spoils_no_other(tmp_path: Path) -> None:
    path, disk = tmp_path / "audit.log", Disk(20)
    log = AuditLog(path, VirtualClock(), write=disk.write)
    assert not log.record(record(user="half"))
    disk.room = 1 << 20
    assert log.record(record(user="whole"))
    torn, *rest = path.read_text().splitlines()
    assert len(torn) == 20
    assert [json.loads(line).get("user") for line in rest] == [None, "whole"]


def test_half_a_line_of_a_crash_spoils_no_other(tmp_path: Path) -> None:
    path = tmp_path / "audit.log"
    path.write_text('{"time":"x"}\n{"time')
    log = AuditLog(path, VirtualClock())
    log.record(record(user="whole"))
    assert json.loads(path.read_text().splitlines()[-1])["user"] == "whole"


@given(st.lists(st.integers(0, 400), max_size=30))
@settings(max_examples=60)
def test_on_any_disk_every_line_is_written_or_counted(tmp_path_factory: pytest.TempPathFactory, rooms: list[int]) -> None:
    path, disk = tmp_path_factory.mktemp("audit") / "audit.log", Disk(0)
    log = AuditLog(path, VirtualClock(), write=disk.write)
    wrote = 0
    for number, room in enumerate(rooms):
        disk.room = room
        wrote += log.record(record(status=number + 1))
    disk.room = 1 << 20
    assert log.record(record(user="end"))
    assert wrote + log.lost == len(rooms)
    whole = []
    for line in path.read_text().splitlines():
        try:
            whole.append(json.loads(line))
        except ValueError:
            continue
    assert sum("status" in line for line in whole) >= wrote
    assert whole[-1]["user"] == "end"


def test_a_directory_that_can_not_be_made_raises_nothing(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    log = AuditLog(tmp_path / "file" / "audit.log", VirtualClock())
    assert not log.record(record())
    log.close()


# --- forcing to disk ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("fsync", "times"), [(Fsync.EVERY_LINE, 3), (Fsync.NOW_AND_THEN, 0), (Fsync.NEVER, 0)])
def test_lines_are_forced_to_disk_as_was_chosen(tmp_path: Path, fsync: Fsync, times: int) -> None:
    forced: list[int] = []
    log = AuditLog(tmp_path / "audit.log", VirtualClock(), fsync=fsync, force=forced.append)
    for _ in range(3):
        log.record(record())
    assert len(forced) == times
    log.close()
    assert len(forced) == times + (fsync is not Fsync.NEVER)


async def test_now_and_then_is_only_when_there_is_something(tmp_path: Path) -> None:
    forced: list[int] = []
    clock = VirtualClock()
    loop, first = asyncio.get_running_loop(), asyncio.Event()

    def force(file: int) -> None:
        forced.append(file)
        loop.call_soon_threadsafe(first.set)

    log = AuditLog(tmp_path / "audit.log", clock, every=1.0, force=force)
    task = asyncio.create_task(log.keep_forced())
    await clock.advance(5)
    assert forced == []
    log.record(record())
    log.record(record())
    await clock.advance(1)
    await first.wait()
    await clock.advance(5)
    assert len(forced) == 1
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)
    log.close()


def test_a_disk_that_can_not_be_forced_fails_no_request(tmp_path: Path) -> None:
    def broken(file: int) -> None:
        raise OSError(errno.EIO, "Input/output error")

    log = AuditLog(tmp_path / "audit.log", VirtualClock(), fsync=Fsync.EVERY_LINE, force=broken)
    assert log.record(record())
    log.close()
