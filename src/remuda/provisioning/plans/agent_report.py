"""The report of a host's agent in its plan's Secret, under `agent`: its checksum, the directory for the next one, and the
CAs it trusts.

Only our agent writes it; Rancher's does not. A host may lie here as elsewhere in its Secret, which harms only itself: the
report decides about a file in its own plan (by :mod:`remuda.provisioning.planner.managesystemagent`), and whether the server
waits for the host before it drops a CA.
"""

from __future__ import annotations

import posixpath
import re
from dataclasses import dataclass
from typing import Any

from remuda.kube.encoding import jsonio
from remuda.kube.redaction import redacted

_LONGEST, _LONGEST_REPORT = 1024, 8192
_LONGEST_REASON = 300
_MOST_TRUSTED = 16
_CHECKSUM = re.compile(r"[0-9a-f]{64}")


@dataclass(frozen=True, slots=True)
class AgentReport:
    """`checksum` (SHA-256) is that of the running agent; `successors` the directory in which it looks for another one, named by
    its checksum. `refused` is the checksum of the last one it rejected, with the `reason`."""

    checksum: str
    successors: str
    version: str = ""
    refused: str = ""
    reason: str = ""


def trusts(data: bytes) -> tuple[str, ...] | None:
    """The fingerprints of the CAs that the agent trusts; None if it reports none, empty if it needs none."""
    found = (_members(data) or {}).get("trusts")
    if not isinstance(found, list):
        return None
    known = tuple(each for each in found[:_MOST_TRUSTED] if isinstance(each, str) and _CHECKSUM.fullmatch(each))
    return known if known or not found else None


def _members(data: bytes) -> dict[str, Any] | None:
    if not data or len(data) > _LONGEST_REPORT:
        return None
    try:
        said: Any = jsonio.loads(data)
    except jsonio.JsonError:
        return None
    return said if isinstance(said, dict) else None


def parse(data: bytes) -> AgentReport | None:
    """The report; None if it is missing or invalid."""
    said = _members(data)
    if said is None:
        return None
    checksum, successors = _text(said, "checksum"), _text(said, "successors")
    if not _CHECKSUM.fullmatch(checksum) or not _is_directory(successors):
        return None
    refusal = said.get("refused")
    refused = refusal if isinstance(refusal, dict) else {}
    reason = redacted(_text(refused, "reason"))[:_LONGEST_REASON]
    return AgentReport(checksum, successors, _text(said, "version")[:64], _text(refused, "checksum")[:64], reason)


def _text(said: dict[str, Any], key: str) -> str:
    found = said.get(key)
    return found if isinstance(found, str) else ""


def _is_directory(path: str) -> bool:
    clean = path.startswith("/") and not path.startswith("//") and path != "/" and posixpath.normpath(path) == path
    return clean and len(path) <= _LONGEST and path.isprintable()
