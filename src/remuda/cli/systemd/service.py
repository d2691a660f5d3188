"""Putting the service there, and away. Whatever is there already stays as it is, so that it can be done again at any time."""

from __future__ import annotations

import difflib
import grp
import os
import pwd
import shutil
import stat
import subprocess
import sys
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path

import remuda

from .unit import MARK, Service, unit_file

UNITS = Path("/etc/systemd/system")
_BOOTED = Path("/run/systemd/system")
_COMMAND_SECONDS = 120.0
# Longer than the unit lets a start take.
_START_SECONDS = 400.0
_LAST_LINES = 30
Say = Callable[[str], None]


class InstallError(Exception):
    """Why it could not be done, and what to do."""


def runs_here() -> bool:
    """Whether systemd runs this machine."""
    return _BOOTED.is_dir()


def install(service: Service, say: Say, *, start: bool) -> None:
    """Raises InstallError, OSError."""
    path = UNITS / service.unit
    before = _ours(path)
    _ensure_user(service, say)
    for directory in () if service.state_directory else (service.data_dir,):
        _ensure_directory(directory, service.user, say)
    changed = _write(path, before, unit_file(service), say)
    if changed and runs_here():
        _systemctl("daemon-reload")
    if start:
        _start(service, say, changed=changed)


def uninstall(name: str, say: Say, *, purge: bool) -> None:
    """Raises InstallError, OSError. What is purged is what a unit of ours names, and nothing that somebody else may have."""
    unit = f"{name}.service"
    path = UNITS / unit
    before = _ours(path)
    if before is None:
        raise InstallError(f"there is no service {name}: {path} does not exist")
    user = said(before, "User")
    if runs_here():
        _systemctl("disable", "--now", unit)
        say(f"{unit}: stopped and disabled")
    path.unlink()
    say(f"{path}: removed")
    if runs_here():
        _systemctl("daemon-reload")
        # One that failed would be shown for ever.
        _asked("reset-failed", unit)
    state = Path("/var/lib") / name
    if not said(before, "StateDirectory"):
        say("the data directory stays, since it was chosen by --data-dir: remove it by hand")
    elif purge:
        _remove(state, say)
    elif state.is_dir():
        say(f"{state}: stays, with all state and keys; with --purge it goes, too")
    if purge and name == "remuda":
        _remove(Path("/var/cache/remuda"), say)
    if purge and _user_exists(user) and pwd.getpwnam(user).pw_dir == str(state):
        _done(["userdel", user])
        say(f"user {user}: removed")


def _remove(directory: Path, say: Say) -> None:
    if directory.is_dir():
        shutil.rmtree(directory)
        say(f"{directory}: removed")


def said(text: str, key: str) -> str:
    """What a unit says of something; empty when it says nothing."""
    return next((line.partition("=")[2] for line in text.splitlines() if line.startswith(f"{key}=")), "")


# --- what must be there ---------------------------------------------------------------------------------------------------------


def _ours(path: Path) -> str | None:
    try:
        text = path.read_text()
    except FileNotFoundError:
        return None
    if not text.startswith(MARK):
        raise InstallError(f"{path} was not written by remuda install: move it away, or say another --name")
    return text


def _user_exists(name: str) -> bool:
    try:
        pwd.getpwnam(name)
    except KeyError:
        return False
    return True


def _ensure_user(service: Service, say: Say) -> None:
    name = service.user
    if _user_exists(name):
        say(f"user {name}: is there")
        return
    group = ["--gid", name] if any(each.gr_name == name for each in grp.getgrall()) else ["--user-group"]
    shell = shutil.which("nologin") or "/usr/sbin/nologin"
    _done(["useradd", "--system", *group, "--home-dir", str(service.data_dir), "--no-create-home", "--shell", shell, name])
    say(f"user {name}: made")


def _ensure_directory(directory: Path, user: str, say: Say) -> None:
    if directory.is_dir():
        owner = directory.stat().st_uid
        if owner != pwd.getpwnam(user).pw_uid:
            raise InstallError(f"{directory} belongs to user {owner}, not to {user}: chown -R {user}: {directory}")
        return
    directory.mkdir(mode=0o700, parents=True)
    shutil.chown(directory, user, pwd.getpwnam(user).pw_gid)
    say(f"{directory}: made")


def _write(path: Path, before: str | None, text: str, say: Say) -> bool:
    if before == text:
        say(f"{path}: unchanged")
        return False
    half = path.with_name(f".{path.name}.new")
    half.write_text(text)
    half.chmod(0o644)
    half.replace(path)
    say(f"{path}: {'written' if before is None else 'changed'}")
    for line in difference(before, text) if before is not None else ():
        say(f"  {line}")
    return True


def difference(before: str, after: str) -> list[str]:
    found = difflib.unified_diff(before.splitlines(), after.splitlines(), n=0, lineterm="")
    return [line for line in found if not line.startswith(("---", "+++", "@@"))]


def _start(service: Service, say: Say, *, changed: bool) -> None:
    unit = service.unit
    if _asked("is-enabled", unit) != "enabled":
        _systemctl("enable", unit)
        say(f"{unit}: enabled")
    active = _asked("is-active", unit) == "active"
    if active and not changed:
        say(f"{unit}: runs ({_asked('show', '-p', 'StatusText', '--value', unit)})")
        return
    _asked("reset-failed", unit)
    done = _run(["systemctl", "restart", unit], _START_SECONDS)
    if done.returncode != 0 or _asked("is-active", unit) != "active":
        # It would be tried again for ever.
        _asked("stop", unit)
        raise InstallError(f"{unit} did not come up: {_why(unit)} (journalctl -u {unit} shows more)")
    say(f"{unit}: {'restarted' if active else 'started'} ({_asked('show', '-p', 'StatusText', '--value', unit)})")


def _why(unit: str) -> str:
    """What it said last, if that is a sentence of ours; else what systemd says of its end."""
    done = _run(["journalctl", "-u", unit, "-o", "cat", "--no-pager", "-n", str(_LAST_LINES)], _COMMAND_SECONDS)
    lines = [line for line in done.stdout.splitlines() if line.startswith("remuda: ")]
    if lines:
        return lines[-1].removeprefix("remuda: ")
    told = _asked("show", "-p", "Result", "-p", "ExecMainStatus", unit)
    return f"{told.replace(chr(10), ', ')}" or "nobody says why"


# --- systemd --------------------------------------------------------------------------------------------------------------------


def _systemctl(*words: str) -> None:
    _done(["systemctl", *words])


def _asked(*words: str) -> str:
    """What systemctl answers, whether or not it is content."""
    return _run(["systemctl", *words], _COMMAND_SECONDS).stdout.strip()


def _done(command: list[str]) -> None:
    done = _run(command, _COMMAND_SECONDS)
    if done.returncode != 0:
        told = (done.stderr or done.stdout).strip().splitlines()
        raise InstallError(f"{' '.join(command)} failed: {told[-1] if told else done.returncode}")


def _run(command: list[str], seconds: float) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "LC_ALL": "C", "SYSTEMD_PAGER": "", "SYSTEMD_COLORS": "0"}
    try:
        return subprocess.run(command, capture_output=True, text=True, timeout=seconds, check=False, env=environment)
    except FileNotFoundError:
        raise InstallError(f"there is no {command[0]} on this machine") from None
    except subprocess.TimeoutExpired:
        raise InstallError(f"{' '.join(command)} did not end within {seconds:.0f} seconds") from None


# --- program --------------------------------------------------------------------------------------------------------------
#
# Which program a service runs, and whether its user can.

_HOMES = tuple(map(Path, ("/home", "/root", "/run/user")))
_TEMPORARY = tuple(map(Path, ("/tmp", "/var/tmp")))


@dataclass(frozen=True, slots=True)
class Program:
    """`places` is everything that has to be readable."""

    words: tuple[str, ...]
    places: tuple[Path, ...]

    @property
    def at_home(self) -> bool:
        return any(_below(place, _HOMES) for place in self.places)

    @property
    def temporary(self) -> Path | None:
        return next((place for place in self.places if _below(place, _TEMPORARY)), None)

    @property
    def closed(self) -> Path | None:
        """What other users can't read or pass."""
        return next((path for path in _with_parents(self.places) if not open_to_all(path)), None)


def this_program() -> Program:
    """The one that runs now, as it was installed."""
    beside = Path(sys.executable).with_name("remuda")
    words = (str(beside),) if beside.is_file() else (sys.executable, "-m", "remuda")
    places = (Path(words[0]), Path(sys.executable), Path(sys.prefix), Path(sys.base_prefix), Path(remuda.__file__))
    return Program(words, tuple(dict.fromkeys(place.resolve() for place in places)))


def open_to_all(path: Path) -> bool:
    mode = path.stat().st_mode
    return bool(mode & stat.S_IROTH and (not stat.S_ISDIR(mode) or mode & stat.S_IXOTH))


def _with_parents(places: Iterable[Path]) -> Iterable[Path]:
    return sorted({path for place in places for path in (place, *place.parents)})


def _below(place: Path, directories: Iterable[Path]) -> bool:
    return any(directory in place.parents for directory in directories)
