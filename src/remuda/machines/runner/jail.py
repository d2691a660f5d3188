"""The first step of a Job's process: gives up all that the program does not need, then becomes it.

Run as a file with nothing but the standard library (`python -I -S jail.py`), so that it costs little and reads nothing that a
tenant wrote. Its instructions come on standard input, as JSON, since they hold secrets. A child between fork and exec could do
the same, but forking a large server copies its page tables, and code of a library may hold a lock that is never released.
"""

from __future__ import annotations

import ctypes
import json
import os
import resource
import signal
import stat
import sys
from typing import Any, NoReturn

_PDEATHSIG, _CAPBSET_DROP, _NO_NEW_PRIVS = 1, 24, 38
_CAPABILITY_VERSION = 0x20080522
# Landlock's system calls have the same numbers everywhere.
_CREATE_RULESET, _ADD_RULE, _RESTRICT_SELF = 444, 445, 446
_VERSION_FLAG, _PATH_BENEATH = 1, 1
_EXECUTE, _WRITE_FILE, _READ_FILE, _READ_DIR, _REFER, _TRUNCATE = 1 << 0, 1 << 1, 1 << 2, 1 << 3, 1 << 13, 1 << 14
_FIRST_VERSION = (1 << 13) - 1
_OF_FILES = _EXECUTE | _WRITE_FILE | _READ_FILE | _TRUNCATE
_NOBODY_THERE = 125


class _Attribute(ctypes.Structure):
    _fields_ = (("handled_access_fs", ctypes.c_uint64),)


class _Beneath(ctypes.Structure):
    _pack_ = 1
    _layout_ = "ms"
    _fields_ = (("allowed_access", ctypes.c_uint64), ("parent_fd", ctypes.c_int32))


_libc = ctypes.CDLL(None, use_errno=True)


def main() -> None:
    told: dict[str, Any] = json.loads(sys.stdin.buffer.read())
    os.umask(0o077)
    os.chdir(told["directory"])
    for name, value in told["limits"].items():
        limit(getattr(resource, f"RLIMIT_{name}"), value)
    if told["uid"]:
        os.setgroups([])
        os.setresgid(told["uid"], told["uid"], told["uid"])
        os.setresuid(told["uid"], told["uid"], told["uid"])
        refuse_unreadable(told)
    if told["powerless"]:
        drop_capabilities()
    if told["confined"]:
        _prctl(_NO_NEW_PRIVS, 1)
        if not confine(told["readable"], told["writable"]) and told["powerless"]:
            _refuse("nothing keeps Jobs of root from root's files here: run the server as an ordinary user")
    # Last, since a change of the user takes it away.
    _prctl(_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != told["parent"]:
        # The parent is gone already.
        os._exit(_NOBODY_THERE)
    nothing = os.open(os.devnull, os.O_RDONLY)
    os.dup2(nothing, 0)
    os.close(nothing)
    os.execve(told["argv"][0], told["argv"], told["env"])


def refuse_unreadable(told: dict[str, Any]) -> None:
    """Say so in one line if this user can't even read the program."""
    for path in (told["argv"][0], *told["needed"]):
        if not os.access(path, os.R_OK | os.X_OK):
            _refuse(
                f"{path} can't be read by the user {told['uid']} whom Jobs run as: install Remuda where every user can read it, "
                "or run it as an ordinary user"
            )


def _refuse(why: str) -> NoReturn:
    sys.stdout.write(f"MissingProgram: {why}\n")
    sys.stdout.flush()
    os._exit(1)


def drop_capabilities() -> None:
    """Limit this process of root, and all programs that it runs, to its user's rights."""
    for number in range(64):
        if _libc.prctl(_CAPBSET_DROP, ctypes.c_ulong(number), 0, 0, 0) < 0:
            break
    header = (ctypes.c_uint32 * 2)(_CAPABILITY_VERSION, 0)
    nothing = (ctypes.c_uint32 * 6)()
    _checked(_libc.capset(header, nothing))


def limit(number: int, value: int) -> None:
    """Set a limit as low as requested, and never above the present one."""
    most = resource.getrlimit(number)[1]
    wanted = value if most == resource.RLIM_INFINITY else min(value, most)
    resource.setrlimit(number, (wanted, wanted))


def version() -> int:
    """The kernel's version of Landlock; 0 for none."""
    return max(int(_libc.syscall(_CREATE_RULESET, None, ctypes.c_size_t(0), ctypes.c_uint32(_VERSION_FLAG))), 0)


def confine(readable: list[str], writable: list[str]) -> bool:
    """Restrict this process and its children to files below these paths; False if the kernel can't."""
    known = version()
    if not known:
        return False
    handled = _FIRST_VERSION | (_REFER if known >= 2 else 0) | (_TRUNCATE if known >= 3 else 0)
    attribute = _Attribute(handled)
    ruleset = _checked(_libc.syscall(_CREATE_RULESET, ctypes.byref(attribute), ctypes.c_size_t(ctypes.sizeof(attribute)), 0))
    try:
        for path in readable:
            _allow(ruleset, path, _EXECUTE | _READ_FILE | _READ_DIR)
        for path in writable:
            _allow(ruleset, path, handled)
        _checked(_libc.syscall(_RESTRICT_SELF, ruleset, 0))
    finally:
        os.close(ruleset)
    return True


def _allow(ruleset: int, path: str, access: int) -> None:
    try:
        found = os.open(path, os.O_PATH | os.O_CLOEXEC)
    except OSError:
        # Not every machine has every place.
        return
    try:
        if not stat.S_ISDIR(os.fstat(found).st_mode):
            access &= _OF_FILES
        rule = _Beneath(access, found)
        _checked(_libc.syscall(_ADD_RULE, ruleset, _PATH_BENEATH, ctypes.byref(rule), 0))
    finally:
        os.close(found)


def _prctl(option: int, value: int) -> None:
    _checked(_libc.prctl(option, ctypes.c_ulong(value), 0, 0, 0))


def _checked(result: int) -> int:
    if result < 0:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number))
    return result


if __name__ == "__main__":
    main()
