"""Which failures get a second look, and what the session says of them (:mod:`tests.again`)."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests import again

pytestmark = pytest.mark.story

ROOT = Path(again.__file__).parents[1]
_FLAKY = """
from pathlib import Path

def test_late():
    mark = Path({mark!r})
    first = not mark.exists()
    mark.touch()
    assert not first, "one late answer"
"""


@pytest.mark.parametrize(
    ("failed", "expected"),
    [
        ([], False),
        (["tests/api/test_watch.py::test_a"], True),
        (["tests/e2e/demo/test_b.py::test_b[x y]", "tests/real/test_c.py::test_c"], True),
        (["tests/integration/tunnel/test_f.py::test_f"], True),
        (["tests/unit/test_d.py::test_d"], False),
        (["tests/fuzz/test_g.py::test_g"], False),
        (["tests/scenarios/test_e.py::test_e"], False),
        (["tests/api/test_watch.py::test_a", "tests/unit/test_d.py::test_d"], False),
        ([f"tests/api/test_watch.py::test_{n}" for n in range(again.MOST + 1)], False),
    ],
)
def test_only_a_few_failures_of_live_tiers_run_again(failed: list[str], expected: bool) -> None:
    assert again.may_run_again(failed) is expected


@pytest.fixture
def session(tmp_path: Path) -> Path:
    """A project of its own with the plug-in in it."""
    package = tmp_path / "tests"
    package.mkdir()
    (package / "__init__.py").touch()
    (package / "again.py").write_text(Path(again.__file__).read_text())
    (package / "conftest.py").write_text("from tests import again\n\ndef pytest_configure(config):\n    again.begin(config)\n")
    (tmp_path / "pyproject.toml").write_text('[tool.pytest.ini_options]\ntestpaths = ["tests"]\n')
    return tmp_path


def _run(session: Path, tier: str, body: str, *options: str) -> subprocess.CompletedProcess[str]:
    directory = session / "tests" / tier
    directory.mkdir()
    (directory / "__init__.py").touch()
    (directory / "test_it.py").write_text(body)
    environment = {name: value for name, value in os.environ.items() if not name.startswith(("PYTEST", "REMUDA"))}
    command = [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", *options]
    return subprocess.run(command, cwd=session, env=environment, capture_output=True, text=True, check=False)


@pytest.mark.parametrize("options", [(), ("-n", "2")])
def test_a_live_test_that_passes_alone_is_unstable_and_told_in_full(session: Path, options: tuple[str, ...]) -> None:
    ended = _run(session, "e2e", _FLAKY.format(mark=str(session / "mark")), *options)
    assert ended.returncode == 0, ended.stdout
    assert "UNSTABLE: tests/e2e/test_it.py::test_late" in ended.stdout
    assert "one late answer" in ended.stdout


def test_a_live_test_that_fails_twice_fails_the_session(session: Path) -> None:
    ended = _run(session, "e2e", "def test_wrong():\n    assert 1 == 2\n")
    assert ended.returncode == 1
    assert "failed once more, alone: tests/e2e/test_it.py::test_wrong" in ended.stdout
    assert "UNSTABLE" not in ended.stdout


def test_a_unit_test_has_one_try(session: Path) -> None:
    ended = _run(session, "unit", _FLAKY.format(mark=str(session / "mark")))
    assert ended.returncode == 1
    assert "UNSTABLE" not in ended.stdout


def test_a_file_that_cannot_be_read_fails_the_session(session: Path) -> None:
    ended = _run(session, "e2e", "import nothing_of_this_name\n")
    assert ended.returncode == 2, ended.stdout


def test_no_more_than_three_tests_are_known_to_be_unstable() -> None:
    listed = re.findall(r"(?m)^\| `?tests/", (ROOT / "tests" / "unstable.md").read_text())
    assert len(listed) <= 3
