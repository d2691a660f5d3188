"""`remuda install --systemd`: the unit that is printed, and what is refused before anything is touched."""

from __future__ import annotations

import socket
from pathlib import Path

import pytest

from remuda import __version__
from remuda.cli.commands.install import _given, ways_in
from remuda.cli.systemd import SystemdService, quoted, unit_file
from tests.integration.cli.running import Shell


def service(**fields: object) -> SystemdService:
    given = {
        "name": "remuda",
        "program": ("/opt/remuda/bin/remuda",),
        "options": (),
        "user": "remuda",
        "data_dir": Path("/var/lib/remuda"),
    }
    return SystemdService(**{**given, **fields})  # type: ignore[arg-type]


def lines(**fields: object) -> list[str]:
    return unit_file(service(**fields)).splitlines()


def test_the_usual_service_has_a_user_a_directory_and_no_capability() -> None:
    found = lines()
    assert "ExecStart=/opt/remuda/bin/remuda serve --data-dir /var/lib/remuda" in found
    assert {"User=remuda", "StateDirectory=remuda", "CapabilityBoundingSet=", "AmbientCapabilities=", "NoNewPrivileges=yes"} <= {
        *found
    }
    assert "SystemCallFilter=~@privileged" in found and "KillMode=mixed" in found


def test_another_version_is_another_unit() -> None:
    assert f"Description=Remuda {__version__}" in lines()


def test_a_low_port_takes_one_capability() -> None:
    found = lines(port=443)
    assert "CapabilityBoundingSet=CAP_NET_BIND_SERVICE" in found and "AmbientCapabilities=CAP_NET_BIND_SERVICE" in found


def test_root_can_give_jobs_users_of_their_own() -> None:
    found = lines(user="root")
    (bounded,) = [line for line in found if line.startswith("CapabilityBoundingSet=")]
    assert {"CAP_SETUID", "CAP_SETGID", "CAP_CHOWN", "CAP_KILL"} <= {*bounded.partition("=")[2].split()}
    assert "SystemCallFilter=~@privileged" not in found


def test_machines_of_this_machine_outlive_the_server_and_are_not_shut_in() -> None:
    found = lines(local_machines=True, groups=("docker",))
    assert "KillMode=process" in found and "SupplementaryGroups=docker" in found
    assert not any(line.startswith(("SystemCallFilter", "NoNewPrivileges", "PrivateTmp", "RestrictNamespaces")) for line in found)


def test_another_data_directory_is_writable_and_not_systemds() -> None:
    found = lines(data_dir=Path("/srv/remuda"), writable=("/srv/remuda",), options=("--data-dir=/srv/remuda",))
    assert "ReadWritePaths=/srv/remuda" in found and not any(line.startswith("StateDirectory") for line in found)
    assert "ExecStart=/opt/remuda/bin/remuda serve --data-dir=/srv/remuda" in found


@pytest.mark.parametrize(
    ("word", "written"),
    [
        ("a=b:1", "a=b:1"),
        ("a b", '"a b"'),
        ("100%", '"100%%"'),
        ("$HOME", '"$$HOME"'),
        ('say "x\\y"', '"say \\"x\\\\y\\""'),
        ("", '""'),
    ],
)
def test_words_are_quoted_as_systemd_reads_them(word: str, written: str) -> None:
    assert quoted(word) == written


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (["install"], "add --systemd"),
        (["install", "--systemd", "--name", "../x"], "'../x' must consist of"),
        (["install", "--systemd", "--dry-run", "--", "--listn", "x"], "no such option '--listn'"),
        (["install", "--systemd", "--dry-run", "--", "--token", "x" * 16], "give --token-file"),
        (["install", "--systemd", "--dry-run", "--", "--pki-dir", "keys"], "keys must begin with /"),
        (["install", "--systemd", "--uninstall", "--", "--listen", ":1"], "can't be combined with options of serve"),
    ],
)
def test_what_is_wrong_is_said_by_its_name(shell: Shell, arguments: list[str], told: str) -> None:
    done = shell.run(*arguments)
    assert done.returncode == 2 and told in done.stderr and "Traceback" not in done.stderr


def test_a_dry_run_prints_the_unit(shell: Shell) -> None:
    done = shell.run("install", "--systemd", "--dry-run", "--", "--listen", "0.0.0.0:443")
    assert done.returncode == 0, done.stderr
    assert "serve --data-dir /var/lib/remuda --listen 0.0.0.0:443\n" in done.stdout
    assert "AmbientCapabilities=CAP_NET_BIND_SERVICE\n" in done.stdout


@pytest.mark.parametrize(
    ("options", "others"),
    [
        ((), "remuda login https://127.0.0.1:8443 --username admin, with the password of: sudo cat /srv/r/bootstrap-password"),
        (("--listen", "0.0.0.0:443"), f"remuda login https://{socket.gethostname()}:443 --username admin"),
        (("--listen", "[2001:db8::1]:443"), "remuda login https://[2001:db8::1]:443 --username admin"),
        (("--only", "api"), "sudo remuda kubeconfig --data-dir /srv/r --output FILE"),
        (("--controllers", "*,-access"), "sudo remuda kubeconfig --data-dir /srv/r --output FILE"),
    ],
)
def test_the_last_lines_say_how_root_and_how_others_get_in(options: tuple[str, ...], others: str) -> None:
    first, second = ways_in(Path("/srv/r"), _given(options)).splitlines()
    assert first == "Try:     sudo kubectl --kubeconfig /srv/r/kubeconfig get namespaces"
    assert second.startswith(f"Others:  {others}")
