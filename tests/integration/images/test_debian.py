"""Debian's packages, as its own program builds them."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

from remuda.images import debian


@pytest.mark.skipif(shutil.which("dpkg-deb") is None, reason="this is not Debian")
def test_a_package_is_unpacked_and_not_installed(tmp_path: Path) -> None:
    root = tmp_path / "thing"
    (root / "DEBIAN").mkdir(parents=True)
    (root / "DEBIAN" / "control").write_text(
        "Package: thing\nVersion: 1\nArchitecture: all\nMaintainer: nobody <x@example.com>\nDescription: thing\n"
    )
    (root / "DEBIAN" / "postinst").write_text("#!/bin/sh\nexit 1\n")
    (root / "DEBIAN" / "postinst").chmod(0o755)
    (root / "lib").mkdir()
    (root / "lib" / "libthing.so.1.2").write_bytes(b"elf")
    (root / "lib" / "libthing.so.1").symlink_to("libthing.so.1.2")
    (root / "usr" / "bin").mkdir(parents=True)
    (root / "usr" / "bin" / "su").write_bytes(b"x")
    (root / "usr" / "bin" / "su").chmod(0o4755)
    subprocess.run(
        ["dpkg-deb", "--build", "--root-owner-group", str(root), str(tmp_path / "thing_1_all.deb")],
        check=True,
        capture_output=True,
    )
    tree = debian.unpack(tmp_path / "thing_1_all.deb")
    assert list(tree) == ["usr/bin/su", "usr/lib/libthing.so.1", "usr/lib/libthing.so.1.2", "var/lib/dpkg/status.d/thing"]
    assert tree["usr/bin/su"].mode == 0o755
    assert tree["usr/lib/libthing.so.1"].target == "libthing.so.1.2"
    debian.merged_links(tree)
    assert tree["lib"].target == "usr/lib"
    assert "lib64" not in tree
