"""What goes into a bundle, in this order, and what could not be had.

Whatever fails is noted and the rest goes on: a bundle is made when something is broken.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any

from remuda.client.https import HttpsClient
from remuda.kube.clock import Clock, deadline, rfc3339
from remuda.kube.encoding import jsonio
from remuda.kube.errors import ApiError

from . import machine, objects
from .archive import Archive
from .scrubbing import Scrubber

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
        """Whether a server answers at all. Has to be done before any text is taken."""
        self.say(f"asking {client.target.server}")
        try:
            async with deadline(self.clock, _PART_SECONDS):
                self.archive.document("server.json", await client.raw("GET", "/version"))
        except (ApiError, OSError, TimeoutError) as error:
            self.lacks("everything of the server", f"{client.target.server} does not answer: {error or type(error).__name__}")
            return False
        async with self._part("a look at Secrets, so values are only hidden by their form"):
            await objects.learn_secrets(client, self.scrubber)
        if self.scrubber.overflowed:
            self.lacks("a look for all that Secrets hold", "too many have blanks or signs in them: look before you share it")
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
                        self.lacks(name, "not all of them had room")
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
                self.lacks("events.jsonl", "only the newest had room")

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
