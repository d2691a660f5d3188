"""The environment of a host's processes: its programs first on the PATH, its root, its name, its address.

The same for its units and for commands that a user runs in it. Only a few variables come from the caller: language, time zone,
proxies and the location of certificates.
"""

from __future__ import annotations

import os
import shutil
import site
import sys
import sysconfig
from collections.abc import Mapping
from pathlib import Path
from shlex import quote

import remuda

from . import curl
from .host_directory import HostDirectory, HostRecord

# In the environment of every process of a host: it identifies processes that have lost their init.
MARK = "REMUDA_HOST_ID"
_PASSED = (
    *("LANG", "LC_ALL", "TZ", "TERM", "SSL_CERT_FILE", "SSL_CERT_DIR", "CURL_CA_BUNDLE"),
    *(name for proxy in ("HTTP_PROXY", "HTTPS_PROXY", "NO_PROXY") for name in (proxy, proxy.lower())),
    # For debugging Remuda itself.
    "REMUDA_DEBUG",
)


def environment(place: HostDirectory, record: HostRecord, caller: Mapping[str, str] | None = None) -> dict[str, str]:
    """The environment of the host; `caller` is the caller's environment."""
    asked = os.environ if caller is None else caller
    root = str(place.root)
    path = [str(place.programs), f"{root}/usr/local/sbin", f"{root}/usr/local/bin", f"{root}/opt/bin"]
    path.append(_outside(asked.get("PATH") or os.defpath))
    passed = {name: asked[name] for name in _PASSED if asked.get(name)}
    return {
        **passed,
        **_without_proxy(passed, record.address),
        "PATH": ":".join(path),
        "HOME": f"{root}/root",
        "TMPDIR": f"{root}/tmp",
        "USER": "root",
        "LOGNAME": "root",
        "SHELL": "/bin/sh",
        "HOSTNAME": record.name,
        MARK: record.id,
        # Read by the system agent's installer, and used to register the host under its own name.
        "CATTLE_HOST_ROOT": root,
        "CATTLE_HOST_LOOPBACK": record.address,
        "CATTLE_NODE_NAME": record.name,
        # For the distribution: the Python that made this host may be the only one.
        "REMUDA_PYTHON": str(place.programs / "remuda-python"),
    }


def _without_proxy(passed: Mapping[str, str], address: str) -> dict[str, str]:
    """No proxy can reach a host on this machine, nor a server on it."""
    if not any(name.lower().endswith("s_proxy") or name.lower() == "http_proxy" for name in passed):
        return {}
    known = [part for name in ("NO_PROXY", "no_proxy") for part in passed.get(name, "").split(",") if part]
    words = ",".join(dict.fromkeys((*known, "localhost", "127.0.0.1", "127.0.0.0/8", address)))
    return {"NO_PROXY": words, "no_proxy": words}


def _outside(path: str) -> str:
    """The caller's PATH, without directories of a host in which the caller runs."""
    return ":".join(part for part in path.split(":") if part.startswith("/")) or os.defpath


# --- shims -----------------------------------------------------------------------------------------------------------------
#
# The programs first on a host's PATH, in place of the machine's own: small scripts, written anew at each start.
#
# `systemctl` and `journalctl` speak to the host's init; `sudo` only runs its command, since a host belongs to the user who made
# it. If the machine has no `curl`, the host gets ours.

_SUDO = """\
#!/bin/sh
# A host belongs to the user that made it: there is no other user to become.
while [ $# -gt 0 ]; do
    case "$1" in
        -u | -g | -h | -p | -C | -T) shift ;;
        --) shift; break ;;
        -*) ;;
        *=*) export "$1" ;;
        *) break ;;
    esac
    shift
done
[ $# -gt 0 ] || exit 0
exec "$@"
"""

_HOSTNAME = """\
#!/bin/sh
case "$1" in
    -i | -I | --ip-address | --all-ip-addresses) printf '%s\\n' "$CATTLE_HOST_LOOPBACK" ;;
    *) printf '%s\\n' "$HOSTNAME" ;;
esac
"""


def write_programs(place: HostDirectory, path: str | None = None) -> None:
    """Write all of them into the host's directory for programs; `path` is the machine's PATH, if not that of the environment."""
    python = place.programs / "remuda-python"
    _program(python, _python())
    for name, arguments in (("systemctl", ""), ("journalctl", ""), ("reboot", ""), ("poweroff", ""), ("shutdown", "")):
        _program(place.programs / name, _asking(python, place, name, arguments))
    _program(place.programs / "sudo", _SUDO)
    _program(place.programs / "hostname", _HOSTNAME)
    if shutil.which("curl", path=path) is None:
        own = quote(str(Path(curl.__file__)))
        _program(place.programs / "curl", f'#!/bin/sh\nexec {quote(sys.executable)} -I -S {own} "$@"\n')
    else:
        (place.programs / "curl").unlink(missing_ok=True)
    # The agent is a Python program, and the machine may have no Python but ours.
    _program(place.programs / "python3", f'#!/bin/sh\nexec {quote(sys.executable)} "$@"\n')


def _asking(python: Path, place: HostDirectory, name: str, arguments: str) -> str:
    command = f"{quote(str(python))} -P -s -m remuda.hosts.control_socket {quote(str(place.directory))} {name}{arguments}"
    return f'#!/bin/sh\nexec {command} "$@"\n'


def _python() -> str:
    """A script for the Python that runs this program, with our modules on its path."""
    source = Path(remuda.__file__).parents[1]
    found = ""
    if str(source) not in {*site.getsitepackages(), sysconfig.get_path("purelib"), sysconfig.get_path("platlib")}:
        found = f"PYTHONPATH={quote(str(source))}${{PYTHONPATH:+:$PYTHONPATH}}\nexport PYTHONPATH\n"
    return f'#!/bin/sh\n{found}exec {quote(sys.executable)} "$@"\n'


def _program(path: Path, text: str) -> None:
    half = path.with_name(f".{path.name}")
    half.write_text(text)
    half.chmod(0o755)
    # In one step: another process may be running it.
    half.replace(path)
