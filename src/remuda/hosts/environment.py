"""What processes of a host see around them: its programs first on the PATH, its root, its name, its address.

The same for its units and for whoever runs something in it. Of the one who asks only little comes along: language, time zone,
proxies and where certificates are.
"""

from __future__ import annotations

import os
from collections.abc import Mapping

from .host_directory import Place, Record

# In the environment of every process of a host: how they are found when nobody looks after them any more.
MARK = "REMUDA_HOST_ID"
_PASSED = (
    *("LANG", "LC_ALL", "TZ", "TERM", "SSL_CERT_FILE", "SSL_CERT_DIR", "CURL_CA_BUNDLE"),
    *(name for proxy in ("HTTP_PROXY", "HTTPS_PROXY", "NO_PROXY") for name in (proxy, proxy.lower())),
    # For those who look for faults in us.
    "REMUDA_DEBUG",
)


def environment(place: Place, record: Record, caller: Mapping[str, str] | None = None) -> dict[str, str]:
    """`caller` is the environment of the one who asks."""
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
        # What the system agent's installer asks for, and what registers the host under its own name.
        "CATTLE_HOST_ROOT": root,
        "CATTLE_HOST_LOOPBACK": record.address,
        "CATTLE_NODE_NAME": record.name,
        # For the distribution: there need not be another Python than the one that made this host.
        "REMUDA_PYTHON": str(place.programs / "remuda-python"),
    }


def _without_proxy(passed: Mapping[str, str], address: str) -> dict[str, str]:
    """No proxy finds a host of this machine, nor a server on it."""
    if not any(name.lower().endswith("s_proxy") or name.lower() == "http_proxy" for name in passed):
        return {}
    known = [part for name in ("NO_PROXY", "no_proxy") for part in passed.get(name, "").split(",") if part]
    words = ",".join(dict.fromkeys((*known, "localhost", "127.0.0.1", "127.0.0.0/8", address)))
    return {"NO_PROXY": words, "no_proxy": words}


def _outside(path: str) -> str:
    """The caller's own programs, without those of a host that it is called in."""
    return ":".join(part for part in path.split(":") if part.startswith("/")) or os.defpath
