"""What an agent is started with."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from remuda.agent.cli import main
from remuda.agent.config import load_config, load_connection
from remuda.agent.errors import ConfigError

GOOD = """workDirectory: /var/lib/rancher/agent/work
localPlanDirectory: /var/lib/rancher/agent/plans
interlockDirectory: /var/lib/rancher/agent/interlock
remoteEnabled: true
localEnabled: false
connectionInfoFile: /var/lib/rancher/agent/rancher2_connection_info.json
appliedPlanDirectory: /var/lib/rancher/agent/applied
somethingNew: 3
"""


def write(path: Path, text: str, mode: int = 0o600) -> str:
    path.write_text(text)
    path.chmod(mode)
    return str(path)


def test_keys_of_the_protocol_are_read_and_the_others_have_defaults(tmp_path: Path) -> None:
    config = load_config(write(tmp_path / "config.yaml", GOOD))
    assert config.work_directory == "/var/lib/rancher/agent/work"
    assert (config.remote_enabled, config.local_enabled, config.preserve_work_directory) == (True, False, False)
    assert config.agent_registries_file == "/etc/rancher/agent/registries.yaml"
    assert config.root == "/"


@pytest.mark.parametrize(
    ("name", "text", "mode", "why"),
    [
        ("config.yaml", GOOD, 0o644, "0600"),
        ("config.txt", GOOD, 0o600, "must contain"),
        ("config.yaml", GOOD.replace("remoteEnabled: true", "remoteEnabled: false"), 0o600, "nothing to do"),
        ("config.yaml", GOOD.replace("workDirectory: /var/lib/rancher/agent/work\n", ""), 0o600, "workDirectory"),
        ("config.yaml", GOOD.replace("workDirectory: /var/lib/rancher/agent/work\n", "workDirectory: /\n"), 0o600, "emptied"),
        ("config.yaml", "localEnabled: yes-please\n", 0o600, "boolean"),
        ("config.yaml", "- a\n", 0o600, "not a map"),
    ],
)
def test_a_file_that_is_unsafe_or_wrong_stops_the_start(tmp_path: Path, name: str, text: str, mode: int, why: str) -> None:
    with pytest.raises(ConfigError, match=why):
        load_config(write(tmp_path / name, text, mode))


WRITTEN = ("workDirectory", "localPlanDirectory", "interlockDirectory", "connectionInfoFile", "appliedPlanDirectory")


def below(root: Path) -> str:
    return GOOD.replace("/var/lib", f"{root}/var/lib") + f"root: {root}\n"


@pytest.mark.parametrize("name", WRITTEN)
def test_a_host_in_a_directory_keeps_its_own_files_there(tmp_path: Path, name: str) -> None:
    root = tmp_path / "root"
    assert load_config(write(tmp_path / "config.yaml", below(root))).root == str(root)
    lines = [f"{name}: {tmp_path}/outside" if line.startswith(f"{name}:") else line for line in below(root).splitlines()]
    with pytest.raises(ConfigError, match=f"{name}: refusing to write"):
        load_config(write(tmp_path / "config.yaml", "\n".join(lines)))


def test_a_link_does_not_lead_the_agent_out_of_its_root(tmp_path: Path) -> None:
    (tmp_path / "root").mkdir()
    (tmp_path / "root/var").symlink_to(tmp_path)
    with pytest.raises(ConfigError, match="outside of"):
        load_config(write(tmp_path / "config.yaml", below(tmp_path / "root")))


def test_connection_info_needs_its_three_strings(tmp_path: Path) -> None:
    good = {"kubeConfig": "k", "namespace": "n", "secretName": "s"}
    assert load_connection(write(tmp_path / "info.json.tmp", json.dumps(good))).secret_name == "s"
    for name in good:
        path = write(tmp_path / "broken.json", json.dumps({**good, name: ""}))
        with pytest.raises(ConfigError, match=name):
            load_connection(path)
        assert main(["validate-connection", path]) == 1
    assert main(["validate-connection", str(tmp_path / "info.json.tmp")]) == 0
