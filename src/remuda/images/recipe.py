"""The cluster agent's image: Debian's Python, the wheels it needs, our own modules; a layer each, so that what changes is small.

Modules that an agent never imports are left out: :func:`needed` reads imports from the sources, at any place in a module, without
running them. The build starts the agent once from the result, so that a gap shows here.
"""

from __future__ import annotations

import ast
import hashlib
import re
import subprocess
import sys
import tempfile
import zipfile
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import remuda

from . import debian
from .layout import Image, alone
from .tree import Tree, layer_of

REPOSITORY = "remuda/cluster-agent"
REQUIREMENTS = Path(__file__).with_name("cluster-agent.txt")
STARTS = ("remuda.__main__", "remuda.cli.programs.cluster_agent", "remuda.cli.programs.kube_api_auth")

_PACKAGES = ("python{v}-minimal", "libpython{v}-minimal", "libpython{v}-stdlib", "libc6", "libgcc-s1")
_LIBRARIES = ("libssl3|libssl3t64", "zlib1g", "libexpat1", "ca-certificates", "base-files")

# Packages of which only some files are needed.
_ONLY = {
    "libc6": r"usr/lib(64)?/(.*/)?(ld-linux[^/]*|lib(c|m|dl|rt|pthread|resolv|util|nss_dns|nss_files)\.so\.\d+)$",
    "libgcc-s1": r"usr/lib/.*/libgcc_s\.so\.1$",
    "libssl3": r"usr/lib/.*/lib(ssl|crypto)\.so\.3$",
    "libssl3t64": r"usr/lib/.*/lib(ssl|crypto)\.so\.3$",
    "base-files": r"(etc/os-release|usr/lib/os-release|etc/debian_version)$",
}
_ALWAYS = re.compile(r"var/lib/dpkg/status\.d/|usr/share/doc/[^/]+/copyright$")
_NEVER = re.compile(
    r"usr/share/(?!ca-certificates/|doc/[^/]+/copyright)|usr/lib/(binfmt\.d|valgrind)/|etc/(python3|binfmt|ca-certificates)|usr/sbin/"
    r"|usr/bin/(?!python3)|(.*/)?__pycache__/|var/lib/(?!dpkg)"
    # Python's own tools, tests and toys.
    r"|usr/lib/python3\.\d+/(config-|idlelib/|lib2to3/|tkinter/|turtledemo/|turtle\.py|pydoc_data/|ensurepip/|venv/|distutils/"
    r"|unittest/|test/|wsgiref/|xmlrpc/|curses/|dbm/|sqlite3/|msilib/|ctypes/|pydoc\.py|doctest\.py|pdb\.py|cgi|this\.py|antigravity)"
    # Modules that need libraries which are not here.
    r"|usr/lib/python3\.\d+/lib-dynload/(_bz2|_lzma|_curses|_dbm|_gdbm|_sqlite3|_ctypes|readline|nis|_crypt|_uuid|_test|_xx|audioop|ossaudiodev)"
)
_NEVER_IN_WHEELS = re.compile(r".*(\.(pyx|pxd|pyi|pxi|c|h|hash)|/py\.typed|/RECORD|/WHEEL|/(tests?|_cparser|\.hash)/.*)$")

# Settings that a process with ctypes makes in the C library itself (remuda.cli.programs.event_loop).
_ALLOCATION = ("MALLOC_MMAP_THRESHOLD_=262144", "MALLOC_TRIM_THRESHOLD_=4194304")

_REMUDA = """#!/usr/bin/python{v} -I
from remuda.cli import main

main()
"""


@dataclass(frozen=True, slots=True)
class Built:
    image: Image
    # For the output of a build: names and sizes of layers.
    summary: tuple[tuple[str, int, int], ...]


@dataclass(frozen=True, slots=True)
class ImageCheck:
    """Our commands that must start in an image, foreign modules that must be found, and lines that must run."""

    programs: tuple[str, ...]
    modules: tuple[str, ...]
    script: str = ""


def build(cache: Path, epoch: int = 0, told: Callable[[str], None] = lambda _: None) -> Built:
    """The image, for the architecture of this machine's apt and with its Python."""
    python, architecture = debian.python_version(), debian.architecture()
    told("Debian's packages")
    base = base_tree(python, cache)
    told("wheels")
    libraries = f"usr/local/lib/python{python}/dist-packages"
    others = wheels_tree(python, architecture, libraries, cache)
    own = own_tree(python, libraries)
    told("bytecode")
    check = ImageCheck(programs=("cluster-agent", "kube-api-auth"), modules=("uvloop", "ssl", "encodings.idna"))
    compile_all(python, {f"usr/lib/python{python}": base, libraries: others}, own, f"{libraries}/remuda", check)
    told("layers")
    parts = ((base, f"Debian's Python {python}"), (others, "libraries"), (own, f"remuda {remuda.__version__}"))
    settings = {
        "Entrypoint": ["/usr/local/bin/remuda", "cluster-agent"],
        "Env": ["PATH=/usr/local/bin:/usr/bin", "HOME=/tmp", *_ALLOCATION],
        "WorkingDir": "/tmp",
    }
    return assembled(REPOSITORY, architecture, parts, settings, epoch)


def assembled(
    repository: str, architecture: str, parts: Sequence[tuple[Tree, str]], settings: dict[str, Any], epoch: int
) -> Built:
    """An image with a layer for each of the parts, which are trees and their descriptions."""
    layers = tuple(layer_of(tree, about, epoch) for tree, about in parts)
    annotations = {"org.opencontainers.image.title": repository, "org.opencontainers.image.version": remuda.__version__}
    summary = tuple((layer.about, tree.size, len(layer.content)) for (tree, _), layer in zip(parts, layers, strict=True))
    return Built(Image(architecture, layers, settings, annotations, epoch), summary)


def base_tree(python: str, cache: Path, more: Sequence[str] = (), wanted: str = r"\0") -> Tree:
    """Debian's Python, with `more` libraries and those of its files that are `wanted` although an agent does not need them."""
    names = [name.format(v=python) for name in _PACKAGES] + [debian.offered(name) for name in (*_LIBRARIES, *more)]
    also = re.compile(wanted)
    tree = Tree()
    for name, package in zip(names, debian.fetch(names, cache / "debian"), strict=True):
        files = debian.unpack(package)
        only = re.compile(_ONLY.get(name, ""))
        files.keep(lambda path, only=only: _is_kept(path, only, also))  # type: ignore[misc]
        tree.update(files)
    _bundle_certificates(tree)
    debian.merged_links(tree)
    tree.link("usr/bin/python3", f"python{python}")
    tree.file("etc/passwd", "root:x:0:0:root:/root:/sbin/nologin\nnobody:x:65534:65534:nobody:/nonexistent:/sbin/nologin\n")
    tree.file("etc/group", "root:x:0:\nnogroup:x:65534:\n")
    tree.directory("tmp", 0o1777)
    return tree


def _is_kept(path: str, only: re.Pattern[str], also: re.Pattern[str]) -> bool:
    if _ALWAYS.match(path) or also.match(path):
        return True
    return bool(only.match(path)) and not _NEVER.match(path)


def wheels_tree(python: str, architecture: str, libraries: str, cache: Path, requirements: Path = REQUIREMENTS) -> Tree:
    tree = Tree()
    for wheel in fetch(requirements, python, architecture, cache / "wheels"):
        tree.update(unpack(wheel, libraries))
    tree.keep(lambda path: not _NEVER_IN_WHEELS.match(path))
    return tree


def own_tree(python: str, libraries: str, starts: Sequence[str] = STARTS) -> Tree:
    tree = Tree()
    source = Path(remuda.__file__).parents[1]
    for path in needed(source, starts).values():
        tree.file(f"{libraries}/{path.relative_to(source).as_posix()}", path.read_bytes())
    tree.file("usr/local/bin/remuda", _REMUDA.format(v=python), 0o755)
    return tree


def _bundle_certificates(tree: Tree) -> None:
    """Do the package script's work: all authorities in one file, where OpenSSL looks for them."""
    shared = "usr/share/ca-certificates/"
    paths = [path for path in tree if path.startswith(shared)]
    bundle = b"".join((tree[path].content or b"").rstrip() + b"\n" for path in paths)
    tree.keep(lambda path: not path.startswith(shared))
    tree.file("etc/ssl/certs/ca-certificates.crt", bundle)
    tree.link("usr/lib/ssl/certs", "/etc/ssl/certs")
    tree.link("usr/lib/ssl/cert.pem", "/etc/ssl/certs/ca-certificates.crt")


def compile_all(python: str, trees: dict[str, Tree], own: Tree, own_directory: str, check: ImageCheck) -> None:
    """Add bytecode to every tree, and try the image: raises InsideError."""
    with tempfile.TemporaryDirectory(prefix="remuda-image-") as directory:
        root = Path(directory)
        for tree in (*trees.values(), own):
            tree.unpack(root)
        unpacked = Unpacked(root, python)
        for where, tree in trees.items():
            _add_bytecode(tree, unpacked.compile([where]), without=own_directory)
        _add_bytecode(own, unpacked.compile([own_directory]))
        # It starts, and finds everything that it imports later.
        for program in check.programs:
            unpacked.python("-m", "remuda", program, "--help")
        modules = sorted(path.removeprefix(f"{own_directory}/") for path in own if path.endswith(".py") and own_directory in path)
        names = [f"remuda/{path}".removesuffix(".py").removesuffix("/__init__").replace("/", ".") for path in modules]
        wanted = [name for name in names if not name.endswith("__main__")] + [*check.modules]
        unpacked.python("-c", f"import importlib\nfor name in {wanted!r}: importlib.import_module(name)\n{check.script}")


def _add_bytecode(tree: Tree, bytecode: dict[str, bytes], without: str = "\0") -> None:
    for path, content in bytecode.items():
        if not path.startswith(without):
            tree.file(path, content)


# --- unpacked -------------------------------------------------------------------------------------------------------------
#
# Running a program of an image before it is built: unpacked in a directory, through its own loader, without root or container.
#
# Used to compile the image's Python with the image's Python, so that a pod does not do it at each start, and to check that the
# image can start at all.


class InsideError(Exception):
    """A program of the image has failed."""


class Unpacked:
    """A whole image in a directory."""

    def __init__(self, root: Path, python: str) -> None:
        self.root = root
        self._python = root / "usr" / "bin" / f"python{python}"
        self._loader = next(iter(sorted(root.glob("usr/lib*/**/ld-linux-*.so.*"))), None)

    def python(self, *arguments: str) -> bytes:
        """Run Python in the image; its stdout. Raises InsideError with its stderr."""
        if self._loader is None:
            raise InsideError("the image has no loader for programs")
        libraries = ":".join(str(path) for path in sorted(self.root.glob("usr/lib/*-linux-gnu*")))
        command = [str(self._loader), "--library-path", libraries, str(self._python), "-P", "-s", *arguments]
        environment = {"PYTHONHASHSEED": "0", "PYTHONDONTWRITEBYTECODE": "1", "LC_ALL": "C.UTF-8", "PATH": "/usr/bin"}
        done = subprocess.run(command, capture_output=True, env=environment, cwd=self.root, check=False)
        if done.returncode != 0:
            last = done.stderr.decode(errors="replace").strip().splitlines()[-1:] or ["it gave no output"]
            raise InsideError(f"python {' '.join(arguments[:3])} failed in the image: {last[0]}")
        return done.stdout

    def compile(self, directories: list[str]) -> dict[str, bytes]:
        """Bytecode of every module below the directories, by its path; it contains no path of this machine and no time."""
        root = str(self.root)
        where = [f"{root}/{directory}" for directory in directories]
        mode = ["--invalidation-mode", "unchecked-hash"]
        self.python("-m", "compileall", "-q", "-s", root, "-p", "/", *mode, *where)
        found = {}
        for directory in directories:
            for path in sorted((self.root / directory).glob("**/__pycache__/*.pyc")):
                found[path.relative_to(self.root).as_posix()] = path.read_bytes()
        return found


def needed(source: Path, starts: Iterable[str]) -> dict[str, Path]:
    """Files by module, of packages that are directories of `source`."""
    found: dict[str, Path] = {}
    waiting = list(starts)
    while waiting:
        module = waiting.pop()
        path = _file(source, module)
        if module in found or path is None:
            continue
        found[module] = path
        parent = module.rpartition(".")[0]
        if parent:
            waiting.append(parent)
        waiting.extend(_imported(module, path))
    return found


def _file(source: Path, module: str) -> Path | None:
    base = source.joinpath(*module.split("."))
    return next((path for path in (base / "__init__.py", base.with_suffix(".py")) if path.is_file()), None)


def _imported(module: str, path: Path) -> Iterator[str]:
    package = module.split(".") if path.name == "__init__.py" else module.split(".")[:-1]
    for statement in _statements(ast.parse(path.read_bytes())):
        if isinstance(statement, ast.Import):
            yield from (name.name for name in statement.names)
        elif isinstance(statement, ast.ImportFrom):
            base = package[: len(package) - statement.level + 1] if statement.level else []
            origin = ".".join([*base, *(statement.module or "").split(".")]).strip(".")
            yield origin
            # These may be names of modules or not: names without a file are dropped later.
            yield from (f"{origin}.{name.name}" for name in statement.names)


def _statements(node: ast.AST) -> Iterator[ast.AST]:
    for child in ast.iter_child_nodes(node):
        if isinstance(child, ast.If) and "TYPE_CHECKING" in ast.dump(child.test):
            for other in child.orelse:
                yield other
                yield from _statements(other)
            continue
        yield child
        yield from _statements(child)


# --- files from wheels --------------------------------------------------------------------------------------------------
#
# Only wheels with known hashes, downloaded by pip, unpacked without it. A wheel is an archive whose paths are those of imports.
# Wheels that need more (scripts, data) are refused: we use none of these.

_MACHINES = {"amd64": "x86_64", "arm64": "aarch64"}
_GLIBC = ("manylinux_2_28", "manylinux_2_17", "manylinux2014", "manylinux_2_5")


# Command-line programs of other packages.
_COMMANDS = re.compile(r"jmespath-[^/]+\.data/scripts/")


class WheelError(Exception):
    """Wheels that can't be downloaded, or can't be used."""


def wanted(requirements: Path) -> dict[str, frozenset[str]]:
    """Hashes by `name==version`."""
    text = requirements.read_text().replace("\\\n", " ")
    found = {}
    for line in text.splitlines():
        name, *rest = line.split() or [""]
        if name and not name.startswith("#"):
            found[name] = frozenset(part.removeprefix("--hash=sha256:") for part in rest)
    return found


def fetch(requirements: Path, python: str, architecture: str, cache: Path) -> list[Path]:
    """The wheel of each requirement, for that Python and architecture."""
    machine = _MACHINES.get(architecture)
    if machine is None:
        raise WheelError(f"no wheels are known for {architecture}")
    directory = cache / f"python{python}-{architecture}"
    needed = wanted(requirements)
    with alone(directory):
        found = _present(directory, needed)
        if len(found) < len(needed):
            _download(requirements, python, machine, directory)
            found = _present(directory, needed)
    missing = sorted(set(needed) - set(found))
    if missing:
        raise WheelError(f"no wheel with a known hash for {', '.join(missing)}")
    return [found[name] for name in sorted(found)]


def unpack(wheel: Path, into: str) -> Tree:
    tree = Tree()
    with zipfile.ZipFile(wheel) as archive:
        for entry in archive.infolist():
            if entry.is_dir() or _COMMANDS.match(entry.filename):
                continue
            if re.match(r"[^/]+\.data/", entry.filename):
                raise WheelError(f"{wheel.name} has {entry.filename}, which needs more than unpacking")
            tree.file(f"{into}/{entry.filename}", archive.read(entry))
    return tree


def _present(directory: Path, needed: dict[str, frozenset[str]]) -> dict[str, Path]:
    by_hash = {each: name for name, hashes in needed.items() for each in hashes}
    found = {}
    for path in sorted(directory.glob("*.whl")):
        name = by_hash.get(hashlib.sha256(path.read_bytes()).hexdigest())
        if name is not None:
            found[name] = path
    return found


def _download(requirements: Path, python: str, machine: str, directory: Path) -> None:
    tag = f"cp{python.replace('.', '')}"
    command = [sys.executable, "-m", "pip", "download", "--quiet", "--disable-pip-version-check", "--require-hashes"]
    command += ["--no-deps", "--only-binary=:all:", "--implementation", "cp", "--python-version", python]
    for abi in (tag, "abi3", "none"):
        command += ["--abi", abi]
    for platform in (*(f"{glibc}_{machine}" for glibc in _GLIBC), "any"):
        command += ["--platform", platform]
    command += ["--dest", str(directory), "--requirement", str(requirements)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        last = done.stderr.strip().splitlines()[-1:] or ["it gave no output"]
        raise WheelError(f"pip could not download what {requirements.name} lists: {last[0]}")
