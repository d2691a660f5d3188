"""The image of the server and its parts (`serve`, `controllers`, `gateway`): all of Remuda, for clusters that run it as pods.

`remuda manifests` names it as `--image`. Like :mod:`.machine`, it has the drivers' libraries, since a gateway may run Jobs
itself; like all our images, it has no shell.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import remuda

from . import debian, machine, recipe
from .installer import bundled_python as whole
from .tree import Tree

REPOSITORY = "remuda/server"
USER, DATA = 65532, "var/lib/remuda"
_PEOPLE = f"root:x:0:0:root:/root:/sbin/nologin\nremuda:x:{USER}:{USER}:remuda:/{DATA}:/sbin/nologin\n"
_CHECK = recipe.ImageCheck(
    ("serve", "controllers", "gateway"),
    ("boto3", "asyncssh", "cryptography", "joserfc", "isal", "uvloop", "sqlite3", "ssl", "encodings.idna"),
)


def build(cache: Path, epoch: int = 0, told: Callable[[str], None] = lambda _: None) -> recipe.Built:
    """The image, for the architecture of this machine's apt and with its Python."""
    python, architecture = debian.python_version(), debian.architecture()
    told("Debian's packages")
    base = _base(python, cache)
    told("wheels")
    libraries = f"usr/local/lib/python{python}/dist-packages"
    others = _libraries(python, architecture, libraries, cache)
    own = recipe.own_tree(python, libraries)
    own.update(whole.ourselves(libraries))
    told("bytecode")
    recipe.compile_all(python, {f"usr/lib/python{python}": base, libraries: others}, own, f"{libraries}/remuda", _CHECK)
    told("layers")
    parts = ((base, f"Debian's Python {python}"), (others, "libraries"), (own, f"remuda {remuda.__version__}"))
    return recipe.assembled(REPOSITORY, architecture, parts, settings(), epoch)


def settings() -> dict[str, object]:
    return {
        "Entrypoint": ["/usr/local/bin/remuda"],
        "Cmd": ["serve", "--listen", "0.0.0.0:8443", "--data-dir", f"/{DATA}"],
        "Env": ["PATH=/usr/local/bin:/usr/bin", "HOME=/tmp"],
        "User": f"{USER}:{USER}",
        "WorkingDir": "/tmp",
        "ExposedPorts": {"8443/tcp": {}},
    }


def _libraries(python: str, architecture: str, libraries: str, cache: Path) -> Tree:
    tree = Tree()
    for requirements in (recipe.REQUIREMENTS, whole.REQUIREMENTS, machine.REQUIREMENTS):
        tree.update(recipe.wheels_tree(python, architecture, libraries, cache, requirements))
    # All services of Amazon's SDK except the one that has machines.
    tree.keep(lambda path: not machine.UNUSED_SERVICES.match(path))
    return tree


def _base(python: str, cache: Path) -> Tree:
    tree = recipe.base_tree(python, cache, whole.LIBRARIES, whole.WANTED)
    tree.file("etc/passwd", _PEOPLE)
    tree.file("etc/group", f"root:x:0:\nremuda:x:{USER}:\n")
    # Every file in an image belongs to root, so its own user may only write where all users may.
    tree.directory(DATA, 0o1777)
    return tree
