"""The programs first on a host's PATH, in place of the machine's own: small scripts, written anew at each start.

`systemctl` and `journalctl` speak to the host's init; `sudo` only runs its command, since a host belongs to the user who made it.
If the machine has no `curl`, the host gets ours.
"""

from __future__ import annotations

import shutil
import site
import sys
import sysconfig
from pathlib import Path
from shlex import quote

import remuda

from . import curl
from .host_directory import Place

_SUDO = """\
#!/bin/sh
# A host belongs to whoever made it: there is nobody else to become.
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


def write(place: Place, path: str | None = None) -> None:
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


def _asking(python: Path, place: Place, name: str, arguments: str) -> str:
    command = f"{quote(str(python))} -P -s -m remuda.hosts.asking {quote(str(place.directory))} {name}{arguments}"
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
