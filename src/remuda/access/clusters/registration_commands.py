"""The commands that register a cluster or a node: byte for byte as in docs/reference/registration.md#tokens-of-a-cluster.

The stored commands have `{token}` in place of the token. Users who may read its Secret get it filled in (:func:`revealed`): the
cluster's own token to import a cluster, and that of `node-token` to register nodes, so that no node learns the token that opens
the tunnel.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Any

from remuda.kube.objects import dig, with_path

Obj = dict[str, Any]

TOKEN = "{token}"
IMPORTING = ("manifestUrl", "command", "insecureCommand")
JOINING = ("nodeCommand", "insecureNodeCommand", "windowsNodeCommand", "insecureWindowsNodeCommand")
FIELDS = (*IMPORTING, *JOINING)

_VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
# Characters that a shell, or PowerShell, interprets between double quotes.
# PowerShell also takes typographic quotation marks for its own.
_SHELL, _POWERSHELL = re.compile(r'(["$`\\])'), re.compile('(["$`\u201c\u201d\u201e])')


def commands(url: str, checksum: str, cluster: str, variables: Iterable[Mapping[str, Any]] | None = None) -> dict[str, str]:
    """All commands; none while this server's address is unknown. `checksum` is empty if a public CA signed its certificate."""
    if not url:
        return {}
    manifest = f"{url}/v3/import/{TOKEN}_{cluster}.yaml"
    return {
        "manifestUrl": manifest,
        "command": f"kubectl apply -f {manifest}",
        "insecureCommand": f"curl --insecure -sfL {manifest} | kubectl apply -f -",
        "nodeCommand": _linux(url, checksum, variables, "-fL"),
        "insecureNodeCommand": _linux(url, checksum, variables, "--insecure -fL"),
        "windowsNodeCommand": _windows(url, checksum, variables, "-fL"),
        "insecureWindowsNodeCommand": _windows(url, checksum, variables, "--insecure -fL"),
    }


def _linux(url: str, checksum: str, variables: Iterable[Mapping[str, Any]] | None, how: str) -> str:
    env = " ".join(f'{name}="{_in_shell(value)}"' for name, value in _usable(variables))
    ca = f" --ca-checksum {checksum}" if checksum else ""
    return (
        f"{env} curl {how} {url}/system-agent-install.sh | sudo {env} sh -s - --server {url} "
        f"--label 'cattle.io/os=linux' --token {TOKEN}{ca}"
    )


def _windows(url: str, checksum: str, variables: Iterable[Mapping[str, Any]] | None, how: str) -> str:
    env = " ".join(f'$env:{name}="{_in_powershell(value)}";' for name, value in _usable(variables))
    ca = f" -CaChecksum {checksum}" if checksum else ""
    return (
        f"{env} curl.exe {how} {url}/wins-agent-install.ps1 -o install.ps1; Set-ExecutionPolicy Bypass -Scope Process -Force; "
        f"./install.ps1 -Server {url} -Label 'cattle.io/os=windows' -Token {TOKEN} -Worker{ca}"
    )


def _in_shell(value: str) -> str:
    return _SHELL.sub(r"\\\1", value)


def _in_powershell(value: str) -> str:
    return _POWERSHELL.sub(r"`\1", value)


def _usable(variables: Iterable[Mapping[str, Any]] | None) -> list[tuple[str, str]]:
    """The variables that a command line can set: others would be commands of their own."""
    found = [(each.get("name"), each.get("value") or "") for each in variables or () if not each.get("valueFrom")]
    return [
        (name, value)
        for name, value in found
        if isinstance(name, str) and _VARIABLE.fullmatch(name) and isinstance(value, str) and value.isprintable()
    ]


def revealed(crt: Obj, token: str, node_token: str) -> Obj:
    """A ClusterRegistrationToken for a user who may read its token. Where a token is missing, `{token}` stays."""
    status = dict(dig(crt, "status") or {})
    for fields, secret in ((IMPORTING, token), (JOINING, node_token)):
        for field in fields:
            if isinstance(status.get(field), str) and secret:
                status[field] = status[field].replace(TOKEN, secret)
    status["token"] = token
    return with_path(crt, ("status",), status)
