"""What a host is told: files, command line, variables, and what comes of them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from remuda.kcm import workloads
from remuda.lab.distro.config import arguments as sources
from remuda.lab.distro.config import settings
from remuda.lab.distro.config.arguments import ConfigError, parse
from remuda.lab.distro.nodes import NodeConfig


def write(root: Path, name: str, text: str) -> None:
    path = root / "etc/rancher/remuda" / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)


def load(root: Path, *arguments: str, **environment: str) -> settings.Settings:
    return settings.load(parse(["server", "--root", str(root), *arguments]), environment)


def test_later_files_replace_what_earlier_ones_say_unless_they_add(tmp_path: Path) -> None:
    write(tmp_path, "config.yaml", "node-name: one\ntls-san: [a]\nnode-label: [x=1]\nnode-ip: 127.9.9.9\n")
    write(tmp_path, "config.yaml.d/50-rancher.yaml", '{"node-name": "two", "tls-san+": ["b"], "node-label": ["y=2"]}')
    write(tmp_path, "config.yaml.d/60-more.yaml", "tls-san+: c\ntoken+: first\n")
    write(tmp_path, "config.yaml.d/70-not.txt", "node-name: three\n")
    found = load(tmp_path)
    assert found.node_name == "two"
    assert found.tls_san == ("a", "b", "c")
    assert found.labels == ("y=2",)
    assert found.token == "first"


def test_the_command_line_comes_last_and_adds_to_lists(tmp_path: Path) -> None:
    write(tmp_path, "config.yaml", "etcd-arg: [a=1]\netcd-disable-snapshots: true\nnode-ip: 127.9.9.9\netcd-s3: true\n")
    found = load(tmp_path, "--etcd-arg=b=2", "--etcd-disable-snapshots=false", "--node-name", "N", "--etcd-s3=false")
    assert found.etcd_args == ("a=1", "b=2")
    assert not found.snapshots.disabled and not found.snapshots.s3
    assert found.node_name == "n"


def test_variables_hold_where_nothing_else_is_said(tmp_path: Path) -> None:
    write(tmp_path, "config.yaml", "token: of-the-file\nnode-ip: 127.9.9.9\n")
    found = load(tmp_path, REMUDA_TOKEN="of-the-variable", REMUDA_URL="https://x:9345/", REMUDA_DATA_DIR="/d")
    assert (found.token, found.server_url, found.paths.data) == ("of-the-file", "https://x:9345", tmp_path / "d")


def test_a_host_in_a_directory_writes_below_it_whatever_it_is_told(tmp_path: Path) -> None:
    said = {
        "node-ip": "127.9.9.9",
        "data-dir": "/srv/../../data",
        "etcd-snapshot-dir": f"{tmp_path}/../snapshots",
        "write-kubeconfig": "/tmp/kubeconfig",
        "kube-scheduler-arg": ["cert-dir=/certs"],
        "kube-controller-manager-arg": ["tls-cert-file=/own/x.crt"],
    }
    found = settings.of(said, tmp_path)
    assert found.paths.data == tmp_path / "data"
    assert found.kubeconfig == tmp_path / "tmp/kubeconfig"
    assert found.snapshots.directory.is_relative_to(tmp_path)
    assert (found.scheduler.directory, found.controller_manager.directory) == (tmp_path / "certs", tmp_path / "own")
    again = settings.of({**said, "data-dir": str(tmp_path / "data")}, tmp_path)
    assert again.paths.data == tmp_path / "data", "plans name it as it is"
    ordinary = settings.of({**said, "data-dir": "/data"})
    assert (ordinary.paths.data, ordinary.scheduler.directory) == (Path("/data"), Path("/certs"))


@pytest.mark.parametrize(
    ("arguments", "words", "values"),
    [
        (["etcd-snapshot", "save", "--name", "x"], ("etcd-snapshot", "save"), {"name": "x"}),
        (["server", "--cluster-init"], ("server",), {"cluster-init": "true"}),
        (["server", "--cluster-init=false", "-t", "abc"], ("server",), {"cluster-init": "false", "token": "abc"}),
        (["certificate", "rotate", "-s", "admin", "-s", "etcd"], ("certificate", "rotate"), {"service": ["admin", "etcd"]}),
        (["agent", "-s", "https://x:1"], ("agent",), {"server": "https://x:1"}),
        (
            ["server", "--etcd-s3-bucket", "b", "--etcd-s3-skip-ssl-verify"],
            ("server",),
            {"etcd-s3-bucket": "b", "etcd-s3-skip-ssl-verify": "true"},
        ),
    ],
)
def test_a_command_line(arguments: list[str], words: tuple[str, ...], values: dict[str, Any]) -> None:
    line = parse(arguments)
    assert (line.words, dict(line.values)) == (words, values)


@pytest.mark.parametrize("arguments", [["server", "--no-such-thing"], ["server", "--token"]])
def test_a_command_line_that_is_none(arguments: list[str]) -> None:
    with pytest.raises(ConfigError):
        parse(arguments)


def test_a_host_of_its_own_listens_everywhere_and_one_of_many_at_its_address() -> None:
    one = settings.of({"node-ip": "10.0.0.5", "node-name": "a"})
    assert (one.bind_address, one.loopback, one.address) == ("0.0.0.0", "127.0.0.1", "10.0.0.5")
    many = settings.of({"node-ip": ["127.1.2.3"], "node-name": "a"})
    assert (many.bind_address, many.loopback, many.address) == ("127.1.2.3", "127.1.2.3", "127.1.2.3")
    assert settings.of({"node-ip": "10.0.0.5,fd00::1", "advertise-address": "1.2.3.4"}).address == "1.2.3.4"


def test_components_answer_where_the_planner_looks_for_them() -> None:
    told = {"node-ip": "10.0.0.5", "kube-scheduler-arg": ["cert-dir=/x", "secure-port=1234"]}
    found = settings.of(told)
    assert (found.scheduler.port, found.scheduler.directory) == (1234, Path("/x"))
    assert (found.controller_manager.port, found.controller_manager.directory.name) == (10257, "kube-controller-manager")


@pytest.mark.parametrize(
    "values",
    [
        {"disable-etcd": True},
        {"disable-etcd": True, "disable-apiserver": True, "server": "https://x:9345"},
        {"cluster-init": "perhaps"},
        {"node-ip": "not-an-address"},
        {"etcd-snapshot-retention": "many"},
    ],
)
def test_what_makes_no_sense_is_refused(values: dict[str, Any]) -> None:
    with pytest.raises(ConfigError):
        settings.of({"node-ip": "10.0.0.5", **values})


def test_the_timers_of_nodes_are_kubernetes_own_unless_others_are_said() -> None:
    usual = settings.of({"node-ip": ["127.9.9.9"]})
    assert usual.node_report_seconds == NodeConfig("a").report_seconds == 10
    assert usual.node_grace_seconds == workloads.GRACE_SECONDS == 50
    said = {
        "kubelet-arg": ["v=2", "node-status-update-frequency=4s"],
        "kube-controller-manager-arg": "node-monitor-grace-period=1m",
    }
    short = settings.of({"node-ip": ["127.9.9.9"], **said})
    assert (short.node_report_seconds, short.node_grace_seconds) == (4, 60)


@pytest.mark.parametrize("text", ["soon", "0s", "-1s", ""])
def test_timers_that_are_none_are_refused(text: str) -> None:
    with pytest.raises(ConfigError, match="node-monitor-grace-period must be"):
        settings.of({"node-ip": ["127.9.9.9"], "kube-controller-manager-arg": [f"--node-monitor-grace-period={text}"]})


def test_an_etcd_for_demonstrations_is_taken_if_the_installer_has_brought_it(tmp_path: Path) -> None:
    write(tmp_path, "config.yaml", "node-ip: 127.9.9.9")
    assert not load(tmp_path).demo_etcd
    mark = tmp_path / "var/lib/rancher/remuda/bin/etcd.demo"
    mark.parent.mkdir(parents=True)
    mark.touch()
    assert load(tmp_path).demo_etcd
    assert not load(tmp_path, "--etcd-binary=/usr/bin/etcd").demo_etcd


def test_files_that_are_no_settings_are_named(tmp_path: Path) -> None:
    write(tmp_path, "config.yaml", "- a\n")
    with pytest.raises(ConfigError, match=r"config\.yaml"):
        load(tmp_path)
    assert sources.read(tmp_path / "none.yaml") == {}
