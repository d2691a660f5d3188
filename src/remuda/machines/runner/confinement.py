"""The confinement of a Job's process: its own directory, little of the environment, limits, and no file of the server's. Pure.

Drivers whose machines run on this one (`local`, `container`) can't be confined, since the processes that they start inherit it
and have to outlive the Job; their users may run programs here anyway.
"""

from __future__ import annotations

import os
import pwd
import re
import stat
import sys
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from functools import cache
from pathlib import Path
from typing import Any

from remuda.kube.network import outbound

from ..driver import OWNER_VARIABLE
from ..machineprovision.job_arguments import KEY_FILE

# Where the driver `local` keeps its hosts (:mod:`..drivers.local`).
HOSTS_VARIABLE = "REMUDA_HOSTS_DIR"
# Their machines are processes of this one.
ON_THIS_MACHINE = frozenset({"local", "container"})
# When the server is root, each process that runs at the same time has a user id of its own; these numbers are otherwise unused
# (systemd reserves them for services that have no user).
FIRST_USER = 61184
_VARIABLE = re.compile(r"[A-Z][A-Z0-9_]*")
# Variables that change the code that runs, or the servers it trusts; no driver's or field's name may result in one.
_FORBIDDEN = re.compile(
    r"LD_|DYLD_|PYTHON|GLIBC_|GCONV_|MALLOC_|SSL_|OPENSSL_|KUBE|K8S_|MACHINE_|REMUDA_|BASH_|GIT_|SSH_"
    r"|(PATH|HOME|TMPDIR|SHELL|ENV|IFS|USER|LOGNAME)$"
)
# Variables of a Job whose values may be in its log.
_TOLD = re.compile(rf".*_(REGION|ZONE|PORT|ENVIRONMENT)|REMUDA_OWNER|{outbound.VARIABLE}|NO_PROXY|no_proxy")
_SECRET_IN_SCRIPT = re.compile(
    rb"""^(?:export )?[A-Z0-9_]*(?:TOKEN|PASSWORD|SECRET)[A-Z0-9_]*=["']?([^"'\s]+)["']?$""", re.MULTILINE
)
_PROXIES = ("HTTP_PROXY", "HTTPS_PROXY", "NO_PROXY", "http_proxy", "https_proxy", "no_proxy")
_SYSTEM = ("/bin", "/lib", "/lib32", "/lib64", "/libx32", "/sbin", "/usr", "/etc", "/opt", "/nix", "/proc/self")
_NAMES = ("/run/systemd/resolve", "/run/resolvconf", "/run/nscd", "/var/lib/ca-certificates", "/dev/urandom", "/dev/random")
_DEVICES = ("/dev/null", "/dev/zero")
_MEGABYTE = 1 << 20
# A process's limits, more than the program ever needs. Seconds of the processor, and bytes.
_LIMITS = {"CORE": 0, "CPU": 900, "DATA": 4096 * _MEGABYTE, "FSIZE": 256 * _MEGABYTE, "NOFILE": 1024}
_PROCESSES = 512


@dataclass(frozen=True, slots=True)
class JailOptions:
    """The instructions for :mod:`.jail`."""

    argv: tuple[str, ...]
    env: Mapping[str, str]
    directory: str
    parent: int
    uid: int = 0
    # It has to run as root: without the capabilities that only root has.
    powerless: bool = False
    confined: bool = True
    limits: Mapping[str, int] = field(default_factory=dict)
    readable: Sequence[str] = ()
    writable: Sequence[str] = ()
    # The paths that its user must be able to read, besides the program.
    needed: Sequence[str] = ()

    def told(self) -> dict[str, Any]:
        return asdict(self)


@dataclass(frozen=True, slots=True)
class PythonPaths:
    """The parts of this process that its children need: the paths of Python and of its modules."""

    executable: str = sys.executable
    prefixes: tuple[str, ...] = (sys.prefix, sys.base_prefix)
    modules: tuple[str, ...] = ()
    # As the server was started, so that the program is of the same sources.
    python_path: str = ""
    program_path: str = os.defpath

    @classmethod
    def this(cls, environment: Mapping[str, str]) -> PythonPaths:
        said = [each for each in (environment.get("PYTHONPATH") or "").split(os.pathsep) if each]
        own = str(Path(__file__).resolve().parents[3])
        # The server's working directory is no place for modules: it may be a home, or the data directory itself.
        here = str(Path.cwd())
        found = [str(Path(each).resolve()) for each in sys.path if each and Path(each).exists()]
        modules = [own, *(str(Path(each).resolve()) for each in said), *(each for each in found if each != here)]
        path = os.pathsep.join(filter(None, (str(Path(sys.executable).parent), environment.get("PATH") or os.defpath)))
        # Also where it is found by accident, as in a checkout.
        sources = said if own in said or _is_installed(own) else [*said, own]
        return cls(modules=tuple(dict.fromkeys(modules)), python_path=os.pathsep.join(sources), program_path=path)


def _is_installed(directory: str) -> bool:
    return Path(directory).name in ("site-packages", "dist-packages")


def environment(around: PythonPaths, directory: str, given: Mapping[str, str], server: Mapping[str, str]) -> dict[str, str]:
    """`given` are the Job's variables: credentials and permitted proxies. `server` are this process' own."""
    kept = {name: value for name, value in given.items() if is_harmless(name, value)}
    kept |= {name: given[name] for name in (OWNER_VARIABLE, outbound.VARIABLE) if given.get(name)}
    passed = {name: server[name] for name in ("LANG", "LC_ALL", "TZ") if server.get(name)}
    made = {
        **passed,
        **kept,
        "PATH": around.program_path,
        "HOME": directory,
        "TMPDIR": f"{directory}/tmp",
        "KUBECONFIG": f"{directory}/kubeconfig",
        "MACHINE_STORAGE_PATH": f"{directory}/store",
        "PYTHONDONTWRITEBYTECODE": "1",
        "PYTHONSAFEPATH": "1",
        "PYTHONUNBUFFERED": "1",
    }
    if around.python_path:
        made["PYTHONPATH"] = around.python_path
    return made


def is_harmless(name: str, value: str) -> bool:
    """True if a variable only says something to a driver."""
    if name in _PROXIES:
        return "\0" not in value
    return bool(_VARIABLE.fullmatch(name)) and not _FORBIDDEN.match(name) and "\0" not in value


def on_this_machine(driver: str, hosts: Path | None, server: Mapping[str, str]) -> dict[str, str]:
    """Variables for drivers whose machines are processes of this one: the directory of hosts, or the way to the container
    engine."""
    if driver not in ON_THIS_MACHINE:
        return {}
    passed = ("HOME", "USER", "LOGNAME", "XDG_RUNTIME_DIR", "XDG_DATA_HOME", "XDG_CONFIG_HOME", "CONTAINER_HOST", "DOCKER_HOST")
    # The hosts outlive the Job, so their home is not the Job's, even if a service has none (:class:`.process.Directories`).
    made = {"HOME": _home(), **{name: server[name] for name in passed if server.get(name)}}
    return {**made, HOSTS_VARIABLE: str(hosts)} if hosts is not None else made


def _home() -> str:
    try:
        return pwd.getpwuid(os.geteuid()).pw_dir or "/"
    except KeyError:
        return "/"


def secrets(given: Mapping[str, str], script: bytes = b"", files: Mapping[str, str] | None = None) -> list[str]:
    """Texts that must not appear in a log: the values in the environment, the secrets in the bootstrap script, and keys. More
    people can read a log than may have those."""
    told = [value for name, value in given.items() if not _TOLD.fullmatch(name)]
    told += [found[1].decode(errors="replace") for found in _SECRET_IN_SCRIPT.finditer(script)]
    return told + [text for name, text in (files or {}).items() if name == KEY_FILE]


def user_of(driver: str, slot: int) -> int:
    """The user id of a process; 0 for the server's own. `slot`: its number among those that run at the same time."""
    return FIRST_USER + slot if os.geteuid() == 0 and driver not in ON_THIS_MACHINE and _others_can_run_it() else 0


@cache
def _others_can_run_it() -> bool:
    """True if other users can read the program; not if it is in root's home."""
    places = (sys.executable, sys.prefix, sys.base_prefix, __file__)
    paths = {path for place in places for path in (Path(place).resolve(), *Path(place).resolve().parents)}
    return all(path.stat().st_mode & stat.S_IROTH and (path.is_file() or path.stat().st_mode & stat.S_IXOTH) for path in paths)


def jailed(
    argv: Sequence[str], env: Mapping[str, str], directory: str, around: PythonPaths, *, driver: str, slot: int
) -> JailOptions:
    uid = user_of(driver, slot)
    if driver in ON_THIS_MACHINE:
        return JailOptions(tuple(argv), env, directory, os.getpid(), confined=False, limits={"CORE": 0})
    limits = {**_LIMITS, **({"NPROC": _PROCESSES} if uid else {})}
    return JailOptions(
        tuple(argv),
        env,
        directory,
        os.getpid(),
        uid,
        powerless=os.geteuid() == 0 and not uid,
        limits=limits,
        readable=sorted({*_SYSTEM, *_NAMES, *_programs(around)}),
        writable=[directory, *_DEVICES],
        needed=around.prefixes[:1],
    )


def _programs(around: PythonPaths) -> Iterable[str]:
    yield from around.prefixes
    yield from around.modules
    yield from (each for each in around.program_path.split(os.pathsep) if each.startswith("/"))
