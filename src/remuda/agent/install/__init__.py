"""The agent's installation: the agent as one file, the script that installs it, and its uninstaller.

``install.sh`` and ``uninstall.sh`` are the scripts; ``root.sh``, which they share, has the paths of a host that is only a
directory. ``python -m remuda.agent.install DIRECTORY`` writes them. This package is not part of the agent's file.
Not here: the downloads by hosts (``gateway/registration/agent_downloads``).
Read ``install.sh`` first.
"""

from __future__ import annotations

import io
import re
import zipfile
from collections.abc import Iterable
from importlib import resources
from importlib.resources.abc import Traversable

__all__ = ["ARCHIVE", "build", "install_script", "uninstall_script"]

# --- the agent as one file ------------------------------------------------------------------------------------------------
#
# A host's own Python runs it. The same sources give the same bytes: names are sorted, times and modes fixed, so a server's
# checksum of the file tells whether a host has this very agent. Compiled code would differ between Pythons and is left out; a
# daemon compiles once.

ARCHIVE = "remuda-agent.pyz"
_PACKAGE = "remuda_agent"
# The code that makes the archive is not part of it.
_NOT_ON_HOSTS = "install/"
_SHEBANG = b"#!/usr/bin/env python3\n"
_EPOCH = (1980, 1, 1, 0, 0, 0)
# An old Python must say so itself, in words: the package's own syntax would greet it with a traceback.
_MAIN = f"""import sys

if sys.version_info < (3, 9):
    sys.exit("remuda-agent needs Python 3.9 or newer, this is " + sys.version.split()[0])

from {_PACKAGE}.cli import run

run()
"""


def build() -> bytes:
    """The archive's bytes."""
    sources = _sources(resources.files("remuda.agent"), "")
    members = {f"{_PACKAGE}/{name}": content for name, content in sources if not name.startswith(_NOT_ON_HOSTS)}
    members["__main__.py"] = _MAIN.encode()
    out = io.BytesIO()
    out.write(_SHEBANG)
    with zipfile.ZipFile(out, "w", zipfile.ZIP_DEFLATED) as archive:
        for name in sorted(members):
            info = zipfile.ZipInfo(name, _EPOCH)
            info.compress_type = zipfile.ZIP_DEFLATED
            info.create_system = 3
            info.external_attr = 0o100644 << 16
            archive.writestr(info, members[name])
    return out.getvalue()


def _sources(directory: Traversable, prefix: str) -> list[tuple[str, bytes]]:
    found: list[tuple[str, bytes]] = []
    for item in directory.iterdir():
        if item.is_dir() and item.name != "__pycache__":
            found += _sources(item, f"{prefix}{item.name}/")
        elif item.name.endswith(".py"):
            found.append((prefix + item.name, item.read_bytes()))
    return found


# --- the scripts ----------------------------------------------------------------------------------------------------------
#
# The install script as a host gets it: a few lines of settings, then the script itself
# (docs/reference/registration.md#install-script). The lines are the original's, one each and possibly empty, so that programs
# that parse or diff them find them in place. The script is the same for all hosts and reads everything from its environment and
# arguments.

# The directory and the address of a host that is only a directory: set on the host, never in the script.
HOST_VARIABLES = frozenset(("CATTLE_HOST_ROOT", "CATTLE_HOST_LOOPBACK"))
_SHELL = "#!/usr/bin/env sh\n"
_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*\Z")
_STRICT = ("STRICT_VERIFY", "CATTLE_AGENT_STRICT_VERIFY")


def install_script(
    *,
    server: str = "",
    base_url: str = "",
    ca_checksum: str = "",
    env: Iterable[tuple[str, str]] = (),
    strict: bool = False,
    bootstrap_token: str = "",
    checksum: str = "",
    fallback_url: str = "",
) -> str:
    """The whole script. ``checksum`` is that of the agent's archive; ``fallback_url`` is for hosts without a Python 3.9."""
    lines = [
        "\n".join(_exports(env, strict)),
        f"CATTLE_AGENT_BINARY_BASE_URL={_double(base_url)}" if base_url else "",
        f"CATTLE_SERVER={_single(server)}" if server else "",
        f"CATTLE_CA_CHECKSUM={_double(ca_checksum)}" if ca_checksum else "",
        f"CATTLE_ROLE_NONE=true\nCATTLE_TOKEN={_double(bootstrap_token)}" if bootstrap_token else "",
        _own(checksum, fallback_url),
        "",
    ]
    return _SHELL + "\n".join(lines) + _text("root.sh") + _text("install.sh")


def uninstall_script() -> str:
    """The script that removes an agent from its host."""
    return _SHELL + _text("root.sh") + _text("uninstall.sh").removeprefix(_SHELL)


def _exports(env: Iterable[tuple[str, str]], strict: bool) -> list[str]:
    given = [(name, value) for name, value in env if _NAME.match(name) and name not in HOST_VARIABLES]
    if not any(name in _STRICT for name, _ in given):
        given.append(("STRICT_VERIFY", "true" if strict else "false"))
    return [f"export {name}={_single(value)}" for name, value in given]


def _own(checksum: str, fallback_url: str) -> str:
    parts = [f"CATTLE_AGENT_ARCHIVE_CHECKSUM={_double(checksum)}"] if checksum else []
    parts += [f"CATTLE_AGENT_FALLBACK_URL={_single(fallback_url)}"] if fallback_url else []
    return "; ".join(parts)


def _single(value: str) -> str:
    return "'" + value.replace("'", "'\\''") + "'"


def _double(value: str) -> str:
    return '"' + re.sub(r'([\\"$`])', r"\\\1", value) + '"'


def _text(name: str) -> str:
    return resources.files("remuda.agent.install").joinpath(name).read_text(encoding="utf-8")
