"""Putting the service there, and away. Whatever is there already stays as it is, so that it can be done again at any time."""

from __future__ import annotations

import difflib
import grp
import os
import pwd
import re
import shutil
import stat
import subprocess
import sys
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path

import remuda
from remuda import __version__

UNITS = Path("/etc/systemd/system")
_BOOTED = Path("/run/systemd/system")
_COMMAND_SECONDS = 120.0
# Longer than the unit lets a start take.
_START_SECONDS = 400.0
_LAST_LINES = 30
_STATE_FILES = ("state.db", "pki")
Say = Callable[[str], None]


class InstallError(Exception):
    """The reason of a failure, and the remedy."""


def runs_here() -> bool:
    """True if systemd runs this machine."""
    return _BOOTED.is_dir()


def install(service: SystemdService, say: Say, *, start: bool) -> None:
    """Raises InstallError, OSError."""
    path = UNITS / service.unit
    before = _ours(path)
    _ensure_user(service, say)
    for directory in () if service.state_directory else (service.data_dir,):
        _ensure_directory(directory, service.user, say)
    active = start and before is not None and _is_active(service.unit)
    changed = _write(path, before, unit_file(service), say)
    try:
        if changed and runs_here():
            _systemctl("daemon-reload")
        if start:
            _start(service, say, changed=changed)
    except InstallError as error:
        if before is None or not changed:
            raise
        raise InstallError(f"{error}; {_put_back(service, before, say, active=active)}") from error


def _put_back(service: SystemdService, before: str, say: Say, *, active: bool) -> str:
    """Restores the unit that was there, and starts it if it was active; says what runs now."""
    unit = service.unit
    _write(UNITS / unit, unit_file(service), before, say)
    _systemctl("daemon-reload")
    if not active:
        return "the former unit is back"
    _asked("reset-failed", unit)
    if _run(["systemctl", "restart", unit], _START_SECONDS).returncode == 0 and _is_active(unit):
        return "the former unit is back, and runs"
    _asked("stop", unit)
    return f"the former unit is back, but does not come up either: {_why(unit)}"


def uninstall(name: str, say: Say, *, purge: bool) -> None:
    """Raises InstallError, OSError. What is purged is what a unit of ours names, and nothing that another program may have."""
    unit = f"{name}.service"
    path, state = UNITS / unit, Path("/var/lib") / name
    before = _ours(path)
    if before is None:
        if not purge:
            raise InstallError(f"there is no service {name}: {path} does not exist")
        _purge_rest(name, state, say)
        return
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
    if not said(before, "StateDirectory"):
        say("the data directory stays, since it was chosen by --data-dir: remove it by hand")
    elif purge:
        _remove(state, say)
    elif state.is_dir():
        say(f"{state}: stays, with all state and keys; remuda uninstall --purge removes it, also later")
    if purge:
        _remove_cache(name, say)
        _remove_users([user] if _user_exists(user) else [], state, say)


def _purge_rest(name: str, state: Path, say: Say) -> None:
    """Removes what an earlier `uninstall` has left, or a `--purge` that was interrupted. No unit says any more whose it is: a
    directory counts as ours by its files, a user by its home."""
    users = [each.pw_name for each in pwd.getpwall() if each.pw_dir == str(state)]
    ours = any((state / file).exists() for file in _STATE_FILES)
    if not ours and (state.exists() or not users):
        found = f"{state} has no state of Remuda's" if state.exists() else f"neither {state} nor a user of it exists"
        raise InstallError(f"there is no service {name}, and nothing to purge: {found}")
    _remove(state, say)
    _remove_cache(name, say)
    _remove_users(users, state, say)


def _remove_cache(name: str, say: Say) -> None:
    if name == "remuda":
        _remove(Path("/var/cache/remuda"), say)


def _remove_users(names: Iterable[str], home: Path, say: Say) -> None:
    """Those that were made for the service, as their home tells."""
    for name in names:
        if pwd.getpwnam(name).pw_dir == str(home):
            _done(["userdel", name])
            say(f"user {name}: removed")


def _remove(directory: Path, say: Say) -> None:
    if directory.is_dir():
        shutil.rmtree(directory)
        say(f"{directory}: removed")


def said(text: str, key: str) -> str:
    """The value of a unit's setting; empty when it is not set."""
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


def _ensure_user(service: SystemdService, say: Say) -> None:
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


def _start(service: SystemdService, say: Say, *, changed: bool) -> None:
    unit = service.unit
    if _asked("is-enabled", unit) != "enabled":
        _systemctl("enable", unit)
        say(f"{unit}: enabled")
    active = _is_active(unit)
    if active and not changed:
        say(f"{unit}: runs ({_asked('show', '-p', 'StatusText', '--value', unit)})")
        return
    _asked("reset-failed", unit)
    done = _run(["systemctl", "restart", unit], _START_SECONDS)
    if done.returncode != 0 or not _is_active(unit):
        # It would be tried again for ever.
        _asked("stop", unit)
        raise InstallError(f"{unit} did not come up: {_why(unit)} (journalctl -u {unit} shows more)")
    say(f"{unit}: {'restarted' if active else 'started'} ({_asked('show', '-p', 'StatusText', '--value', unit)})")


def _is_active(unit: str) -> bool:
    return _asked("is-active", unit) == "active"


def _why(unit: str) -> str:
    """The last sentence of the service, if it is one of ours; else systemd's result."""
    done = _run(["journalctl", "-u", unit, "-o", "cat", "--no-pager", "-n", str(_LAST_LINES)], _COMMAND_SECONDS)
    lines = [line for line in done.stdout.splitlines() if line.startswith("remuda: ")]
    if lines:
        return lines[-1].removeprefix("remuda: ")
    told = _asked("show", "-p", "Result", "-p", "ExecMainStatus", unit)
    return f"{told.replace(chr(10), ', ')}" or "no reason was reported"


# --- systemd --------------------------------------------------------------------------------------------------------------------


def _systemctl(*words: str) -> None:
    _done(["systemctl", *words])


def _asked(*words: str) -> str:
    """The output of systemctl, also when it fails."""
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
class UnitProgram:
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
        """Paths that other users can't read or enter."""
        return next((path for path in _with_parents(self.places) if not open_to_all(path)), None)


def this_program() -> UnitProgram:
    """The one that runs now, as it was installed."""
    beside = Path(sys.executable).with_name("remuda")
    words = (str(beside),) if beside.is_file() else (sys.executable, "-m", "remuda")
    places = (Path(words[0]), Path(sys.executable), Path(sys.prefix), Path(sys.base_prefix), Path(remuda.__file__))
    return UnitProgram(words, tuple(dict.fromkeys(place.resolve() for place in places)))


def open_to_all(path: Path) -> bool:
    mode = path.stat().st_mode
    return bool(mode & stat.S_IROTH and (not stat.S_ISDIR(mode) or mode & stat.S_IXOTH))


def _with_parents(places: Iterable[Path]) -> Iterable[Path]:
    return sorted({path for place in places for path in (place, *place.parents)})


def _below(place: Path, directories: Iterable[Path]) -> bool:
    return any(directory in place.parents for directory in directories)


# --- unit ------------------------------------------------------------------------------------------------------------------
#
# The text of the service's unit. Pure.
#
# It is shut in as far as the server's own work allows. Jobs that make machines at clouds are processes of the service: they need
# Landlock's system calls, limits, and nothing more. As `root`, Jobs get users of their own, which takes a few capabilities.
# Machines of the drivers `local` and `container` are this machine's processes: what they run is not known, and they have to stay
# while the server restarts, so `local_machines` gives up what would be in their way.

MARK = "# Written by `remuda install`"
# With the version in it, another one changes the unit, and the service is restarted.
_HEAD = """\
{mark}; `remuda uninstall` takes it away. The next `remuda install` writes it anew:
# what is changed by hand belongs into a file of its own (systemctl edit {name}).
[Unit]
Description=Remuda {version}
After=network-online.target
Wants=network-online.target

[Service]
Type=notify
ExecStart={command}
Restart=always
RestartSec=2
TimeoutStartSec=300
TimeoutStopSec=120
"""
# A Job that takes too much memory is killed alone.
_ALWAYS = """\
OOMPolicy=continue
LimitNOFILE=262144
UMask=0077

ProtectSystem=strict
ProtectHome={home}
ProtectProc=invisible
ProtectKernelTunables=yes
ProtectKernelModules=yes
ProtectKernelLogs=yes
ProtectClock=yes
ProtectHostname=yes
RestrictRealtime=yes
SystemCallArchitectures=native
"""
# What programs of machines on this machine could not live with.
_CONFINED = """\
KillMode=mixed
PrivateTmp=yes
PrivateDevices=yes
ProtectControlGroups=yes
NoNewPrivileges=yes
RestrictNamespaces=yes
RestrictSUIDSGID=yes
RestrictAddressFamilies=AF_INET AF_INET6 AF_UNIX AF_NETLINK
LockPersonality=yes
MemoryDenyWriteExecute=yes
RemoveIPC=yes
SystemCallErrorNumber=EPERM
SystemCallFilter=@system-service landlock_create_ruleset landlock_add_rule landlock_restrict_self
"""
_INSTALL = "\n[Install]\nWantedBy=multi-user.target\n"
# Users for Jobs, directories that are theirs, and their end.
_ROOT_CAPABILITIES = ("CAP_CHOWN", "CAP_DAC_OVERRIDE", "CAP_FOWNER", "CAP_KILL", "CAP_SETGID", "CAP_SETPCAP", "CAP_SETUID")
_LOW_PORTS = 1024
_PLAIN = re.compile(r"[A-Za-z0-9_./:=,@+*-]+")


@dataclass(frozen=True, slots=True)
class SystemdService:
    """`program` and `options` are what is run; `writable` are directories besides those that systemd makes for it."""

    name: str
    program: tuple[str, ...]
    options: tuple[str, ...]
    user: str
    data_dir: Path
    port: int = 8443
    writable: tuple[str, ...] = ()
    groups: tuple[str, ...] = ()
    local_machines: bool = False
    # The program is below a user's home.
    at_home: bool = False

    @property
    def unit(self) -> str:
        return f"{self.name}.service"

    @property
    def state_directory(self) -> bool:
        """True if systemd makes the data directory, and hands it to the user."""
        return self.data_dir == Path("/var/lib") / self.name


def unit_file(service: SystemdService) -> str:
    command = " ".join(quoted(word) for word in (*service.program, "serve", *_place(service), *service.options))
    parts = [_HEAD.format(mark=MARK, name=service.name, version=__version__, command=command), _who(service), _places(service)]
    parts.append(_ALWAYS.format(home="read-only" if service.at_home else "yes"))
    if service.local_machines:
        # They go on while it restarts; who has which address is noted for all of the machine (remuda.hosts.addresses).
        parts.append("KillMode=process\nReadWritePaths=/tmp /var/tmp\n")
    else:
        parts.append(_CONFINED)
        if service.user != "root":
            parts.append("SystemCallFilter=~@privileged\n")
    return "".join([*parts, _capabilities(service), _INSTALL])


def quoted(word: str) -> str:
    """A word of a command line, as systemd reads it."""
    if _PLAIN.fullmatch(word):
        return word
    escaped = word.replace("\\", "\\\\").replace('"', '\\"').replace("%", "%%").replace("$", "$$").replace("\n", "\\n")
    return f'"{escaped}"'


def _place(service: SystemdService) -> tuple[str, ...]:
    said = any(word == "--data-dir" or word.startswith("--data-dir=") for word in service.options)
    return () if said else ("--data-dir", str(service.data_dir))


def _who(service: SystemdService) -> str:
    groups = f"SupplementaryGroups={' '.join(service.groups)}\n" if service.groups else ""
    return f"User={service.user}\n{groups}EnvironmentFile=-/etc/default/{service.name}\n"


def _places(service: SystemdService) -> str:
    lines = [f"Environment=HOME={quoted(str(service.data_dir))} XDG_CACHE_HOME=/var/cache"]
    if service.state_directory:
        lines += [f"StateDirectory={service.name}", "StateDirectoryMode=0700"]
    lines += ["CacheDirectory=remuda"]
    lines += [f"ReadWritePaths={quoted(path)}" for path in service.writable]
    return "\n".join(lines) + "\n"


def _capabilities(service: SystemdService) -> str:
    low = ("CAP_NET_BIND_SERVICE",) if 0 < service.port < _LOW_PORTS else ()
    if service.user == "root":
        # Machines on this machine may need whatever root has.
        return "" if service.local_machines else f"CapabilityBoundingSet={' '.join((*_ROOT_CAPABILITIES, *low))}\n"
    return f"CapabilityBoundingSet={' '.join(low)}\nAmbientCapabilities={' '.join(low)}\n"
