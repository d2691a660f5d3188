"""The log of a server whose disk is full: it goes on, and says later that something is missing."""

from __future__ import annotations

import io
import logging
import sys

import pytest

from remuda.cli.programs import logs


class Disk(io.StringIO):
    """Full for as long as it is told to be."""

    full = False

    def write(self, text: str) -> int:
        if self.full:
            raise OSError(28, "No space left on device")
        return super().write(text)


def test_lines_that_cant_be_written_are_counted_and_told() -> None:
    disk = Disk()
    handler = logs.Lines(disk)
    handler.setFormatter(logs.TextLines())
    log = logging.Logger("test")
    log.addHandler(handler)
    log.warning("one")
    disk.full = True
    log.warning("two")
    log.warning("three")
    disk.full = False
    log.warning("four")
    log.warning("five")
    said = [line.partition(": ")[2] for line in disk.getvalue().splitlines()]
    assert said == ["one", "the log could not be written: 2 lines before this one are missing, or late", "four", "five"]


def test_what_is_said_on_a_full_disk_does_not_end_the_server(monkeypatch: pytest.MonkeyPatch) -> None:
    disk = Disk()
    disk.full = True
    monkeypatch.setattr(sys, "stdout", disk)
    logs.say("somewhere")
    logs.say("and again")
    assert sys.stdout is not disk
    sys.stdout.close()
