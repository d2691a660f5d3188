"""The environment of a host's processes: its programs first on the PATH, its root, its name, its address.

The same for its units and for commands that a user runs in it. Only a few variables come from the caller: language, time zone,
proxies and the location of certificates.
"""

from __future__ import annotations

import os
from collections.abc import Mapping

from .host_directory import Place, Record

# In the environment of every process of a host: it identifies processes that have lost their init.
MARK = "REMUDA_HOST_ID"
_PASSED = (
    *("LANG", "LC_ALL", "TZ", "TERM", "SSL_CERT_FILE", "SSL_CERT_DIR", "CURL_CA_BUNDLE"),
    *(name for proxy in ("HTTP_PROXY", "HTTPS_PROXY", "NO_PROXY") for name in (proxy, proxy.lower())),
    # For debugging Remuda itself.
    "REMUDA_DEBUG",
)


def environment(place: Place, record: Record, caller: Mapping[str, str] | None = None) -> dict[str, str]:
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
