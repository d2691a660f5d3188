"""The server's own machine: versions, programs and their options, sizes, ends of certificates, and logs."""

from __future__ import annotations

import os
import platform
import shutil
import sqlite3
import ssl
import subprocess
import sys
from collections import deque
from collections.abc import Iterator
from importlib import metadata
from pathlib import Path
from typing import Any

from remuda import __version__
from remuda.kube.clock import rfc3339

Obj = dict[str, Any]

LONGEST_LINE = 16384
_COMMAND_SECONDS = 60.0
_MOST_FILES = 2000


def versions() -> Obj:
    return {
        "remuda": __version__,
        "python": platform.python_version(),
        "executable": sys.executable,
        "platform": platform.platform(),
        "machine": platform.machine(),
        "processors": os.cpu_count(),
        "sqlite": sqlite3.sqlite_version,
        "openssl": ssl.OPENSSL_VERSION,
        "libraries": {name: _version(name) for name in _libraries()},
    }


def _libraries() -> list[str]:
    try:
        told = metadata.requires("remuda") or []
    except metadata.PackageNotFoundError:
        return []
    names = ("".join(each if each.isalnum() or each in "-_." else " " for each in text).split()[0] for text in told)
    return sorted(set(names))


def _version(name: str) -> str:
    try:
        return metadata.version(name)
    except metadata.PackageNotFoundError:
        return ""


def running() -> list[Obj]:
    """Programs of ours on this machine, and what they were told; secrets among that are the reader's to hide."""
    found = []
    for entry in sorted(Path("/proc").iterdir()):
        if not entry.name.isdecimal() or int(entry.name) == os.getpid():
            continue
        try:
            words = (entry / "cmdline").read_bytes().decode(errors="replace").rstrip("\0").split("\0")
            start = next(index for index, word in enumerate(words) if Path(word).name == "remuda" or word == "remuda.cli")
        except (OSError, StopIteration):
            continue
        if words[start + 1 : start + 2] and words[start + 1] in ("serve", "controllers", "gateway", "cluster-agent"):
            found.append({"pid": int(entry.name), "arguments": words[start + 1 :], **_memory(entry)})
    return found


def _memory(entry: Path) -> Obj:
    try:
        pages = int((entry / "statm").read_text().split()[1])
    except (OSError, ValueError, IndexError):
        return {}
    return {"residentBytes": pages * os.sysconf("SC_PAGESIZE")}


def walked(data_dir: Path) -> list[Path]:
    """Every file below it. Files that a running server removes meanwhile, or that are unreadable, are left out."""
    return sorted(Path(where, name) for where, _, names in os.walk(data_dir) for name in names)


def files(data_dir: Path) -> Obj:
    """Sizes, not contents."""
    found: list[Obj] = []
    total = 0
    for path in walked(data_dir):
        try:
            told = path.lstat()
        except OSError:
            continue
        if path.is_symlink():
            continue
        total += told.st_size
        if len(found) < _MOST_FILES and "hosts" not in path.relative_to(data_dir).parts[:1]:
            name = path.relative_to(data_dir).as_posix()
            found.append(
                {"name": name, "bytes": told.st_size, "mode": oct(told.st_mode & 0o777), "written": rfc3339(told.st_mtime)}
            )
    usage = shutil.disk_usage(data_dir)
    return {"bytes": total, "disk": {"total": usage.total, "free": usage.free}, "files": found}


def certificates(data_dir: Path) -> list[Obj]:
    """The end and the subject of each certificate. Keys are not read."""
    from cryptography import x509

    found: list[Obj] = []
    for path in sorted([*data_dir.glob("pki/**/*.crt"), *data_dir.glob("pki/**/*.pem")]):
        if path.is_symlink() or path.stat().st_size > 1 << 20:
            continue
        try:
            content = path.read_bytes()
            if b"PRIVATE KEY" in content:
                continue
            for certificate in x509.load_pem_x509_certificates(content):
                found.append({"file": path.relative_to(data_dir).as_posix(), **_certificate(certificate)})
        except (OSError, ValueError) as error:
            found.append({"file": path.relative_to(data_dir).as_posix(), "error": str(error)})
    return found


def _certificate(certificate: Any) -> Obj:
    from cryptography import x509

    try:
        told = certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
        names = [str(each.value) for each in told]
    except x509.ExtensionNotFound:
        names = []
    return {
        "subject": certificate.subject.rfc4514_string(),
        "issuer": certificate.issuer.rfc4514_string(),
        "from": certificate.not_valid_before_utc.isoformat(),
        "until": certificate.not_valid_after_utc.isoformat(),
        "names": names,
    }


def unit(name: str) -> str:
    """systemd's properties of the service; empty when it has none."""
    shown = "ActiveState,SubState,Result,NRestarts,ExecMainStartTimestamp,ExecMainStatus,StatusText,MemoryCurrent,ExecStart,User"
    told = _said(["systemctl", "show", "-p", f"LoadState,{shown}", f"{name}.service"])
    return "" if "LoadState=loaded" not in told else told


def journal(name: str, hours: int, lines: int) -> Iterator[str]:
    """The service's log, oldest first. Raises OSError where there is none."""
    command = [
        "journalctl",
        "-u",
        f"{name}.service",
        "--since",
        f"-{hours}h",
        "-n",
        str(lines),
        "-o",
        "short-iso",
        "--no-pager",
        "-q",
    ]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, stdin=subprocess.DEVNULL) as process:
        try:
            assert process.stdout is not None
            for line in process.stdout:
                yield cut(line)
        finally:
            process.kill()


def tail(path: Path, most: int) -> Iterator[str]:
    """The last so many bytes of a file, without what of a line was cut. Raises OSError."""
    with path.open("rb") as stream:
        size = stream.seek(0, os.SEEK_END)
        stream.seek(max(size - most, 0))
        if size > most:
            stream.readline()
        for line in stream:
            yield cut(line)


def last(path: Path, lines: int) -> list[str]:
    return list(deque(tail(path, 1 << 20), lines))


def cut(line: bytes) -> str:
    return line[:LONGEST_LINE].decode(errors="replace").rstrip("\r\n")


def _said(command: list[str]) -> str:
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=_COMMAND_SECONDS, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return ""
    return done.stdout
