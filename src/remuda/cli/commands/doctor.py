"""`remuda doctor`: looks before a server has to find out."""

from __future__ import annotations

import contextlib
import ctypes
import errno
import os
import resource
import shutil
import socket
import sqlite3
import stat
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import click

from remuda.kube.clock import Clock, rfc3339

from ..options.locations import Listen, data_dir_option, listen_option
from ..views.output import JSON, TABLE, WIDE, YAML, Column, Output, output_option

_COLOURS = {"ok": "green", "warn": "yellow", "fail": "red"}


@click.command()
@data_dir_option
@listen_option
@output_option(TABLE, WIDE, JSON, YAML)
@click.pass_context
def command(ctx: click.Context, data_dir: Path, listen: Listen, output: Output) -> None:
    """Check whether a server can run well here.

    Each check is ok, a warning, or a failure with what to do about it. The exit code is 1 when one fails.
    """
    from remuda.kube.clock import SYSTEM_CLOCK

    found = run(Subject(data_dir.absolute(), listen, SYSTEM_CLOCK))
    failed = any(result.status == "fail" for result in found)
    if output.structured:
        output.value({"ok": not failed, "checks": [result.document() for result in found]})
    else:
        rows = [(output.paint(result.status, _COLOURS[result.status]), result.name, result.told()) for result in found]
        output.table((Column("STATUS"), Column("CHECK"), Column("FOUND")), rows)
    if failed:
        ctx.exit(1)


# --- checks ---------------------------------------------------------------------------------------------------------------
#
# What `remuda doctor` looks at. A check is a function of the subject that gives one result; none of them changes anything.
#
# (Except that disk speed can't be seen without writing: that check makes a small file and removes it.)

Status = Literal["ok", "warn", "fail"]

DISK_FAIL, DISK_WARN = 200 * 2**20, 2 * 2**30
FSYNC_WARN_MS, FSYNC_FAIL_MS = 20.0, 1000.0
FILES_FAIL, FILES_WARN = 256, 4096
OLDEST_SQLITE = (3, 35, 0)
_KEYS = ("ca.key", "serving.key", "admin.key", "service-account.key")
_SECRET_FILES = ("kubeconfig", "encryption.yaml", "state.db", *(f"pki/{name}" for name in _KEYS))
# No machine that runs this has a right clock that shows an earlier time.
_RELEASED = 1_780_000_000.0
_TIME_ERROR = 5


@dataclass(frozen=True, slots=True)
class Subject:
    data_dir: Path
    listen: Listen
    clock: Clock


@dataclass(frozen=True, slots=True)
class CheckResult:
    name: str
    status: Status
    found: str
    advice: str = ""

    def told(self) -> str:
        return f"{self.found}: {self.advice}" if self.advice else self.found

    def document(self) -> dict[str, str]:
        return {"name": self.name, "status": self.status, "found": self.found, "advice": self.advice}


def run(subject: Subject) -> list[CheckResult]:
    return [check(subject) for check in CHECKS]


def port(subject: Subject) -> CheckResult:
    listen = subject.listen
    try:
        family, kind, protocol, _, address = socket.getaddrinfo(listen.host, listen.port, type=socket.SOCK_STREAM)[0]
    except socket.gaierror:
        return CheckResult("port", "fail", f"the address {listen.host} is not known", "choose another with --listen")
    with socket.socket(family, kind, protocol) as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(address)
        except OSError as error:
            return _port_taken(subject, error)
    return CheckResult("port", "ok", f"{listen} is free")


def _port_taken(subject: Subject, error: OSError) -> CheckResult:
    listen = subject.listen
    if error.errno != errno.EADDRINUSE:
        advice = "choose another with --listen"
        return CheckResult("port", "fail", f"{listen} can't be listened on ({os.strerror(error.errno or 0)})", advice)
    version = _own_server(subject)
    if version:
        return CheckResult("port", "ok", f"{listen} is served by the Remuda of this data directory ({version})")
    return CheckResult(
        "port", "fail", f"{listen} is in use by another program", "stop it, or choose another address with --listen"
    )


def _own_server(subject: Subject) -> str:
    """The version of the server that answers there with the certificate of this data directory."""
    return str((_asked(subject, "/version") or {}).get("gitVersion") or "")


def _asked(subject: Subject, path: str) -> dict[str, Any] | None:
    """What the server of this data directory answers at a path; None without one."""
    from remuda.client import kubeconfig, oneshot

    with contextlib.suppress(kubeconfig.ConfigError, oneshot.NoAnswer, OSError):
        target = kubeconfig.select(kubeconfig.load([subject.data_dir / "kubeconfig"]))
        if target.server.endswith(f":{subject.listen.port}"):
            answer = oneshot.get(target, path, 2.0)
            return answer if isinstance(answer, dict) else None
    return None


def other_servers(subject: Subject) -> CheckResult:
    """The connections between the servers of one etcd, as the running server of this data directory knows them."""
    name = "other servers"
    found = _asked(subject, "/healthz/peers?output=json")
    if found is None or not found.get("others"):
        return CheckResult(name, "ok", "none are known" if found is not None else "no running server here knows of any")
    missing = [f"{each['from']} to {each['to']}: {each['problem']}" for each in found["links"] if each["problem"]]
    if not missing:
        return CheckResult(name, "ok", f"{found['others']}, and all reach each other")
    advice = "each must reach the others directly, at the --advertise-address of each"
    return CheckResult(
        name, "warn", f"{len(missing)} of {len(found['links'])} connections are missing ({'; '.join(missing)})", advice
    )


def _existing(path: Path) -> Path:
    """The nearest directory that is there already."""
    return next(parent for parent in (path, *path.parents) if parent.exists())


def disk_space(subject: Subject) -> CheckResult:
    place = _existing(subject.data_dir)
    free = shutil.disk_usage(place).free
    found = f"{_size(free)} free for {subject.data_dir}"
    if free < DISK_FAIL:
        return CheckResult("disk space", "fail", found, f"make room, at least {_size(DISK_FAIL)}")
    if free < DISK_WARN:
        return CheckResult("disk space", "warn", found, f"{_size(DISK_WARN)} leave room for history and backups")
    return CheckResult("disk space", "ok", found)


def _size(count: int) -> str:
    return f"{count / 2**30:.1f} GiB" if count >= 2**30 else f"{count // 2**20} MiB"


def disk_speed(subject: Subject) -> CheckResult:
    place = _existing(subject.data_dir)
    try:
        taken = sorted(_sync_times(place, subject.clock))
    except OSError as error:
        reason = os.strerror(error.errno or 0)
        return CheckResult("disk speed", "fail", f"{place} can't be written ({reason})", "choose another with --data-dir")
    middle = taken[len(taken) // 2] * 1000
    found = f"a durable write takes {middle:.1f} ms"
    if middle >= FSYNC_FAIL_MS:
        return CheckResult("disk speed", "fail", found, "use a working disk, or choose another directory with --data-dir")
    if middle >= FSYNC_WARN_MS:
        return CheckResult("disk speed", "warn", found, "every write of an object waits for one; a local SSD takes about 1 ms")
    return CheckResult("disk speed", "ok", found)


def _sync_times(place: Path, clock: Clock) -> Iterator[float]:
    with tempfile.TemporaryFile(dir=place, buffering=0) as file:
        for _ in range(9):
            file.write(bytes(4096))
            started = clock.monotonic()
            os.fdatasync(file.fileno())
            yield clock.monotonic() - started


def time(subject: Subject) -> CheckResult:
    now = subject.clock.time()
    found = f"it is {rfc3339(now)}"
    if now < _RELEASED:
        return CheckResult("clock", "fail", found, "that is in the past: set the clock, or certificates will not be valid")
    state = subject.data_dir / "state.db"
    if state.exists() and state.stat().st_mtime > now + 60:
        return CheckResult("clock", "fail", found, f"but {state} was written after that: set the clock, which went backwards")
    if not _synchronised():
        return CheckResult("clock", "warn", found, "the clock is not synchronised: run chrony or systemd-timesyncd")
    return CheckResult("clock", "ok", found)


def _synchronised() -> bool:
    """The answer of adjtimex(2); True when it can't be asked."""
    try:
        state = ctypes.create_string_buffer(512)  # struct timex, all zero: only ask
        return int(ctypes.CDLL(None).adjtimex(state)) != _TIME_ERROR
    except (OSError, AttributeError):
        return True


def permissions(subject: Subject) -> CheckResult:
    directory = subject.data_dir
    if not directory.exists():
        place = _existing(directory)
        if os.access(place, os.W_OK | os.X_OK) and place.is_dir():
            return CheckResult("permissions", "ok", f"{directory} does not exist yet and can be created")
        return CheckResult("permissions", "fail", f"{directory} can't be made in {place}", "choose another with --data-dir")
    if not directory.is_dir() or not os.access(directory, os.R_OK | os.W_OK | os.X_OK):
        return CheckResult("permissions", "fail", f"{directory} is not this user's", f"chown -R it to uid {os.getuid()}")
    loose = [name for name in _SECRET_FILES if _readable_by_others(directory / name)]
    if loose:
        listed = ", ".join(loose)
        advice = f"cd {directory} && chmod go= {' '.join(loose)}; then treat their content as disclosed"
        return CheckResult("permissions", "fail", f"others can read {listed}", advice)
    if _readable_by_others(directory):
        return CheckResult("permissions", "warn", f"other users can list {directory}", f"chmod 700 {directory}")
    return CheckResult("permissions", "ok", f"{directory} and its keys can be read by this user only")


def _readable_by_others(path: Path) -> bool:
    try:
        return bool(path.stat().st_mode & (stat.S_IRWXG | stat.S_IRWXO))
    except OSError:
        return False


def open_files(subject: Subject) -> CheckResult:
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if hard == resource.RLIM_INFINITY:
        return CheckResult("open files", "ok", "no limit")
    found = f"at most {hard}"
    advice = "each client and each watch needs one: raise it with ulimit -n, or LimitNOFILE= of the service"
    if hard < FILES_FAIL:
        return CheckResult("open files", "fail", found, advice)
    return CheckResult("open files", "warn", found, advice) if hard < FILES_WARN else CheckResult("open files", "ok", found)


def sqlite(subject: Subject) -> CheckResult:
    found = f"version {sqlite3.sqlite_version}"
    if sqlite3.sqlite_version_info < OLDEST_SQLITE:
        wanted = ".".join(map(str, OLDEST_SQLITE))
        return CheckResult("sqlite", "fail", found, f"{wanted} or later is needed: use a newer Python or libsqlite3")
    return CheckResult("sqlite", "ok", found)


CHECKS: tuple[Callable[[Subject], CheckResult], ...] = (
    port,
    disk_space,
    disk_speed,
    time,
    permissions,
    open_files,
    sqlite,
    other_servers,
)
