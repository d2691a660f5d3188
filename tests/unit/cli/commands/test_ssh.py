"""A shell on a machine that is a directory of this one."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click
import pytest

from remuda.cli.commands.machine import _within
from remuda.cli.commands.machine import ssh as command
from remuda.cli.exit_codes import Code, Failure
from remuda.hosts.hosts import Hosts

MACHINE: dict[str, Any] = {
    "metadata": {"name": "demo-m"},
    "spec": {"infrastructureRef": {"apiGroup": "rke-machine.cattle.io", "kind": "LocalMachine", "name": "demo-1"}},
    "status": {},
}


def test_it_runs_in_the_directory_of_the_host(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    hosts = Hosts(tmp_path / "hosts")
    host = hosts.create("demo-1")
    try:
        assert _within(MACHINE, tmp_path, ("sh", "-c", "pwd; hostname; exit 4")) == 4
        assert capfd.readouterr().out.splitlines() == [str(host.place.root), "demo-1"]
        assert _within(MACHINE, tmp_path, ("printf 'b\na\n' | sort; exit 3",)) == 3
        assert capfd.readouterr().out == "a\nb\n"
        assert _within(MACHINE, tmp_path, ("echo", "a | b", "$HOME")) == 0
        assert capfd.readouterr().out == "a | b $HOME\n"
        with pytest.raises(Failure, match="no-such-program"):
            _within(MACHINE, tmp_path, ("no-such-program", "--at-all"))
        hosts.stop("demo-1", 5)
        with pytest.raises(Failure, match="is not running"):
            _within(MACHINE, tmp_path, ("true",))
    finally:
        hosts.remove("demo-1")
    with pytest.raises(Failure, match=r"as the server's user, so none is given from elsewhere.*remuda ssh demo-m") as refused:
        _within(MACHINE, tmp_path, ("true",))
    assert refused.value.code is Code.NOT_ALLOWED


@pytest.mark.parametrize(
    ("said", "words", "namespace"),
    [
        (["m1"], (), "fleet-default"),
        (["m1", "-n", "ws", "--", "tail", "-n", "5", "--", "x"], ("tail", "-n", "5", "--", "x"), "ws"),
        (["-n", "ws", "m1", "uptime"], ("uptime",), "ws"),
    ],
)
def test_options_are_ours_up_to_the_dashes(said: list[str], words: tuple[str, ...], namespace: str) -> None:
    found = command.make_context("ssh", list(said)).params
    assert (found["name"], found["words"], found["namespace"]) == ("m1", words, namespace)


def test_an_option_that_we_do_not_have_is_not_taken_for_a_command() -> None:
    with pytest.raises(click.UsageError, match="-l"):
        command.make_context("ssh", ["m1", "ls", "-l"])
