"""The install script as a host gets it: a few lines of settings, then the script itself
(docs/reference/registration.md#install-script).

The lines are the original's, one each and possibly empty, so that programs that parse or diff them find them in place. The script
(``install.sh``) is the same for all hosts and reads everything from its environment and arguments. It shares ``root.sh`` with the
uninstaller: the paths of a host that is only a directory.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from importlib import resources

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
