"""The first words of docs/install.md on a bare Debian: its Python has no ensurepip, and there is no pip, no make, and no root."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.real import debian, need

pytestmark = [pytest.mark.real, pytest.mark.hosts, pytest.mark.timeout(900)]

REPOSITORY = Path(__file__).parents[3]
SOURCES = ("pyproject.toml", "README.md", "LICENSE", "scripts", "src")
# How this machine reaches the package index, which a user's machine does in a way of its own.
AUTHORITIES = Path("/etc/ssl/certs/ca-certificates.crt")


@pytest.fixture
def bare(tmp_path: Path) -> Iterator[Path]:
    """The root of one, with a checkout in /src."""
    if os.geteuid() != 0:
        need.absent("a root filesystem is made by root")
    try:
        archive = debian.archive(debian.codename(), "python3", ())
    except debian.Unavailable as reason:
        need.absent(str(reason))
    root = tmp_path / "root"
    root.mkdir()
    subprocess.run(["tar", "-C", str(root), "-xpf", str(archive)], check=True, timeout=300)
    for name in SOURCES:
        source, target = REPOSITORY / name, root / "src" / name
        target.parent.mkdir(exist_ok=True)
        if source.is_dir():
            shutil.copytree(source, target, ignore=shutil.ignore_patterns("__pycache__"))
        else:
            shutil.copy(source, target)
    for file in (Path("/etc/resolv.conf"), Path("/etc/hosts"), AUTHORITIES):
        if file.exists():
            shutil.copy(file, root / "etc" / file.name)
    yield root
    shutil.rmtree(root, ignore_errors=True)


def run(root: Path, script: str) -> subprocess.CompletedProcess[str]:
    """As a user without rights, in mount and process namespaces of its own."""
    index = [f"{name}={value}" for name, value in os.environ.items() if name in ("PIP_INDEX_URL", "PIP_DEFAULT_TIMEOUT")]
    environ = ["env", "-i", "PATH=/usr/bin:/bin", "HOME=/tmp", "LANG=C", f"PIP_CERT=/etc/{AUTHORITIES.name}", *index]
    command = ["unshare", "-m", "-p", "-f", f"--mount-proc={root}/proc", "chroot", "--userspec=nobody:nogroup", str(root)]
    return subprocess.run([*command, *environ, "sh", "-ec", script], capture_output=True, text=True, timeout=600, check=False)


def test_the_words_of_the_page_install_it(bare: Path) -> None:
    block = re.search(r"```console\n(.*?)```", (REPOSITORY / "docs" / "install.md").read_text(), re.DOTALL)
    assert block is not None
    install, *_, serve = [line.removeprefix("$ ") for line in block[1].splitlines()]
    assert run(bare, "python3 -m ensurepip").returncode != 0
    done = run(bare, f"cd /src && {install}")
    if "Temporary failure in name resolution" in done.stderr or "No matching distribution" in done.stderr:
        need.absent(f"the package index is out of reach: {done.stderr[-300:]}")
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-2000:]
    assert done.stdout.startswith("Creating a virtual environment in /tmp/remuda-env\n") and "fetching aiohttp" in done.stdout
    # It is whole without the checkout: a server that serves, and shells on machines.
    shutil.rmtree(bare / "src")
    assert run(bare, "~/remuda-env/bin/python -c 'import asyncssh'").returncode == 0
    script = (
        f"{serve} --listen 127.0.0.1:0 >out & while ! grep -q ^Ctrl-C out; do kill -0 $!; sleep 0.2; done; kill $!; wait; cat out"
    )
    told = run(bare, f"cd /tmp; {script}")
    assert "serves the Kubernetes API at https://127.0.0.1:" in told.stdout, told.stdout + told.stderr
    assert "Traceback" not in told.stderr
