"""What the agent says on standard error."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from remuda.agent import log


@pytest.fixture(autouse=True)
def level() -> Iterator[None]:
    yield
    log.start("warning")


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("trace", "DEBUG a\nINFO b\nWARNING c\nERROR d\n"),
        ("info", "INFO b\nWARNING c\nERROR d\n"),
        ("INFO", "INFO b\nWARNING c\nERROR d\n"),
        ("warn", "WARNING c\nERROR d\n"),
        ("error", "ERROR d\n"),
        ("fatal", ""),
        ("nonsense", "INFO b\nWARNING c\nERROR d\n"),
    ],
)
def test_levels_are_those_of_the_original(capfd: pytest.CaptureFixture[str], name: str, said: str) -> None:
    log.start(name)
    for voice, text in ((log.debug, "a"), (log.info, "b"), (log.warning, "c"), (log.error, "d")):
        voice(text)
    assert capfd.readouterr().err == said


def test_an_exception_says_where_it_came_from(capfd: pytest.CaptureFixture[str]) -> None:
    try:
        int("x")
    except ValueError:
        log.exception("trouble")
    first, second, *_, last = capfd.readouterr().err.splitlines()
    assert (first, second) == ("ERROR trouble", "Traceback (most recent call last):")
    assert last.startswith("ValueError: ")
