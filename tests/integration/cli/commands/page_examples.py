"""The examples of a page, run one after another on a simulated server: each prints what the page shows.

Lines that begin with `$ remuda` are run. `…` stands for any lines; times, sizes and generated names may be others, and a command
that names a snapshot of the page means the one that was made in its place.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from remuda.kube.encoding import yamlio

from .served_world import ServedWorld

Obj = dict[str, Any]

DOCS = Path(__file__).parents[4] / "docs"
_BLOCK = re.compile(r"^```console\n(.*?)^```$", re.MULTILINE | re.DOTALL)
_YAML = re.compile(r"^```yaml\n(.*?)^```$", re.MULTILINE | re.DOTALL)
_SNAPSHOT = re.compile(r"[a-z][a-z0-9.-]*-\d{10}(?:-[0-9a-f]{6})?\b")
_MASKS = (
    (_SNAPSHOT, "SNAPSHOT"),
    (re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ"), "TIME"),
    (re.compile(r"\bcustom-[0-9a-f]{12}\b"), "MACHINE"),
    (re.compile(r"\b[0-9a-f]{64}\b"), "HASH"),
    (re.compile(r"\b(\d+[dhms]){1,3}\b"), "AGE"),
    (re.compile(r"\b\d+(\.\d)?[KMG]i\b"), "SIZE"),
    (re.compile(r"\b\d{2,}\b"), "NUMBER"),
    (re.compile(r"\s+"), " "),
)
_QUESTION = re.compile(r".*Type the name of the cluster .*: (?P<typed>\S+)")


@dataclass(frozen=True)
class Example:
    command: str
    expected: tuple[str, ...]

    @property
    def typed(self) -> str | None:
        """What a person answers to its question."""
        return next((found["typed"] for line in self.expected if (found := _QUESTION.fullmatch(line))), None)


def examples(page: str) -> Iterator[Example]:
    for block in _BLOCK.findall((DOCS / page).read_text()):
        for part in re.split(r"^\$ ", block, flags=re.MULTILINE)[1:]:
            command, *expected = part.rstrip("\n").split("\n")
            if command.startswith("remuda "):
                yield Example(command.removeprefix("remuda "), tuple(line for line in expected if line.strip()))


def masked(line: str) -> str:
    for pattern, word in _MASKS:
        line = pattern.sub(word, line)
    return line.strip()


class Reader:
    """A reader of a page, who types its commands."""

    def __init__(self, world: ServedWorld) -> None:
        self._world = world
        # The snapshots of the page, and those that were made here.
        self._names: dict[str, str] = {}

    async def does(self, example: Example) -> None:
        command = _SNAPSHOT.sub(lambda found: self._names.get(found[0], found[0]), example.command)
        done = await self._world.run(command, typed=example.typed)
        lines = [line for line in (done.err + done.out).splitlines() if line.strip()]
        if example.typed is not None:
            # The terminal echoes what is typed, and a pipe does not.
            lines = [part for line in lines for part in re.split(r"(?<=restore it: )", line) if part.strip()]
            lines = [f"{line}{example.typed}" if line.endswith("restore it: ") else line for line in lines]
        if example.expected:
            self._compare(example, lines)
        else:
            assert done.code == 0, (command, done)

    def _compare(self, example: Example, lines: list[str]) -> None:
        rest, skipping = list(lines), False
        for expected in example.expected:
            if expected == "…":
                skipping = True
                continue
            at = next((at for at, line in enumerate(rest) if masked(line) == masked(expected)), None)
            told = f"{example.command!r} prints no line {expected!r} here, but:\n" + "\n".join(rest)
            assert at is not None and (skipping or at == 0), told
            shown, meant = _SNAPSHOT.findall(rest[at]), _SNAPSHOT.findall(expected)
            self._names.update(zip(meant, shown, strict=True))
            rest, skipping = rest[at + 1 :], False
        assert skipping or not rest, f"{example.command!r} prints more:\n" + "\n".join(rest)


def manifests(page: str) -> Iterator[Obj]:
    """The YAML of a page: objects, and parts of a cluster."""
    for block in _YAML.findall((DOCS / page).read_text()):
        yield yamlio.loads(block)
