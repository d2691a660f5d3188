"""The image of Jobs that make machines (`--job-runner=cluster`): `remuda provision` with every driver.

The interface of a Job: arguments, credentials as environment, files in fixed places, and a user
(docs/reference/machines.md#the-program, docs/reference/machines.md#job). Drivers that are not in Python need the program
`rancher-machine`, which is in the image if it was on the PATH of the build. :mod:`.recipe` is our other image, and has the parts
that both share.
"""

from __future__ import annotations

import re
import shutil
from collections.abc import Callable, Mapping
from pathlib import Path

import remuda
from remuda.access.settings.settings import MACHINE_REPOSITORY as REPOSITORY
from remuda.machines.driver_registry import modules
from remuda.machines.nodedrivers.rancher_machine import PROGRAM

from . import debian, recipe
from .installer import bundled_python as installer
from .tree import Tree

__all__ = ["REPOSITORY", "build", "libraries_tree", "own_tree", "settings", "starts"]

REQUIREMENTS = Path(__file__).with_name("machine.txt")
HOME, CERTIFICATES, USER = "home/machine", "etc/rancher/ssl", 1000

_LIBRARIES = ("libffi8|libffi7",)
_WANTED = r"usr/lib/python3\.\d+/(ctypes/(?!test|macholib)|lib-dynload/_ctypes\.)"
# All services of Amazon's SDK except the one that has machines.
_SERVICES = r"(boto3|s3transfer)/examples/|boto3/data/(?!ec2/)|botocore/data/(?!ec2/|[^/]+\.json$)"
UNUSED_SERVICES = re.compile(rf".*/dist-packages/({_SERVICES})")
# And packages for our other images.
_UNUSED = re.compile(rf".*/dist-packages/((isal|joserfc|uvloop)(-|/)|{_SERVICES})")
_PEOPLE = f"root:x:0:0:root:/root:/sbin/nologin\nmachine:x:{USER}:{USER}:machine:/{HOME}:/sbin/nologin\n"
# Creates a client of the one service, with the remaining files of the SDK.
_TRY = "import boto3; boto3.Session().client('ec2', region_name='us-east-1', aws_access_key_id='a', aws_secret_access_key='b')"
_CHECK = recipe.ImageCheck(("provision",), ("boto3", "asyncssh", "cryptography", "ssl", "encodings.idna"), _TRY)


def build(cache: Path, environ: Mapping[str, str], epoch: int = 0, told: Callable[[str], None] = lambda _: None) -> recipe.Built:
    """The image, for the architecture of this machine's apt and with its Python."""
    python, architecture = debian.python_version(), debian.architecture()
    told("Debian's packages")
    base = _base(python, cache)
    told("wheels")
    libraries = f"usr/local/lib/python{python}/dist-packages"
    others = libraries_tree(python, architecture, libraries, cache)
    own = own_tree(python, libraries)
    told("bytecode")
    trees = {f"usr/lib/python{python}": base, libraries: others}
    recipe.compile_all(python, trees, own, f"{libraries}/remuda", _CHECK)
    told("layers")
    parts = [(base, f"Debian's Python {python}"), (others, "libraries"), (own, f"remuda {remuda.__version__}")]
    if (program := shutil.which(PROGRAM, path=environ.get("PATH"))) is not None:
        parts.insert(2, (_program(Path(program)), PROGRAM))
    else:
        told(f"without {PROGRAM}: only for drivers in Python")
    return recipe.assembled(REPOSITORY, architecture, parts, settings(), epoch)


def settings() -> dict[str, object]:
    return {
        "Entrypoint": ["/usr/local/bin/remuda", "provision"],
        "Env": ["PATH=/usr/local/bin:/usr/bin", f"HOME=/{HOME}", f"SSL_CERT_DIR=/{CERTIFICATES}"],
        "User": f"{USER}:{USER}",
        "WorkingDir": f"/{HOME}",
    }


def starts() -> tuple[str, ...]:
    """The modules whose import closure the image needs."""
    return ("remuda.__main__", "remuda.cli.programs.provision", *modules())


def own_tree(python: str, libraries: str) -> Tree:
    return recipe.own_tree(python, libraries, starts())


def libraries_tree(python: str, architecture: str, libraries: str, cache: Path) -> Tree:
    tree = Tree()
    for requirements in (recipe.REQUIREMENTS, installer.REQUIREMENTS, REQUIREMENTS):
        tree.update(recipe.wheels_tree(python, architecture, libraries, cache, requirements))
    tree.keep(lambda path: not _UNUSED.match(path))
    return tree


def _base(python: str, cache: Path) -> Tree:
    tree = recipe.base_tree(python, cache, _LIBRARIES, _WANTED)
    tree.file("etc/passwd", _PEOPLE)
    tree.file("etc/group", f"root:x:0:\nmachine:x:{USER}:\n")
    # Every file in an image belongs to root, so its own user may only write where all users may.
    tree.directory(HOME, 0o1777)
    tree.directory(CERTIFICATES)
    return tree


def _program(found: Path) -> Tree:
    tree = Tree()
    tree.file(f"usr/local/bin/{PROGRAM}", found.read_bytes(), 0o755)
    return tree
