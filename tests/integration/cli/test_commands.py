"""The command line: what is said where, and with which exit code."""

from __future__ import annotations

import json
import os
import pty
import socket
import subprocess
from pathlib import Path
from typing import Any

import click
import pytest

from remuda import __version__
from remuda.apiserver.keys.pki import Pki
from remuda.cli import exit_codes
from remuda.cli.command_tree import COMMANDS
from remuda.cli.exit_codes import Code, Failure
from remuda.cli.views.output import NAME, TABLE, WIDE, YAML, Column, Output
from remuda.client.kubeconfig import ConfigError
from remuda.kube.clock import SYSTEM_CLOCK, Entropy
from remuda.kube.encoding import yamlio
from remuda.kube.errors import ApiError

from .running import Shell


def test_help_lists_every_command_with_its_own_summary(shell: Shell) -> None:
    done = shell.run("--help")
    assert done.returncode == 0
    for name, entry in COMMANDS.items():
        assert f"  {name} " in done.stdout
        own = shell.run(name, "--help").stdout
        assert entry.summary in own


@pytest.mark.parametrize(
    "arguments", [["version"], ["--version"], ["--help"], ["version", "-o", "json"], ["serve", "--help"], ["completion", "bash"]]
)
def test_quick_commands_import_no_server_and_no_http_library(shell: Shell, arguments: list[str]) -> None:
    program = (
        "import sys\nfrom remuda.cli.command_tree import cli\nfrom remuda.cli.exit_codes import run\n"
        f"run(cli, {arguments!r})\n"
        "print([name for name in ('aiohttp', 'uvloop', 'rich', 'cryptography', 'remuda.apiserver') if name in sys.modules])"
    )
    done = subprocess.run(
        [*shell.arguments()[:2], program], env=shell.environment(), capture_output=True, text=True, check=True, timeout=60
    )
    assert done.stdout.splitlines()[-1] == "[]"


@pytest.mark.parametrize(("encoding", "sign"), [("utf-8", "…"), ("latin-1", "~"), ("koi8-r", "~")])
def test_signs_are_printed_in_any_encoding(shell: Shell, encoding: str, sign: str) -> None:
    """ASCII alone click takes for a mistake, and prints UTF-8."""
    shell.environ["PYTHONIOENCODING"] = encoding
    command = [*shell.arguments(), "kubeconfig", "--help"]
    done = subprocess.run(command, env=shell.environment(), capture_output=True, check=True, timeout=60)
    assert f"[CLUSTER]{sign}" in done.stdout.decode(encoding) and done.stderr == b""


def test_version_as_an_option_is_one_line(shell: Shell) -> None:
    done = shell.run("--version")
    assert (done.returncode, done.stdout, done.stderr) == (0, f"remuda {__version__}\n", "")


def test_version_without_a_server_is_the_clients(shell: Shell) -> None:
    assert shell.run("version").stdout.startswith(f"Client: remuda {__version__} (Python 3.")
    found = json.loads(shell.run("version", "-o", "json").stdout)
    assert found.keys() == {"clientVersion"}
    assert yamlio.loads(shell.run("version", "--client", "-o", "yaml").stdout) == found


def test_version_says_why_a_server_does_not_answer_and_is_no_failure(shell: Shell) -> None:
    write_kubeconfig(shell.home / "config", "https://127.0.0.1:1")
    done = shell.run("version", "--kubeconfig", str(shell.home / "config"))
    assert done.returncode == 0
    assert done.stdout.splitlines()[1] == "Server: https://127.0.0.1:1 can't be reached: Connection refused"


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (["sreve"], "remuda: there is no command 'sreve', perhaps 'serve' was meant (see remuda --help)\n"),
        (["serve", "--listen", "::1:80"], "an IPv6 address needs brackets"),
        (["serve", "--listen", "a:70000"], "is not HOST:PORT"),
        (["serve", "--history", "7x"], "is not a duration such as 30m, 12h or 7d"),
        (["version", "--nope"], "no such option"),
        (["kubeconfig", "--use"], "need --merge"),
        (["completion", "tcsh"], "is not one of 'bash', 'zsh', 'fish'"),
    ],
)
def test_wrong_usage_is_one_line_and_code_two(shell: Shell, arguments: list[str], sentence: str) -> None:
    done = shell.run(*arguments)
    assert (done.returncode, done.stdout) == (2, "")
    assert sentence.lower() in done.stderr.lower()
    assert done.stderr.startswith("remuda: ")
    assert done.stderr.count("\n") == 1


def test_no_command_shows_the_help_on_stderr(shell: Shell) -> None:
    done = shell.run()
    assert done.returncode == 2
    assert "Commands:" in done.stderr


@pytest.mark.parametrize("shell_name", ["bash", "zsh", "fish"])
def test_completion_scripts_call_back_and_get_the_commands(shell: Shell, shell_name: str) -> None:
    assert "_REMUDA_COMPLETE" in shell.run("completion", shell_name).stdout
    shell.environ |= {"_REMUDA_COMPLETE": f"{shell_name}_complete", "COMP_WORDS": "remuda se", "COMP_CWORD": "1"}
    if shell_name == "fish":
        shell.environ["COMP_CWORD"] = "se"
    assert "serve" in shell.run().stdout


# --- errors -------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("raised", "code", "sentence"),
    [
        (Failure("it broke"), Code.FAILURE, "it broke"),
        (ApiError(404, "NotFound", 'secrets "x" not found'), Code.NOT_FOUND, 'secrets "x" not found'),
        (ApiError(409, "Conflict", "changed"), Code.CONFLICT, "changed"),
        (ApiError(409, "AlreadyExists", "there"), Code.CONFLICT, "there"),
        (ApiError(403, "Forbidden", "no"), Code.NOT_ALLOWED, "no"),
        (ApiError(401, "Unauthorized", "who"), Code.NOT_ALLOWED, "who"),
        (ApiError(500, "InternalError", "oh"), Code.FAILURE, "oh"),
        (TimeoutError("too slow"), Code.TIMEOUT, "too slow"),
        (ConfigError("no context"), Code.FAILURE, "no context"),
        (FileNotFoundError(2, "No such file or directory", "/x"), Code.FAILURE, "/x: No such file or directory"),
        (ZeroDivisionError("oops"), Code.FAILURE, "internal error: ZeroDivisionError: oops (REMUDA_DEBUG=1 shows where)"),
        (KeyboardInterrupt(), Code.INTERRUPTED, ""),
    ],
)
def test_every_error_is_one_sentence_and_its_code(
    raised: BaseException, code: Code, sentence: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("REMUDA_DEBUG", raising=False)

    @click.command()
    def failing() -> None:
        raise raised

    assert exit_codes.run(failing, []) == code
    assert capsys.readouterr().err.strip() == (f"remuda: {sentence}" if sentence else "")


def test_debug_shows_the_traceback(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("REMUDA_DEBUG", "1")

    @click.command()
    def failing() -> None:
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        exit_codes.run(failing, [])


@pytest.mark.parametrize("command", ["--help", "version"])
def test_a_reader_that_goes_away_is_told_nothing(shell: Shell, command: str) -> None:
    line = " ".join([*(f"'{part}'" for part in shell.arguments(command)), "| true"])
    done = subprocess.run(["bash", "-c", line], env=shell.environment(), capture_output=True, text=True, timeout=60, check=False)
    assert done.stderr == ""


# --- output -------------------------------------------------------------------------------------------------------------


def shown(form: str, capsys: pytest.CaptureFixture[str]) -> str:
    columns = (Column("NAME"), Column("AGE"), Column("ADDRESS", wide=True))
    rows = [("one", "5d", "10.0.0.1"), ("a-longer-name", "1h", "10.0.0.2")]
    Output(form).show([{"name": "one"}], columns, rows, ["machine/one"])
    return capsys.readouterr().out


def test_output_forms(capsys: pytest.CaptureFixture[str]) -> None:
    assert shown(TABLE, capsys) == "NAME            AGE\none             5d\na-longer-name   1h\n"
    assert shown(WIDE, capsys).splitlines()[1] == "one             5d    10.0.0.1"
    assert shown(YAML, capsys) == "- name: one\n"
    assert shown(NAME, capsys) == "machine/one\n"


def on_a_terminal(shell: Shell, *arguments: str) -> str:
    leader, follower = pty.openpty()
    with subprocess.Popen(shell.arguments(*arguments), env=shell.environment(), stdout=follower, stderr=follower) as process:
        os.close(follower)
        text = b""
        try:
            while chunk := os.read(leader, 65536):
                text += chunk
        except OSError:
            pass
        process.wait(60)
    os.close(leader)
    return text.decode()


def test_colour_is_for_terminals_that_want_it(shell: Shell) -> None:
    shell.environ["TERM"] = "xterm"
    assert "\x1b[32mok\x1b[0m" in on_a_terminal(shell, "doctor", "--listen", ":0")
    assert "\x1b" not in shell.run("doctor", "--listen", ":0").stdout
    shell.environ["NO_COLOR"] = "1"
    assert "\x1b" not in on_a_terminal(shell, "doctor", "--listen", ":0")


# --- doctor -------------------------------------------------------------------------------------------------------------


def checks(shell: Shell, *arguments: str) -> tuple[int, dict[str, Any]]:
    done = shell.run("doctor", "-o", "json", *arguments)
    document = json.loads(done.stdout)
    assert document["ok"] == (done.returncode == 0)
    return done.returncode, {check["name"]: check for check in document["checks"]}


def test_doctor_finds_a_healthy_place_healthy(shell: Shell) -> None:
    code, found = checks(shell, "--listen", "127.0.0.1:0")
    assert code == 0, found
    assert found.keys() == {"port", "disk space", "disk speed", "clock", "permissions", "open files", "sqlite", "other servers"}
    assert not (shell.home / "data").exists()


def test_doctor_names_a_taken_port_and_what_to_do(shell: Shell) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        code, found = checks(shell, "--listen", f"127.0.0.1:{taken.getsockname()[1]}")
    assert code == 1
    assert found["port"]["status"] == "fail"
    assert "--listen" in found["port"]["advice"]


def test_doctor_sees_keys_that_others_can_read(shell: Shell) -> None:
    data = shell.home / "data"
    Pki.ensure(data / "pki", [], SYSTEM_CLOCK, Entropy())
    data.chmod(0o700)
    assert checks(shell, "--listen", ":0")[1]["permissions"]["status"] == "ok"
    (data / "pki" / "ca.key").chmod(0o644)
    code, found = checks(shell, "--listen", ":0")
    assert code == 1
    assert "chmod go= pki/ca.key" in found["permissions"]["advice"]


# --- kubeconfig ---------------------------------------------------------------------------------------------------------


def write_kubeconfig(path: Path, server: str) -> None:
    pki = Pki.ensure(path.parent / "pki", [], SYSTEM_CLOCK, Entropy())
    pki.write_kubeconfig(path, server)


@pytest.fixture
def served(shell: Shell) -> Shell:
    """A data directory as a server leaves it."""
    write_kubeconfig(shell.home / "data" / "kubeconfig", "https://127.0.0.1:8443")
    return shell


def test_kubeconfig_is_printed_or_its_path(served: Shell) -> None:
    path = served.home / "data" / "kubeconfig"
    assert served.run("kubeconfig").stdout == path.read_text()
    assert served.run("kubeconfig", "--path").stdout == f"{path}\n"


def test_kubeconfig_of_a_directory_without_a_server_is_not_found(shell: Shell) -> None:
    done = shell.run("kubeconfig")
    assert (done.returncode, done.stdout) == (3, "")
    assert done.stderr.endswith("start a server there first, with remuda serve\n")


def test_merging_into_nothing_makes_a_private_file_with_a_current_context(served: Shell) -> None:
    done = served.run("kubeconfig", "--merge")
    assert done.returncode == 0, done.stderr
    path = served.home / ".kube" / "config"
    assert path.stat().st_mode & 0o777 == 0o600
    assert yamlio.loads(path.read_text())["current-context"] == "remuda"
    assert "already has it" in served.run("kubeconfig", "--merge").stdout


def test_merging_keeps_what_is_there_and_a_backup(served: Shell) -> None:
    path = served.home / ".kube" / "config"
    path.parent.mkdir()
    before = {
        "apiVersion": "v1",
        "kind": "Config",
        "current-context": "kubernetes-admin@kubernetes",
        "clusters": [{"name": "kubernetes", "cluster": {"server": "https://other"}}],
        "users": [{"name": "kubernetes-admin", "user": {"token": "theirs"}}],
        "contexts": [{"name": "kubernetes-admin@kubernetes", "context": {"cluster": "kubernetes", "user": "kubernetes-admin"}}],
        "preferences": {"colors": True},
    }
    path.write_text(yamlio.dumps(before))
    assert served.run("kubeconfig", "--merge").returncode == 0
    after = yamlio.loads(path.read_text())
    assert after["current-context"] == "kubernetes-admin@kubernetes"
    assert after["preferences"] == {"colors": True}
    assert [user["name"] for user in after["users"]] == ["kubernetes-admin", "remuda-admin"]
    assert after["users"][0] == before["users"][0]
    (backup,) = path.parent.glob("config.2*")
    assert yamlio.loads(backup.read_text()) == before
    assert backup.stat().st_mode & 0o777 == 0o600
    assert not (path.parent / "config.lock").exists()
    served.run("kubeconfig", "--merge", "--use")
    assert yamlio.loads(path.read_text())["current-context"] == "remuda"


def test_merging_over_another_cluster_of_that_name_is_a_conflict(served: Shell) -> None:
    path = served.home / "mine"
    path.write_text(yamlio.dumps({"clusters": [{"name": "remuda", "cluster": {"server": "https://other"}}]}))
    before = path.read_bytes()
    done = served.run("kubeconfig", "--merge", "--into", str(path))
    assert done.returncode == 4
    assert "--name" in done.stderr
    assert path.read_bytes() == before
    assert served.run("kubeconfig", "--merge", "--into", str(path), "--name", "mine").returncode == 0
    assert served.run("kubeconfig", "--merge", "--into", str(path), "--force").returncode == 0


def test_merging_does_not_wait_for_the_lock(served: Shell) -> None:
    path = served.home / ".kube" / "config"
    path.parent.mkdir()
    (path.parent / "config.lock").touch()
    done = served.run("kubeconfig", "--merge")
    assert done.returncode == 4
    assert "config.lock" in done.stderr
    assert not path.exists()


def test_merging_into_text_that_is_no_kubeconfig_changes_nothing(served: Shell) -> None:
    path = served.home / "mine"
    path.write_text("- a\n")
    done = served.run("kubeconfig", "--merge", "--into", str(path))
    assert done.returncode == 1
    assert path.read_text() == "- a\n"
