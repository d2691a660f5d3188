"""Snapshots of a simulated etcd, and what a host prints about those in its directory."""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property

from remuda.kube.encoding import jsonio


@dataclass(frozen=True)
class SavedSnapshot:
    """`state` is all that the cluster had stored; `metadata` what the distribution keeps beside the file."""

    state: Mapping[str, bytes]
    taken: float
    metadata: Mapping[str, str] = field(default_factory=dict)

    @cached_property
    def size(self) -> int:
        return sum(len(key) + len(value) for key, value in self.state.items())

    @cached_property
    def sha256(self) -> str:
        digest = hashlib.sha256()
        for key, value in sorted(self.state.items()):
            digest.update(key.encode() + b"\0" + value)
        return digest.hexdigest()


def report(saved: Mapping[str, SavedSnapshot], now: float) -> str:
    """A host's report of these files (:mod:`remuda.provisioning.etcd.snapshot_reports` reads it)."""
    lines, told = [f"at {int(now)}", "directory /var/lib/rancher/remuda/server/db/snapshots"], set()
    for name, each in sorted(saved.items(), key=lambda item: (-item[1].taken, item[0])):
        content = jsonio.dumps(dict(each.metadata)) if each.metadata else b""
        digest = hashlib.sha256(content).hexdigest() if content else "-"
        lines.append(f"file {each.size} {int(each.taken)} {each.sha256} {digest} {name}")
        if content and digest not in told:
            told.add(digest)
            lines.append(f"metadata {digest} {base64.b64encode(content).decode()}")
    return "\n".join([*lines, f"end {len(saved)}", ""])
