"""How a terminal gets to a machine: what `ssh` is told, and what a server says of how it ended."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from remuda.cli.remote.shell import exit_code, script_of, ssh_arguments, write_keys
from remuda.machines.machine_access import MachineAccess

ACCESS = MachineAccess("m", "generic", "root", 2222, "10.0.0.7", "", b"key", b"public", "ssh-ed25519 AAAA")


def test_keys_are_readable_by_this_user_only(tmp_path: Path) -> None:
    (tmp_path / "id_rsa").write_text("old")
    written = write_keys(ACCESS, tmp_path)
    assert [path.name for path in written] == ["id_rsa", "id_rsa.pub", "known_hosts"]
    assert {path.stat().st_mode & 0o777 for path in written} == {0o600}
    assert (tmp_path / "id_rsa").read_bytes() == b"key"
    assert (tmp_path / "known_hosts").read_text() == "[10.0.0.7]:2222 ssh-ed25519 AAAA\n"


def test_a_known_host_is_believed_and_no_other(tmp_path: Path) -> None:
    said = ssh_arguments(ACCESS, tmp_path)
    assert said[-1] == "root@10.0.0.7" and said[said.index("-p") + 1] == "2222"
    assert "StrictHostKeyChecking=yes" in said and f"UserKnownHostsFile={tmp_path}/known_hosts" in said
    new = MachineAccess("m", "generic", "root", 22, "10.0.0.7", "", b"key")
    assert "StrictHostKeyChecking=accept-new" in ssh_arguments(new, tmp_path)


@pytest.mark.parametrize(
    ("words", "script"),
    [
        ((), ""),
        (("uptime",), "uptime"),
        (("ps ax | wc -l",), "ps ax | wc -l"),
        (("echo", "a | b", "$HOME"), "echo 'a | b' '$HOME'"),
    ],
)
def test_one_word_is_a_script_and_several_are_a_program(words: tuple[str, ...], script: str) -> None:
    assert script_of(words) == script


@pytest.mark.parametrize(
    ("status", "code"),
    [
        ({"status": "Success"}, 0),
        ({"status": "Failure", "details": {"causes": [{"reason": "ExitCode", "message": "3"}]}}, 3),
        ({"status": "Failure", "details": {"causes": [{"reason": "ExitCode", "message": "-1"}]}}, 255),
        ({"status": "Failure"}, 1),
    ],
)
def test_how_it_ended_is_how_we_end(status: dict[str, object], code: int) -> None:
    assert exit_code(json.dumps(status).encode()) == code
    assert exit_code(b"no JSON") == 1
