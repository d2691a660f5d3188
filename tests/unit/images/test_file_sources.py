"""Where the files of an image come from: packages, wheels, and modules that are imported."""

from __future__ import annotations

import hashlib
import zipfile
from pathlib import Path

import pytest

import remuda
from remuda.images import debian, recipe


def module(root: Path, name: str, text: str = "") -> None:
    path = root.joinpath(*name.split(".")).with_suffix(".py")
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)


def test_what_is_imported_wherever_it_stands(tmp_path: Path) -> None:
    module(tmp_path, "p.__init__")
    module(tmp_path, "p.q.__init__", "from . import inner\n")
    module(tmp_path, "p.q.inner", "def f():\n    from ..late import x\n")
    module(tmp_path, "p.late", "x = 1\ntry:\n    import p.optional\nexcept ImportError:\n    pass\n")
    module(tmp_path, "p.optional", "import os, json\n")
    module(tmp_path, "p.typed")
    module(tmp_path, "p.unused")
    module(
        tmp_path,
        "p.start",
        "from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    from .typed import T\nelse:\n    from p.q.inner import f\n",
    )
    found = recipe.needed(tmp_path, ["p.start"])
    assert sorted(found) == ["p", "p.late", "p.optional", "p.q", "p.q.inner", "p.start"]


def test_the_agent_needs_little_of_us() -> None:
    source = Path(remuda.__file__).parents[1]
    found = recipe.needed(source, [start for start in recipe.STARTS if start != "remuda.cli.programs.kube_api_auth"])
    rooms = {name.split(".")[1] for name in found if "." in name}
    assert rooms == {"__main__", "access", "agent", "cli", "client", "kube", "tunnel"}
    for only in ("remuda.agent.key_fingerprints", "remuda.access.agent_objects"):
        assert [name for name in found if name.startswith(only.rpartition(".")[0] + ".")] == [only]


def test_nothing_of_a_server_is_in_the_image() -> None:
    found = recipe.needed(Path(remuda.__file__).parents[1], recipe.STARTS)
    assert len(found) < 100
    for name in (
        "remuda.cli.programs.serve",
        "remuda.apiserver.inprocess",
        "remuda.apiserver.server",
        "remuda.gateway",
        "remuda.capi",
    ):
        assert name not in found


def test_only_wheels_with_known_hashes(tmp_path: Path) -> None:
    cache = tmp_path / "python3.11-amd64"
    cache.mkdir()
    with zipfile.ZipFile(cache / "thing-1.0-py3-none-any.whl", "w") as archive:
        archive.writestr("thing/__init__.py", "x = 1\n")
        archive.writestr("thing-1.0.dist-info/METADATA", "Name: thing\n")
    digest = hashlib.sha256((cache / "thing-1.0-py3-none-any.whl").read_bytes()).hexdigest()
    listed = tmp_path / "requirements.txt"
    listed.write_text(f"# a comment\nthing==1.0 \\\n    --hash=sha256:{'0' * 64} \\\n    --hash=sha256:{digest}\n")
    assert recipe.wanted(listed) == {"thing==1.0": frozenset({"0" * 64, digest})}
    found = recipe.fetch(listed, "3.11", "amd64", tmp_path)
    assert [path.name for path in found] == ["thing-1.0-py3-none-any.whl"]
    assert list(recipe.unpack(found[0], "lib")) == ["lib/thing-1.0.dist-info/METADATA", "lib/thing/__init__.py"]
    with pytest.raises(recipe.WheelError, match="no wheels are known"):
        recipe.fetch(listed, "3.11", "riscv64", tmp_path)


def test_a_wheel_that_wants_more_than_to_be_unpacked(tmp_path: Path) -> None:
    with zipfile.ZipFile(tmp_path / "x.whl", "w") as archive:
        archive.writestr("x-1.data/scripts/run", "")
    with pytest.raises(recipe.WheelError, match="needs more than unpacking"):
        recipe.unpack(tmp_path / "x.whl", "lib")


def test_the_agents_wheels_are_those_that_it_is_tested_with() -> None:
    """Whoever updates the virtual environment sees here that the image has something else."""
    from importlib.metadata import version

    listed = dict(entry.split("==") for entry in recipe.wanted(recipe.REQUIREMENTS))
    assert {"aiohttp", "msgspec", "click", "pyyaml", "uvloop"} <= set(listed)
    for name, pinned in listed.items():
        assert version(name).split(".")[0] == pinned.split(".")[0], name
    assert all(len(hashes) in (1, 4) for hashes in recipe.wanted(recipe.REQUIREMENTS).values())


@pytest.mark.parametrize(
    ("path", "merged"),
    [("./lib/x", "usr/lib/x"), ("./usr/lib/x", "usr/lib/x"), ("./etc/x", "etc/x"), ("./library/x", "library/x")],
)
def test_where_files_lie_in_a_merged_usr(path: str, merged: str) -> None:
    assert debian.merged(path) == merged


def test_what_a_machine_without_apt_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "/nonexistent")
    with pytest.raises(debian.DebianError, match="dpkg is missing"):
        debian.architecture()
