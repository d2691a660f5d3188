"""Release data names an argument only for a command that accepts it (`arguments.json`, from the distributions' sources)."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from remuda.capi import kubernetes_versions
from remuda.lab.distro.config.arguments import KINDS
from remuda.provisioning.releases import catalog
from remuda.provisioning.releases.catalog import Release
from remuda.provisioning.releases.distributions import ALL, K3S, REMUDA, RKE2
from tests.real.describe_arguments import COMMANDS, RECORD, Sources, text
from tests.unit.provisioning.planner.render import inputs

RECORDED: dict[str, dict[str, dict[str, list[str]]]] = json.loads(RECORD.read_text())
RELEASES = [
    (release, command)
    for runtime in (K3S, RKE2)
    for release in catalog.built_in().by_runtime[runtime.name]
    for command in COMMANDS
]


def accepted(release: Release, command: str) -> set[str]:
    """The flags of a command in this version: those that the recorded versions on both sides of it have."""

    def order(version: str) -> tuple[int, int]:
        found = kubernetes_versions.parse(version.removeprefix("v"))
        return found.minor, found.patch

    recorded = sorted(RECORDED[release.runtime.name], key=order)
    older = [version for version in recorded if order(version) <= order(release.version)]
    newer = [version for version in recorded if order(version) >= order(release.version)]
    around = {*older[-1:], *newer[:1]}
    return set.intersection(*(set(RECORDED[release.runtime.name][version][command]) for version in around))


@pytest.mark.parametrize(("release", "command"), RELEASES, ids=[f"{each.version} {command}" for each, command in RELEASES])
def test_every_argument_of_a_command_is_one_of_its_flags(release: Release, command: str) -> None:
    allowed = {name for name in _names(release) if release.argument(name, server=command == "server")}
    assert allowed - accepted(release, command) == set()


@pytest.mark.parametrize(("release", "command"), RELEASES, ids=[f"{each.version} {command}" for each, command in RELEASES])
def test_no_configuration_has_a_key_that_its_command_does_not_know(release: Release, command: str) -> None:
    """With every argument that any distribution has, and all that plans add of themselves."""
    every = {name: _value(argument) for runtime in ALL for each in catalog.built_in().by_runtime[runtime.name]
             for name, argument in {**each.server_arguments, **each.agent_arguments}.items()}  # fmt: skip
    spec = {
        "machineGlobalConfig": every | {"made-up": "x"},
        "dataDirectories": {"k8sDistro": "/data/distro"},
        "localClusterAuthEndpoint": {"enabled": True, "fqdn": "k8s.example.com"},
        "etcd": {"s3": {"bucket": "b", "endpoint": "s3.example.com", "retention": 3}, "snapshotScheduleCron": "0 * * * *"},
    }
    roles = ("etcd,control-plane,worker", "etcd", "control-plane") if command == "server" else ("worker",)
    for each in roles:
        for join in (inputs.INIT, inputs.JOINED) if "etcd" in each else (inputs.JOINED,):
            made = inputs.config(inputs.machine(each), join, spec, inputs.facts(release.version))
            assert set(made) - accepted(release, command) == set()


def test_our_own_distribution_knows_every_argument_of_its_release_data() -> None:
    for release in catalog.built_in().by_runtime[REMUDA.name]:
        assert _names(release) - set(KINDS) == set()


def test_only_servers_of_k3s_are_told_the_default_registry() -> None:
    for release in catalog.built_in().by_runtime[K3S.name]:
        assert release.argument("system-default-registry", server=True)
        assert release.argument("system-default-registry", server=False) is None
        assert release.argument("audit-policy-file", server=True) is None


def test_the_record_is_as_the_program_writes_it() -> None:
    assert RECORD.read_text() == text(RECORDED)


def _names(release: Release) -> set[str]:
    return {*release.server_arguments, *release.agent_arguments}


def _value(argument: catalog.Argument) -> Any:
    return True if argument.is_boolean else ["a=b"] if argument.type == "array" else "x"


# --- the program that reads the sources ----------------------------------------------------------------------------------------

BASE: Mapping[str, str] = {
    "agent.go": """
var NameFlag = &cli.StringFlag{
	Name:  "node-name,n", // its name
	Usage: "a name (with a bracket",
}

func NewAgentCommand(action func(*cli.Context) error) *cli.Command {
	return &cli.Command{Name: "agent", Flags: []cli.Flag{
		NameFlag,
		&cli.BoolFlag{Name: "docker", Usage: "one, two", Aliases: []string{"moby"}},
	}}
}
""",
    "server.go": """
var ServerFlags = []cli.Flag{
	NameFlag,
	&cli.StringFlag{
		Name:  "registry",
		Value: strings.Join([]string{"a", "b"}, ","),
	},
}

func NewServerCommand(action func(*cli.Context) error) *cli.Command {
	return &cli.Command{Name: "server", Flags: ServerFlags}
}
""",
}
UPON = {
    "agent.go": """
var base = mustCmdFromK3S(cmds.NewAgentCommand(AgentRun), K3SFlagSet{
	"node-name": {Usage: "another"},
	"docker":    dropFlag,
})
var common = []cli.Flag{
	&cli.StringFlag{Name: images.Pause},
	&cli.StringFlag{Name: podtemplate.Etcd + "-extra-env"},
}

func NewAgentCommand() *cli.Command {
	cmd := base
	cmd.Flags = append(cmd.Flags, common...)
	return cmd
}
"""
}


def test_flags_are_read_in_sources() -> None:
    base = Sources(BASE, {})
    assert base.flags("agent") == {"node-name", "docker", "moby"}
    assert base.flags("server") == {"node-name", "registry"}
    upon = Sources(UPON, {"images.Pause": "pause-image", "podtemplate.Etcd": "etcd"})
    assert upon.flags_upon(base, "agent") == {"node-name", "pause-image", "etcd-extra-env"}


def test_sources_of_two_minor_versions_are_refused() -> None:
    newer = {**BASE, "agent.go": BASE["agent.go"].replace("NameFlag,", 'NameFlag, &cli.BoolFlag{Name: "new"},')}
    with pytest.raises(ValueError, match="nothing is said of new"):
        Sources(UPON, {}).flags_upon(Sources(newer, {}), "agent")


def test_sources_are_found_in_their_folders(tmp_path: Path) -> None:
    folder = tmp_path / "pkg/cli/cmds"
    folder.mkdir(parents=True)
    for name, content in BASE.items():
        (folder / name).write_text(content)
    (folder / "agent_test.go").write_text("func broken(")
    assert Sources.at(tmp_path).flags("server") == {"node-name", "registry"}
