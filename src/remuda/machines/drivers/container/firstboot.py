"""The first start of a container: runs user data, as cloud-init would, for images that have no cloud-init. Pure.

The archive that goes into the container's root before it is started has a unit that systemd runs once, so that the Job may end
meanwhile. Of cloud-config it supports what hosts of clusters need: files, commands, keys, and a name.
"""

from __future__ import annotations

import base64
import binascii
import gzip
import io
import shlex
import tarfile
import zlib
from collections.abc import Callable, Iterable
from typing import Any

import yaml

from ...errors import DriverError, Reason

_DIRECTORY = "var/lib/remuda-userdata"
_UNIT = "remuda-userdata.service"
_DONE = f"/{_DIRECTORY}/done"
_SERVICE = f"""[Unit]
Description=User data of this host
After=network-online.target
Wants=network-online.target
ConditionPathExists=!{_DONE}

[Service]
Type=oneshot
ExecStart=/bin/sh /{_DIRECTORY}/run.sh
ExecStartPost=/bin/touch {_DONE}
Restart=on-failure
RestartSec=10
TimeoutStartSec=infinity

[Install]
WantedBy=multi-user.target
"""
_KNOWN = frozenset({"write_files", "runcmd", "bootcmd", "hostname", "ssh_authorized_keys", "packages"})


def archive(userdata: str, public_key: str = "") -> bytes:
    """The archive for the root of a container that has not been started. Raises DriverError."""
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w", format=tarfile.GNU_FORMAT) as tar:
        _directory(tar, _DIRECTORY, 0o700)
        _file(tar, f"{_DIRECTORY}/run.sh", script(userdata), 0o600)
        _file(tar, f"etc/systemd/system/{_UNIT}", _SERVICE, 0o644)
        link = tarfile.TarInfo(f"etc/systemd/system/multi-user.target.wants/{_UNIT}")
        link.type, link.linkname = tarfile.SYMTYPE, f"/etc/systemd/system/{_UNIT}"
        tar.addfile(link)
        if public_key:
            _directory(tar, "root/.ssh", 0o700)
            _file(tar, "root/.ssh/authorized_keys", f"{public_key}\n", 0o600)
    return packed.getvalue()


def script(userdata: str) -> str:
    """The shell script that carries out user data. Raises DriverError."""
    if userdata.startswith("#!"):
        return userdata
    if not userdata.strip():
        return "exit 0\n"
    try:
        found = yaml.safe_load(userdata)
    except yaml.YAMLError as error:
        raise _wrong(f"the user data is no YAML: {error}") from None
    if found is None:
        found = {}
    if not isinstance(found, dict):
        raise _wrong("the user data is no cloud-config: it must be a mapping")
    lines = ["set -e"]
    if unknown := sorted(str(key) for key in found if key not in _KNOWN):
        lines.append(f"echo {shlex.quote('left out, as only cloud-init knows them: ' + ', '.join(unknown))}")
    lines += _each(found, "bootcmd", _command)
    lines += [f"hostname {shlex.quote(str(found['hostname']))} || true"] if found.get("hostname") else []
    lines += _each(found, "ssh_authorized_keys", _key)
    lines += _packages(found)
    lines += _each(found, "write_files", _written)
    lines += _each(found, "runcmd", _command)
    return "\n".join([*lines, ""])


def _each(found: dict[Any, Any], key: str, one: Callable[[Any], str]) -> list[str]:
    given = found.get(key)
    if given is None:
        return []
    if not isinstance(given, list):
        raise _wrong(f"{key} in the user data must be a list")
    return [one(item) for item in given]


def _command(item: object) -> str:
    if isinstance(item, list):
        return shlex.join(str(word) for word in item)
    return f"sh -c {shlex.quote(str(item))}"


def _key(item: object) -> str:
    return f"mkdir -p -m 700 /root/.ssh && echo {shlex.quote(str(item))} >>/root/.ssh/authorized_keys"


def _packages(found: dict[Any, Any]) -> Iterable[str]:
    names = " ".join(_each(found, "packages", lambda item: shlex.quote(str(item))))
    if not names:
        return ()
    return (
        "if command -v apt-get >/dev/null; then apt-get update -q; "
        f"DEBIAN_FRONTEND=noninteractive apt-get install -yq {names}; "
        f"elif command -v zypper >/dev/null; then zypper -n install {names}; else dnf install -yq {names}; fi",
    )


def _written(item: object) -> str:
    if not isinstance(item, dict) or not str(item.get("path") or "").startswith("/"):
        raise _wrong("each of write_files in the user data needs an absolute path")
    path = str(item["path"])
    content = base64.b64encode(_content(item)).decode()
    quoted, mode = shlex.quote(path), item.get("permissions", "0644")
    lines = [
        f"mkdir -p {shlex.quote(path.rpartition('/')[0] or '/')}",
        f"base64 -d {'>>' if item.get('append') else '>'}{quoted} <<'REMUDA'\n{content}\nREMUDA",
        f"chmod {shlex.quote(format(mode, 'o') if isinstance(mode, int) else str(mode))} {quoted}",
    ]
    if item.get("owner"):
        lines.append(f"chown {shlex.quote(str(item['owner']))} {quoted}")
    return "\n".join(lines)


def _content(item: dict[Any, Any]) -> bytes:
    text, encoding = str(item.get("content") or ""), str(item.get("encoding") or "")
    try:
        if encoding in ("b64", "base64"):
            return base64.b64decode(text)
        if encoding in ("gzip+b64", "gz+b64", "gzip+base64", "gz+base64"):
            return gzip.decompress(base64.b64decode(text))
    except (binascii.Error, OSError, EOFError, zlib.error) as error:
        raise _wrong(f"{item['path']} in the user data is not encoded as {encoding}: {error}") from None
    if encoding not in ("", "text/plain"):
        raise _wrong(f"{item['path']} in the user data has an encoding that is not known: {encoding}")
    return text.encode()


def _wrong(text: str) -> DriverError:
    return DriverError(Reason.INVALID, text, field="userdata")


def _directory(tar: tarfile.TarFile, path: str, mode: int) -> None:
    member = tarfile.TarInfo(path)
    member.type, member.mode = tarfile.DIRTYPE, mode
    tar.addfile(member)


def _file(tar: tarfile.TarFile, path: str, content: str, mode: int) -> None:
    member = tarfile.TarInfo(path)
    data = content.encode()
    member.mode, member.size = mode, len(data)
    tar.addfile(member, io.BytesIO(data))
