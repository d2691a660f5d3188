"""What a host is started with: the install script as it is, or inside of cloud-config (protocols.md §3.5, capr.md §5.3). Pure.

Providers that install by themselves get the script; all others put what they are given into user data, where cloud-init
reads it. What the user wants done besides comes after.
"""

from __future__ import annotations

import base64
import gzip
from typing import Any

from remuda.kube.encoding import yamlio

_HEAD = "## template: jinja\n#cloud-config\n"
_SCRIPT = "/usr/local/custom_script/install.sh"
# Groups of infrastructure whose machines run the script as it is.
_SCRIPTED = frozenset({"rke-machine.cattle.io", "rke.cattle.io", "elemental.cattle.io"})


class UserdataError(ValueError):
    """User data that is no cloud-config; the text says why."""


def wants_script(infrastructure_group: str) -> bool:
    return infrastructure_group in _SCRIPTED


def bootstrap_data(script: bytes, infrastructure_group: str, userdata: str = "") -> bytes:
    """The value of the bootstrap Secret; raises UserdataError."""
    return script if wants_script(infrastructure_group) else cloud_config(script, userdata)


def cloud_config(script: bytes, userdata: str = "") -> bytes:
    found = _parsed(userdata)
    file = {
        "content": base64.b64encode(gzip.compress(script, mtime=0)).decode(),
        "encoding": "gzip+b64",
        "path": _SCRIPT,
        "permissions": "0600",
    }
    found["write_files"] = [file, *_listed(found, "write_files")]
    found["runcmd"] = [f"sh {_SCRIPT}", *_listed(found, "runcmd")]
    return (_HEAD + yamlio.dumps(found)).encode()


def _parsed(userdata: str) -> dict[str, Any]:
    if not userdata.strip():
        return {}
    try:
        found = yamlio.loads(userdata)
    except ValueError as error:
        raise UserdataError(f"the user data is no YAML: {error}") from None
    if found is None:
        return {}
    if not isinstance(found, dict):
        raise UserdataError("the user data is no cloud-config: it must be a mapping")
    return dict(found)


def _listed(found: dict[str, Any], key: str) -> list[Any]:
    value = found.get(key)
    if value is None:
        return []
    if not isinstance(value, list):
        raise UserdataError(f"{key} in the user data must be a list")
    return value
