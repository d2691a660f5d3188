"""Which etcd the demo's hosts get: a good one that is here already, else the old one of a wheel, which is enough to look at.

:func:`remuda.images.installer.find_etcd` knows the places; here those are left out whose etcd is too old for hosts to take,
as Debian's is, and what the project's own tests have built is looked at, too.
"""

from __future__ import annotations

import subprocess
from collections.abc import Iterator, Mapping
from pathlib import Path
from shutil import which
from typing import NamedTuple

from remuda.images.directories import cache_directory
from remuda.images.installer import VARIABLE, wheel
from remuda.lab.distro.etcd.process import version_problem

from ..exit_codes import Failure

_SECONDS = 20.0


class Choice(NamedTuple):
    """`demo`: it may lose what it was told when the machine crashes."""

    program: Path
    version: str
    demo: bool = False


def choose(environ: Mapping[str, str]) -> Choice:
    """Raises Failure."""
    problems = []
    for program in _candidates(environ):
        version, problem = _looked_at(program)
        if not problem:
            return Choice(program, version)
        problems.append(f"{program} {problem.partition(':')[0]}")
        if str(program) == environ.get(VARIABLE):
            raise Failure(f"{VARIABLE} says {program}, which {problem}")
    packed = wheel()
    if packed is not None:
        return Choice(packed, _looked_at(packed)[0], demo=True)
    seen = f" ({'; '.join(problems)}, which is too old)" if problems else ""
    raise Failure(f"there is no etcd for the demo's hosts{seen}: pip install 'remuda[demo]', or name one in {VARIABLE}")


def _candidates(environ: Mapping[str, str]) -> Iterator[Path]:
    if told := environ.get(VARIABLE):
        yield Path(told)
    if found := which("etcd", path=environ.get("PATH")):
        yield Path(found)
    # Where tests/real/build.py puts it.
    built = Path(environ["REMUDA_CACHE"]) / "remuda" if environ.get("REMUDA_CACHE") else cache_directory(environ)
    yield from sorted(built.glob("real/*/etcd"))


def _looked_at(program: Path) -> tuple[str, str]:
    """Its version, and what is wrong with it."""
    try:
        done = subprocess.run([program, "--version"], capture_output=True, text=True, timeout=_SECONDS, check=False)
    except (OSError, subprocess.SubprocessError) as error:
        return "", f"can't be run: {getattr(error, 'strerror', None) or error}"
    first = done.stdout.partition("\n")[0]
    return first.rpartition(" ")[2], version_problem(done.stdout, demo=False)
