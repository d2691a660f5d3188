"""Record which arguments the commands of K3s and RKE2 accept (`arguments.json`), from their sources.

Run as `python -m tests.real.describe_arguments v1.34.11+k3s1=K3S v1.34.11+rke2r1=RKE2`, with folders of unpacked sources, when
`releases.json` gets versions that the record does not surround. A version replaces its own entry, the others stay. RKE2 takes its
flags from K3s' commands, so it needs the sources of a K3s of the same minor version in the same call. No program of the tests
downloads these sources: as Go modules their versions are commits, and not every module proxy serves them.

K3s' agent stops at an argument that it does not know ("flag provided but not defined"); servers and RKE2's agent skip it.
"""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path

RECORD = Path(__file__).resolve().parents[1] / "unit/provisioning/releases/arguments.json"
COMMANDS = ("server", "agent")

Commands = dict[str, list[str]]
Record = dict[str, dict[str, Commands]]

_FLAG = re.compile(r"cli\.\w+Flag\s*\{")
_FLAGS = re.compile(r"(\w+)\s*=\s*\[\]cli\.Flag\s*\{")
_VARIABLE = re.compile(r"(\w+)\s*=\s*&?cli\.\w+Flag\s*\{")
_CONSTANT = re.compile(r'(\w+)\s*=\s*"([^"]*)"')
_PART = r'(?:"[^"]*"|[\w.]+)'
_NAME = re.compile(rf"\bName:\s*({_PART}(?:\s*\+\s*{_PART})*)")
_DROPPED = ("drop", "dropFlag")


class Sources:
    """The flags that the Go files of one distribution declare. `constants` are of other packages, such as `images.Pause`."""

    def __init__(self, files: Mapping[str, str], constants: Mapping[str, str]) -> None:
        self._text = "\n".join(_without_comments(text) for _, text in sorted(files.items()))
        self._constants = constants

    @classmethod
    def at(cls, directory: Path) -> Sources:
        files = {path.name: path.read_text() for path in (directory / "pkg/cli/cmds").glob("*.go") if not _is_elsewhere(path)}
        packages = [path for name in ("images", "podtemplate") for path in (directory / "pkg" / name).glob("*.go")]
        constants = {
            f"{path.parent.name}.{name}": value
            for path in packages
            for name, value in _CONSTANT.findall(_without_comments(path.read_text()))
        }
        return cls(files, constants)

    def flags(self, command: str) -> set[str]:
        """The flags of a command that is written out here."""
        body = self._function(command)
        found = re.search(r"Flags:\s*", body)
        if found is None:
            raise ValueError(f"the command {command} names no flags")
        return self._list(body[found.end() :])

    def flags_upon(self, base: Sources, command: str) -> set[str]:
        """The flags of a command that takes over those of `base`, drops some, and adds its own."""
        called = re.search(rf"mustCmdFromK3S\(cmds\.New{command.title()}Command\(\w*\),\s*[\w.\[\]*]+\s*\{{", self._text)
        if called is None:
            raise ValueError(f"the command {command} is not made of another one")
        options = dict(re.findall(r'"([\w-]+)":\s*(\w+|\{)', _body(self._text, called.end() - 1)))
        inherited = base.flags(command)
        if unsaid := inherited - set(options) - {alias for name in options for alias in base.aliases(name)}:
            raise ValueError(f"nothing is said of {', '.join(sorted(unsaid))}: these are not the sources of one minor version")
        dropped = {each for name, option in options.items() if option in _DROPPED for each in base.aliases(name)}
        added = re.findall(r"append\(cmd\.Flags,\s*(\w+)\.\.\.\)", self._function(command))
        return (inherited - dropped).union(*(self._list(name) for name in added))

    def aliases(self, name: str) -> set[str]:
        """All names of the flag with that name."""
        bodies = (_body(self._text, found.end() - 1) for found in _FLAG.finditer(self._text))
        return next((names for names in map(self._names, bodies) if name in names), {name})

    def _function(self, command: str) -> str:
        found = re.search(rf"func New{command.title()}Command\([^\n]*\{{\n", self._text)
        if found is None:
            raise ValueError(f"there is no command {command}")
        return _body(self._text, found.end() - 2)

    def _list(self, expression: str) -> set[str]:
        """The flags of an expression: a literal, the name of one, or several appended."""
        if expression.startswith("append("):
            inner = _body(expression, len("append"))
            return set().union(*(self._list(each.strip().removesuffix("...")) for each in _items(inner)))
        if expression.startswith("[]cli.Flag"):
            return set().union(*(self._flag(each) for each in _items(_body(expression, expression.index("{")))))
        name = re.match(r"\w+", expression)
        found = next((each for each in _FLAGS.finditer(self._text) if name and each[1] == name[0]), None)
        if found is None:
            raise ValueError(f"no list of flags is called {expression[:40]}")
        return set().union(*(self._flag(each) for each in _items(_body(self._text, found.end() - 1))))

    def _flag(self, item: str) -> set[str]:
        literal = _FLAG.match(item.lstrip("& \t\n"))
        if literal is not None:
            return self._names(_body(item, item.index("{")))
        name = item.strip(" \t\n&").rpartition(".")[2]
        found = next((each for each in _VARIABLE.finditer(self._text) if each[1] == name), None)
        if found is None:
            raise ValueError(f"no flag is called {name}")
        return self._names(_body(self._text, found.end() - 1))

    def _names(self, body: str) -> set[str]:
        said = _NAME.search(body)
        if said is None:
            raise ValueError(f"a flag has no name: {body[:80]}")
        name = "".join(self._value(part.strip()) for part in said[1].split("+"))
        aliases = re.search(r"Aliases:\s*\[\]string\{([^}]*)\}", body)
        more = re.findall(r'"([^"]+)"', aliases[1]) if aliases else []
        return {each.strip() for each in (*name.split(","), *more) if len(each.strip()) > 1 or each == "v"}

    def _value(self, part: str) -> str:
        return part[1:-1] if part.startswith('"') else self._constants[part]


def described(sources: Mapping[str, Path]) -> Record:
    """By distribution and version: the arguments of each command."""
    found: Record = {}
    read = {version: Sources.at(path) for version, path in sources.items()}
    for version, each in read.items():
        runtime = "rke2" if "rke2" in version else "k3s"
        base = None if runtime == "k3s" else read[next(k for k in read if "k3s" in k and _minor(k) == _minor(version))]
        commands = {name: sorted(each.flags(name) if base is None else each.flags_upon(base, name)) for name in COMMANDS}
        found.setdefault(runtime, {})[version] = commands
    return found


def text(record: Record) -> str:
    """One argument a line, in order."""
    return json.dumps(record, indent=1, sort_keys=True) + "\n"


def _minor(version: str) -> str:
    return version.rpartition(".")[0].split("+")[0]


def _is_elsewhere(path: Path) -> bool:
    return path.name.endswith(("_test.go", "_windows.go"))


def _without_comments(text: str) -> str:
    return re.sub(r"(?m)(?<![:\"'/\w])//.*$|/\*.*?\*/", "", text)


def _body(text: str, opening: int) -> str:
    """What is between the bracket at that place and the one that closes it. Brackets in texts do not count."""
    depth, quoted = 0, ""
    for index in range(opening, len(text)):
        letter = text[index]
        if quoted:
            quoted = "" if letter == quoted and text[index - 1] != "\\" else quoted
        elif letter in '"`':
            quoted = letter
        elif letter in "{([":
            depth += 1
        elif letter in "})]":
            depth -= 1
            if not depth:
                return text[opening + 1 : index]
    raise ValueError("a bracket is not closed")


def _items(body: str) -> Iterator[str]:
    """The parts of a list, by the commas that are in no inner bracket or text."""
    depth, quoted, start = 0, "", 0
    for index, letter in enumerate(f"{body},"):
        if quoted:
            quoted = "" if letter == quoted and body[index - 1] != "\\" else quoted
        elif letter in '"`':
            quoted = letter
        elif letter in "{([":
            depth += 1
        elif letter in "})]":
            depth -= 1
        elif letter == "," and not depth:
            if part := body[start:index].strip():
                yield part
            start = index + 1


if __name__ == "__main__":
    kept: Record = json.loads(RECORD.read_text()) if RECORD.exists() else {}
    for runtime, versions in described({v: Path(p) for v, _, p in (each.partition("=") for each in sys.argv[1:])}).items():
        kept.setdefault(runtime, {}).update(versions)
    RECORD.write_text(text(kept))
