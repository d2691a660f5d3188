"""A filesystem that lets nobody write any more, as the kernel makes it when a disk fails."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from pathlib import Path

import pytest

from tests.api.harness import Answer
from tests.e2e.serving import config_map, make_namespace, send

from .disks import Disk, Housed, image_disk

pytestmark = pytest.mark.skipif(
    not shutil.which("mkfs.ext4") or not shutil.which("chattr"), reason="there is no mkfs.ext4 or chattr (e2fsprogs)"
)


def _refused(answer: Answer) -> None:
    assert answer.status == 503, answer.body
    assert answer.json["reason"] == "ServiceUnavailable" and answer.json["details"] == {"retryAfterSeconds": 1}
    assert "state.db: disk I/O error" in answer.json["message"] and "kernel's log" in answer.json["message"]


def _breakable(disk: Disk) -> Path:
    """Where the kernel is told that it has met an error; the test is skipped where nobody may tell it, or mark files."""
    device = Path(disk.run("findmnt", "-no", "SOURCE", str(disk.place)).strip()).name
    found = Path(f"/sys/fs/ext4/{device}/trigger_fs_error")
    (disk.seen / "marked").touch()
    marks = [[*disk.entering, "chattr", sign, str(disk.place / "marked")] for sign in ("+i", "-i")]
    refused = [subprocess.run(each, capture_output=True, check=False).returncode for each in marks]
    if not os.access(found, os.W_OK) or any(refused):
        pytest.skip(f"files can't be marked as immutable here, or {found} can't be written")
    return found


def test_a_disk_that_becomes_read_only_costs_nothing_that_was_acknowledged(tmp_path: Path) -> None:
    image = tmp_path / "image"
    with image_disk(tmp_path / "disk", image) as disk:
        error = _breakable(disk)
        served = Housed(disk, tmp_path / "server.log")
        try:
            served.start()
            collection = make_namespace(served, "kept")
            endpoint = served.endpoint
            assert send(endpoint, "POST", collection, config_map("first")).status == 201
            revision = endpoint.request("GET", collection).json["metadata"]["resourceVersion"]
            files = [str(disk.place / "data" / name) for name in ("state.db", "state.db-wal")]
            with endpoint.stream(f"{collection}?watch=1&resourceVersion={revision}") as watch:
                # For a while, and by itself again.
                disk.run("chattr", "+i", *files)
                for number in range(3):
                    _refused(send(endpoint, "POST", collection, config_map(f"never{number}")))
                assert endpoint.request("GET", f"{collection}/first").status == 200
                disk.run("chattr", "-i", *files)
                assert send(endpoint, "POST", collection, config_map("second")).status == 201
                assert json.loads(watch.readline())["object"]["metadata"]["name"] == "second"
                # For good: the kernel has met an error and lets nobody write.
                error.write_text("1")
                for number in range(3):
                    _refused(send(endpoint, "POST", collection, config_map(f"nor{number}")))
                assert endpoint.request("GET", f"{collection}/second").status == 200
                assert endpoint.request("GET", "/readyz").status == 200
            assert served.stop() == 0, served.told()
            refused = served.run()
            assert refused.returncode == 1
            assert len(refused.stderr.splitlines()) == 1, refused.stderr
            assert "state.db: Read-only file system" in refused.stderr, refused.stderr
            assert served.tracebacks() == [], served.told()
        finally:
            served.end()
    # 1: something was put right, which is what it is for.
    assert subprocess.run(["e2fsck", "-fy", str(image)], capture_output=True, check=False).returncode in (0, 1)
    with image_disk(tmp_path / "repaired", image) as disk:
        served = Housed(disk, tmp_path / "repaired.log")
        try:
            served.start()
            names = {item["metadata"]["name"] for item in served.endpoint.request("GET", collection).json["items"]}
            assert names == {"first", "second", "kube-root-ca.crt"}
        finally:
            served.end()
