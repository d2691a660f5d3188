"""Defaults, addresses and durations."""

from __future__ import annotations

import os
from pathlib import Path

import click
import pytest

from remuda.cli.options.locations import Listen, data_dir_option, default_data_dir, parse_duration, parse_interval, parse_listen


def test_the_data_directory_is_the_systems_for_root_and_xdgs_for_others() -> None:
    assert default_data_dir({"HOME": "/root"}, 0) == Path("/var/lib/remuda")
    assert default_data_dir({"HOME": "/home/me"}, 1000) == Path("/home/me/.local/share/remuda")
    assert default_data_dir({"HOME": "/home/me", "XDG_DATA_HOME": "/data"}, 1000) == Path("/data/remuda")
    assert default_data_dir({"HOME": "/home/me", "XDG_DATA_HOME": "relative"}, 1000) == Path("/home/me/.local/share/remuda")


def test_whose_a_data_directory_is_that_can_t_be_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    @click.command()
    @data_dir_option
    def command(data_dir: Path) -> None:
        """Nothing."""

    assert command.make_context("x", ["--data-dir", str(tmp_path / "new")]).params["data_dir"] == tmp_path / "new"
    # As root there is none.
    monkeypatch.setattr(os, "access", lambda path, mode: False)
    with pytest.raises(click.BadParameter, match=f"{tmp_path} is for the user .+ only: run this as that user"):
        command.make_context("x", ["--data-dir", str(tmp_path)])


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("0.0.0.0:6443", Listen("0.0.0.0", 6443)),
        (":0", Listen("127.0.0.1", 0)),
        ("example.test", Listen("example.test", 8443)),
        ("[::1]:9", Listen("::1", 9)),
        ("[::1]", Listen("::1", 8443)),
    ],
)
def test_addresses(text: str, found: Listen) -> None:
    assert parse_listen(text) == found


@pytest.mark.parametrize("text", ["::1", "a:b", "a:65536", "[::1]x", "[::1", "a:-1", "a:１"])
def test_addresses_that_are_none(text: str) -> None:
    with pytest.raises(click.BadParameter):
        parse_listen(text)


@pytest.mark.parametrize(("text", "seconds"), [("90", 90), ("90s", 90), ("2m", 120), ("12h", 43200), ("7d", 604800), ("0", 0)])
def test_durations(text: str, seconds: int) -> None:
    assert parse_duration(text) == seconds


@pytest.mark.parametrize("text", ["", "d", "-1d", "1.5h", "7w", "٣d"])
def test_durations_that_are_none(text: str) -> None:
    with pytest.raises(click.BadParameter):
        parse_duration(text)


@pytest.mark.parametrize(("text", "seconds"), [("500ms", 0.5), ("1m30s", 90.0), ("1.5h", 5400.0), ("15", 15.0), ("2d", 172800.0)])
def test_intervals_as_go_writes_them(text: str, seconds: float) -> None:
    assert parse_interval(text) == seconds


@pytest.mark.parametrize("text", ["", "soon", "-1s", "1.s", "s", "1s2", "1m 30s"])
def test_intervals_that_are_none(text: str) -> None:
    with pytest.raises(click.BadParameter, match="is not a duration"):
        parse_interval(text)
