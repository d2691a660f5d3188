"""The content of a bundle, in this order, and the parts that failed.

Whatever fails is noted and the rest goes on: a bundle is made when something is broken.
"""

from __future__ import annotations

import io
import os
import tarfile
import tempfile
from collections.abc import AsyncIterator, Callable, Iterable, Iterator
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from pathlib import Path
from typing import IO, Any

from remuda.client.https import HttpsClient
from remuda.kube.clock import Clock, deadline, rfc3339
from remuda.kube.encoding import jsonio
from remuda.kube.errors import ApiError

from . import machine, objects
from .scrubbing import Scrubber

# --- archive --------------------------------------------------------------------------------------------------------------
#
# The archive: parts of bounded size, one after the other, in a file that only its owner can read.
#
# A part is written to a nameless file first, since an archive wants to know its size, and nothing of it is ever whole in
# memory.

CUT = "… the rest is left out: it would be too long\n"


class Part:
    def __init__(self, stream: IO[bytes], most: int) -> None:
        self._stream = stream
        self._left = most
        self.begun = False

    def line(self, text: str) -> bool:
        """True if it had room; after the first part without room no other is added."""
        content = f"{text}\n".encode(errors="replace")
        if self._left <= 0:
            return False
        self.begun = True
        if len(content) > self._left:
            self._stream.write(CUT.encode())
            self._left = 0
            return False
        self._stream.write(content)
        self._left -= len(content)
        return True


class Archive:
    """`most` is how many bytes all parts may have together, before they are compressed; `now` the time of them all."""

    def __init__(self, tar: tarfile.TarFile, root: str, most: int, now: float) -> None:
        self._tar = tar
        self._root = root
        self._left = most
        self._now = now
        self.written: dict[str, int] = {}

    @contextmanager
    def part(self, name: str, most: int) -> Iterator[Part]:
        """A part that is filled line by line. An empty part is left out; a part that fails half way keeps its lines."""
        with tempfile.TemporaryFile() as stream:
            made = Part(stream, min(most, self._left))
            try:
                yield made
            finally:
                if made.begun:
                    self._add(name, stream)

    def lines(self, name: str, lines: Iterable[str], most: int) -> bool:
        """A part of these lines; whether all of them had room."""
        with self.part(name, most) as part:
            return all(part.line(line) for line in lines)

    def document(self, name: str, value: Any) -> None:
        """A part that is small by its nature."""
        content = io.BytesIO(jsonio.dumps(value) + b"\n")
        content.seek(0, os.SEEK_END)
        self._add(name, content)

    def _add(self, name: str, stream: IO[bytes]) -> None:
        size = stream.tell()
        stream.seek(0)
        member = tarfile.TarInfo(f"{self._root}/{name}")
        member.size, member.mode, member.mtime = size, 0o600, int(self._now)
        self._tar.addfile(member, stream)
        self.written[name] = size
        self._left = max(self._left - size, 0)


@contextmanager
def opened(path: Path, most: int, now: float) -> Iterator[Archive]:
    """Raises FileExistsError. What is not finished does not stay."""
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    try:
        with os.fdopen(descriptor, "wb") as stream, tarfile.open(fileobj=stream, mode="w:gz") as tar:
            yield Archive(tar, path.name.removesuffix(".gz").removesuffix(".tar").removesuffix(".tgz"), most, now)
    except BaseException:
        path.unlink(missing_ok=True)
        raise


# --- collector ------------------------------------------------------------------------------------------------------------

Obj = dict[str, Any]

_MIB = 1 << 20
_MOST_LOG, _MOST_KIND, _MOST_EVENTS, _MOST_METRICS = 48 * _MIB, 16 * _MIB, 16 * _MIB, 16 * _MIB
_MOST_LINES, _MOST_VIEWS = 200_000, 20_000
_PART_SECONDS = 60.0
# Files of the data directory that hold nothing but secrets, or some: anywhere in it, and right in it.
_SECRET_FILES, _SECRET_HERE = ("*.key", "*token*"), ("*password*", "*kubeconfig*", "encryption*.yaml")


@dataclass(slots=True)
class Collector:
    """`say` gets a line for each part that is begun."""

    archive: Archive
    scrubber: Scrubber
    clock: Clock
    say: Callable[[str], None]
    missing: list[str] = field(default_factory=list)

    def lacks(self, what: str, why: object) -> None:
        self.missing.append(self.scrubber.text(f"{what}: {why}"))

    # --- of the machine -------------------------------------------------------------------------------------------------------

    def learn_files(self, data_dir: Path) -> None:
        """Keys and passwords that are on disk, so that they are known also when no server can be asked."""
        for path in machine.walked(data_dir):
            patterns = (*_SECRET_FILES, *_SECRET_HERE) if path.parent == data_dir else _SECRET_FILES
            if not any(fnmatchcase(path.name, pattern) for pattern in patterns):
                continue
            try:
                if path.is_file() and path.stat().st_size <= _MIB:
                    self.scrubber.learn(path.read_text(errors="replace"))
            except OSError:
                continue

    def of_machine(self, data_dir: Path, unit: str) -> None:
        self.say("versions, options, sizes, certificates")
        self.archive.document("versions.json", machine.versions())
        programs = machine.running()
        self.archive.document("programs.json", [self._program(each) for each in programs])
        if not programs:
            self.lacks("programs.json", "no program of Remuda runs on this machine")
        told = machine.unit(unit)
        if told:
            self.archive.lines("unit.txt", self.scrubber.lines(told.splitlines()), _MIB)
        else:
            self.lacks("unit.txt", f"systemd has no service {unit}")
        try:
            self.archive.document("store.json", self.scrubber.value(machine.files(data_dir)))
            self.archive.document("certificates.json", self.scrubber.value(machine.certificates(data_dir)))
        except OSError as error:
            self.lacks("store.json, certificates.json", f"{data_dir} can't be read: {error.strerror or error}")

    def _program(self, told: Obj) -> Obj:
        # One line, so that an option and what it says are seen together.
        return {**told, "arguments": self.scrubber.text(" ".join(told["arguments"]))}

    def logs(self, unit: str, hours: int, files: tuple[Path, ...]) -> None:
        self.say("logs")
        if not files:
            try:
                lines = self.scrubber.lines(machine.journal(unit, hours, _MOST_LINES))
                self.archive.lines("logs/journal.log", lines, _MOST_LOG)
                if "logs/journal.log" not in self.archive.written:
                    self.lacks("logs/journal.log", f"the journal has nothing of {unit} within {hours} hours; name a --log-file")
            except OSError:
                self.lacks("logs/journal.log", "there is no journalctl; name a --log-file")
        for number, path in enumerate(files):
            name = f"logs/{number}-{path.name}"
            try:
                self.archive.lines(name, self.scrubber.lines(machine.tail(path, _MOST_LOG - _MIB)), _MOST_LOG)
            except OSError as error:
                self.lacks(name, f"{path}: {error.strerror or error}")

    # --- of the server ----------------------------------------------------------------------------------------------------------

    async def learn_secrets(self, client: HttpsClient) -> bool:
        """True if a server answers. To be called before any text is collected."""
        self.say(f"asking {client.target.server}")
        try:
            async with deadline(self.clock, _PART_SECONDS):
                self.archive.document("server.json", await client.raw("GET", "/version"))
        except (ApiError, OSError, TimeoutError) as error:
            self.lacks("everything of the server", f"{client.target.server} does not answer: {error or type(error).__name__}")
            return False
        async with self._part("the values of Secrets, so that secrets are recognised by their form only"):
            await objects.learn_secrets(client, self.scrubber)
        if self.scrubber.overflowed:
            self.lacks(
                "the search for all values of Secrets",
                "too many contain blanks or punctuation: check the file before you share it",
            )
        return True

    async def of_server(self, client: HttpsClient) -> None:
        self.say("objects")
        found: list[objects.Kind] = []
        async with self._part("objects.json"):
            found = await objects.kinds(client)
            counts: Obj = {}
            for kind in found:
                try:
                    counts[kind.name] = await objects.count(client, kind)
                except ApiError as error:
                    counts[kind.name] = self.scrubber.text(error.message)
            self.archive.document("objects.json", counts)
        for kind in found:
            if kind.is_told:
                await self._told(client, kind)
        await self._events(client)
        async with self._part("settings.json"):
            told = [objects.setting_view(each, self.scrubber) async for each in objects.pages(client, objects.SETTINGS)]
            self.archive.document("settings.json", told)
        self.say("metrics")
        async with self._part("metrics.txt"):
            content = await client.content("/metrics")
            self.archive.lines("metrics.txt", self.scrubber.lines(content.decode(errors="replace").splitlines()), _MOST_METRICS)

    async def _told(self, client: HttpsClient, kind: objects.Kind) -> None:
        name = f"conditions/{kind.name}.jsonl"
        async with self._part(name):
            with self.archive.part(name, _MOST_KIND) as part:
                async for obj in objects.pages(client, kind.resource):
                    if not part.line(_line(objects.condition_view(obj, self.scrubber))):
                        self.lacks(name, "not all of them fitted")
                        return

    async def _events(self, client: HttpsClient) -> None:
        self.say("events")
        async with self._part("events.jsonl"):
            views: list[Obj] = []
            async for event in objects.pages(client, objects.EVENTS):
                views.append(objects.event_view(event, self.scrubber))
                if len(views) >= 2 * _MOST_VIEWS:
                    views = _newest(views)
            if not self.archive.lines("events.jsonl", map(_line, _newest(views)), _MOST_EVENTS):
                self.lacks("events.jsonl", "only the newest fitted")

    @asynccontextmanager
    async def _part(self, what: str) -> AsyncIterator[None]:
        try:
            async with deadline(self.clock, _PART_SECONDS):
                yield
        except (ApiError, OSError, TimeoutError) as error:
            told = error.message if isinstance(error, ApiError) else str(error)
            self.lacks(what, told or f"no answer within {_PART_SECONDS:.0f} seconds")

    # --- at last ----------------------------------------------------------------------------------------------------------------

    def finish(self) -> None:
        made = {"made": rfc3339(self.clock.time()), "parts": dict(self.archive.written), "missing": self.missing}
        self.archive.document("bundle.json", made)


def _line(view: Obj) -> str:
    return jsonio.dumps(view).decode()


def _newest(events: list[Obj]) -> list[Obj]:
    return sorted(events, key=lambda view: str(view.get("lastTimestamp") or ""), reverse=True)[:_MOST_VIEWS]
