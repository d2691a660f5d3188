"""Reports and objects of snapshots for tests, and the API server that stores what the inventory decides."""

from __future__ import annotations

import base64
import gzip
import json
from typing import Any

from remuda.provisioning.etcd.inventory import Bucket, Changes, Host, Known, Place, changes
from remuda.provisioning.etcd.snapshot_reports import Report, of_host

Obj = dict[str, Any]

NOW = 1_800_000_000.0
HASH = "a" * 64
SPEC = {"kubernetesVersion": "v1.34.1+k3s1", "rkeConfig": {"upgradeStrategy": {}}}
REMEMBERED = {"provisioning-cluster-spec": base64.b64encode(gzip.compress(json.dumps(SPEC).encode(), mtime=0)).decode()}


def printed(*files: str, at: float = NOW, end: bool = True, more: tuple[str, ...] = ()) -> str:
    """What a host prints that has these files, of 100 bytes each."""
    lines = [f"at {int(at)}", "directory /snapshots", *more, *(f"file 100 {int(NOW)} {HASH} - {file}" for file in files)]
    return "\n".join([*lines, *([f"end {len(files)}"] if end else []), ""])


def host(name: str, text: str | None, *, heard: float = NOW, why: str = "") -> Host:
    """A machine whose node is `n-NAME`."""
    report = None if text is None else of_host(name, f"n-{name}", text)
    return Host(name, f"uid-{name}", Place(heard, report, why))


def known(*hosts: Host, bucket: Bucket | None = None, own: Report | None = None) -> Known:
    return Known("fleet", "demo", "uid-demo", hosts, bucket, None if own is None else Place(NOW, own))


def bucket(report: Report | None, *, heard: float = NOW, why: str = "") -> Bucket:
    return Bucket("s3://backups/demo/", Place(heard, report, why))


class Stored:
    """The ETCDSnapshots, as changes leave them."""

    def __init__(self) -> None:
        self.objects: dict[str, Obj] = {}
        self.writes = 0

    def pass_(self, seen: Known, now: float = NOW) -> Changes:
        """One pass; returns what it has changed."""
        found = changes(seen, self.objects.values(), now)
        for each in found.create:
            assert each["metadata"]["name"] not in self.objects
            self.objects[each["metadata"]["name"]] = _without_nothing(each)
        for update in found.update:
            name = update.before["metadata"]["name"]
            patch = {**update.patch, **({"status": update.status} if update.status else {})}
            self.objects[name] = _merged(self.objects[name], patch)
        for each in found.delete:
            del self.objects[each["metadata"]["name"]]
        self.writes += len(found.create) + len(found.update) + len(found.delete)
        return found

    def files(self) -> dict[str, str]:
        """available, missing or failed, by file and storage or machine."""
        return {
            f"{each['snapshotFile']['name']}@{_where(each)}": _state(each)
            for each in sorted(self.objects.values(), key=lambda each: str(each["metadata"]["name"]))
        }


def _where(snapshot: Obj) -> str:
    (owner,) = snapshot["metadata"]["ownerReferences"]
    return str(owner["name"]) if owner["kind"] == "Machine" else "s3"


def _state(snapshot: Obj) -> str:
    if snapshot["snapshotFile"]["status"] == "failed":
        return "failed"
    return "missing" if snapshot["status"]["missing"] else "available"


def _merged(old: Any, patch: Any) -> Any:
    if not isinstance(patch, dict):
        return patch
    found = dict(old) if isinstance(old, dict) else {}
    for name, value in patch.items():
        if value is None:
            found.pop(name, None)
        else:
            found[name] = _merged(found.get(name), value)
    return found


def _without_nothing(value: Any) -> Any:
    if isinstance(value, dict):
        return {name: _without_nothing(each) for name, each in value.items() if each is not None}
    return value
