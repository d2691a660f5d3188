"""`remuda crds` as a process."""

from __future__ import annotations

import yaml

from remuda import api
from remuda.client import kubeconfig, oneshot
from tests.integration.cli.programs.test_serve import serving
from tests.integration.cli.running import Shell


def test_print_writes_every_definition_as_yaml(shell: Shell) -> None:
    done = shell.run("crds", "print")
    assert done.returncode == 0, done.stderr
    assert list(yaml.safe_load_all(done.stdout)) == api.crds()
    assert shell.run("crds", "print", "--groups", "cluster.x-k8s.io").stdout == done.stdout


def test_a_group_that_is_not_ours_is_one_line(shell: Shell) -> None:
    done = shell.run("crds", "print", "--groups", "example.com")
    assert (done.returncode, done.stdout) == (2, "")
    assert "no such API group: example.com; there are: addons.cluster.x-k8s.io, cert-manager.io" in done.stderr
    assert done.stderr.count("\n") == 1


def test_install_puts_them_onto_a_server_and_a_second_time_changes_nothing(shell: Shell) -> None:
    with serving(shell, "--controllers=-capi") as served:
        path = str(served.data_dir / "kubeconfig")
        done = shell.run("crds", "install", "--kubeconfig", path)
        assert done.returncode == 0, done.stderr
        assert "customresourcedefinition/machines.cluster.x-k8s.io created\n" in done.stdout
        assert len(done.stdout.splitlines()) == len(api.crds())
        found = oneshot.get(served.target, "/apis/cluster.x-k8s.io/v1beta2/machines", 30)
        assert found["kind"] == "MachineList"
        again = shell.run("crds", "install", "--kubeconfig", path)
        assert [line.split()[1] for line in again.stdout.splitlines()] == ["unchanged"] * len(api.crds())


def test_a_server_that_can_not_be_reached_is_one_sentence(shell: Shell) -> None:
    (shell.home / "config").write_text(
        yaml.safe_dump(
            {
                "clusters": [{"name": "c", "cluster": {"server": "https://127.0.0.1:1"}}],
                "contexts": [{"name": "c", "context": {"cluster": "c"}}],
                "current-context": "c",
            }
        )
    )
    assert kubeconfig.select(kubeconfig.load([shell.home / "config"])).server == "https://127.0.0.1:1"
    for command in (["crds", "install"], ["controllers", "--webhook-url", "https://127.0.0.1:9443"]):
        done = shell.run(*command, "--kubeconfig", str(shell.home / "config"))
        assert (done.returncode, done.stdout) == (1, "")
        assert done.stderr.startswith("remuda: https://127.0.0.1:1 can't be reached: ")
        assert done.stderr.count("\n") == 1
