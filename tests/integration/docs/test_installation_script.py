"""`scripts/venv.sh`, which docs/install.md and `make demo` run: what it prints, how it installs, and what it leaves alone.

The Python is one whose `venv` makes an environment with a pip of our own, so that nothing is downloaded.
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

SCRIPT = Path(__file__).parents[3] / "scripts" / "venv.sh"
# Called as `python -c …`, `python -m venv --clear DIRECTORY`, and later as the environment's own: `python -m pip …`.
PYTHON = f"""#!/bin/sh
case "$1 $2" in
  "-c "*) exec {sys.executable} "$@" ;;
  "-m venv") for last; do :; done; mkdir -p "$last/bin"; touch "$last/pyvenv.cfg"; cp "$0" "$last/bin/python" ;;
  "-m pip") shift 2; [ "$1" != install ] || PIP; exit ;;
  *) exit 9 ;;
esac
"""
PIP = """{{ echo "$@" >"{log}"; echo "Processing /x"
echo "Collecting aiohttp<4,>=3.14 (from remuda==0.1.0)"; echo "  Downloading aiohttp-3.14.0.whl"
echo "Building wheels for collected packages: remuda"; echo "Installing collected packages: aiohttp"
echo "{problem}" >&2; exit {code}; }}"""


class Scripted:
    def __init__(self, directory: Path, *, code: int = 0, problem: str = "") -> None:
        self.log = directory / "log"
        self.target = directory / "environment"
        self.python = directory / "python"
        self.python.write_text(PYTHON.replace("PIP", PIP.format(log=self.log, problem=problem, code=code)))
        self.python.chmod(0o755)

    def run(self, *more: str, target: str = "") -> subprocess.CompletedProcess[str]:
        command = [str(SCRIPT), str(self.python), target or str(self.target), *more]
        return subprocess.run(command, capture_output=True, text=True, timeout=60, check=False, cwd=self.target.parent)


def test_each_step_is_a_line(tmp_path: Path) -> None:
    scripted = Scripted(tmp_path)
    done = scripted.run()
    assert (done.returncode, done.stdout.splitlines()) == (
        0,
        [
            f"Creating a virtual environment in {scripted.target}",
            "Installing Remuda and the packages that it needs",
            "  fetching aiohttp<4,>=3.14",
            "  building Remuda",
            "  installing",
        ],
    )
    # The second time there is one.
    assert scripted.run().stdout.splitlines()[0] == "Installing Remuda and the packages that it needs"


@pytest.mark.parametrize(
    ("more", "expected"),
    [((), "."), (("demo",), "--editable .[demo]"), (("test,lint", "pins"), "--constraint pins --editable .[test,lint]")],
)
def test_users_get_a_copy_and_contributors_their_checkout(tmp_path: Path, more: tuple[str, ...], expected: str) -> None:
    scripted = Scripted(tmp_path)
    assert scripted.run(*more).returncode == 0
    assert scripted.log.read_text().strip().endswith(f" off {expected}")


def test_a_failure_of_pip_is_shown_and_is_the_scripts(tmp_path: Path) -> None:
    done = Scripted(tmp_path, code=1, problem="ERROR: No matching distribution found").run()
    assert done.returncode == 1
    assert "ERROR: No matching distribution found" in done.stderr


def test_a_directory_with_other_files_is_left_alone(tmp_path: Path) -> None:
    scripted = Scripted(tmp_path)
    scripted.target.mkdir()
    (scripted.target / "mine").write_text("kept")
    done = scripted.run()
    assert done.returncode == 1 and f"{scripted.target} has other files in it" in done.stderr
    assert (scripted.target / "mine").read_text() == "kept" and not scripted.log.exists()


def test_a_relative_directory_is_the_callers(tmp_path: Path) -> None:
    scripted = Scripted(tmp_path)
    assert scripted.run(target="environment").returncode == 0
    assert (scripted.target / "bin" / "python").exists()
