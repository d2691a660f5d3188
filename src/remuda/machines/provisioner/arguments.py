"""The command line, which is rancher-machine's (docs/reference/machines.md#the-program, docs/reference/machines.md#arguments):
the same Job spec runs either program. Pure."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from ..errors import DriverError, Reason
from ..options import Flag, FlagKind

_NAME = re.compile(r"[a-zA-Z0-9][a-zA-Z0-9\-.]*")
_TAKES_VALUE = {
    "--secret-name": "secret_name",
    "--secret-namespace": "secret_namespace",
    "--kubeconfig": "kubeconfig",
    "--storage-path": "storage",
    "-s": "storage",
    "--driver-download-url": "driver_url",
    "--driver-hash": "driver_hash",
}
_CREATE = {
    "--driver": "driver",
    "-d": "driver",
    "--custom-install-script": "script",
    "--hostname-override": "hostname",
}
_REMOVE = {"-y": "", "-f": "force", "--force": "force", "--update-config": ""}


@dataclass(frozen=True, slots=True)
class ProvisionRequest:
    """The parsed request. `rest` are the words after `create` that only a driver understands."""

    verb: str
    names: tuple[str, ...] = ()
    secret_name: str = ""
    secret_namespace: str = ""
    kubeconfig: str = ""
    storage: Path | None = None
    driver_url: str = ""
    driver_hash: str = ""
    driver: str = ""
    script: str = ""
    hostname: str = ""
    rest: tuple[str, ...] = ()
    force: bool = False
    debug: bool = False


def parse(words: Sequence[str], environ: dict[str, str] | None = None) -> ProvisionRequest:
    """Raises DriverError(INVALID)."""
    known = environ or {}
    found: dict[str, object] = {
        "secret_name": known.get("K8S_SECRET_NAME", ""),
        "secret_namespace": known.get("K8S_SECRET_NAMESPACE", "") or "default",
        "kubeconfig": known.get("KUBECONFIG", ""),
        "storage": known.get("MACHINE_STORAGE_PATH", ""),
    }
    left = list(words)
    while left and left[0].startswith("-"):
        word = left.pop(0)
        if word in ("--debug", "-D", "--native-ssh"):
            found["debug"] = found.get("debug", False) or word != "--native-ssh"
            continue
        name, value = _valued(word, left)
        if name not in _TAKES_VALUE:
            raise _wrong(f"there is no option {name}")
        found[_TAKES_VALUE[name]] = value
    if not left:
        raise _wrong("nothing is asked for: create, rm or power-on")
    verb = left.pop(0)
    found["storage"] = Path(str(found["storage"])) if found["storage"] else None
    if verb == "create":
        found |= _create(left)
    elif verb == "rm":
        found |= _remove(left)
    elif verb != "power-on" or left:
        raise _wrong(f"{verb} is not known here: create, rm or power-on")
    return ProvisionRequest(verb=verb, **found)  # type: ignore[arg-type]


def driver_arguments(words: Sequence[str], flags: Sequence[Flag]) -> dict[str, object]:
    """The driver's own flags of a command line, by name; raises DriverError(INVALID)."""
    known = {flag.name: flag for flag in flags}
    found: dict[str, object] = {}
    left = list(words)
    while left:
        word = left.pop(0)
        name = word.partition("=")[0].lstrip("-")
        flag = known.get(name)
        if flag is None or not word.startswith("-"):
            raise _wrong(f"there is no option {word.partition('=')[0]}")
        if flag.kind is FlagKind.BOOL:
            found[name] = word.partition("=")[2] if "=" in word else True
            continue
        value = _valued(word, left)[1]
        if flag.kind is FlagKind.STRINGS:
            before = found.get(name, ())
            assert isinstance(before, tuple)
            found[name] = (*before, value)
        else:
            found[name] = value
    return found


def _create(words: list[str]) -> dict[str, object]:
    # The name is the last word; before it, options that are not ours are the driver's, and may take the word after them.
    name = words.pop() if words and not words[-1].startswith("-") else ""
    if not _NAME.fullmatch(name):
        raise _wrong(
            "no name for the machine: letters, digits, dashes and dots" if not name else f"{name} is no name for a machine"
        )
    found: dict[str, object] = {"names": (name,)}
    rest: list[str] = []
    while words:
        word = words.pop(0)
        option = word.partition("=")[0]
        if option in _CREATE:
            found[_CREATE[option]] = _valued(word, words)[1]
        else:
            rest.append(word)
    if not found.get("driver"):
        raise _wrong("no driver is named: --driver NAME")
    return {**found, "rest": tuple(rest)}


def _remove(words: list[str]) -> dict[str, object]:
    found: dict[str, object] = {}
    names = []
    for word in words:
        if word.startswith("-"):
            if word not in _REMOVE:
                raise _wrong(f"there is no option {word}")
            if _REMOVE[word]:
                found[_REMOVE[word]] = True
        elif not _NAME.fullmatch(word):
            raise _wrong(f"{word} is no name for a machine")
        else:
            names.append(word)
    if not names:
        raise _wrong("no machine is named")
    return {**found, "names": tuple(names)}


def _valued(word: str, left: list[str]) -> tuple[str, str]:
    """`--a=b` or `--a b`."""
    name, equals, value = word.partition("=")
    if equals:
        return name, value
    if not left:
        raise _wrong(f"{name} needs a value")
    return name, left.pop(0)


def _wrong(text: str) -> DriverError:
    return DriverError(Reason.INVALID, text)
