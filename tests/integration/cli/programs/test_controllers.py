"""The options of `remuda controllers`, and which controllers `remuda serve` runs; what they do is tested end to end."""

from __future__ import annotations

import pytest

from remuda.client import oneshot
from remuda.kube.objects import dig
from tests.integration.cli.running import Shell
from tests.waiting import wait_until

from .test_serve import serving


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (["--controllers", "machin"], "there is no controller 'machin'; there are addons, capi, cluster, clusterctl,"),
        (["--controllers", "-capi"], "nothing is left to run"),
        (["--webhook-url", "http://x:1"], "'http://x:1' is not https://HOST:PORT"),
        (["--webhook-url", "https://x:1", "--webhook-service", "a/b"], "exclude each other"),
        (["--webhook-service", "a"], "'a' is not NAMESPACE/NAME"),
        (["--webhook-port", "0"], "is not in the range"),
        (["--metrics-bind-address", "8080"], "'8080' is not HOST:PORT, and not 0"),
        (["--leader-elect-lease-duration", "5s"], "a lease must last longer than its renewal may take"),
        (["--sync-period", "soon"], "is not a duration such as 30m, 12h or 7d"),
    ],
)
def test_wrong_usage_is_one_line_and_code_two(shell: Shell, arguments: list[str], sentence: str) -> None:
    (shell.home / "config").write_text(
        "clusters: [{name: c, cluster: {server: 'https://127.0.0.1:1'}}]\n"
        "contexts: [{name: c, context: {cluster: c}}]\ncurrent-context: c\n"
    )
    given = [] if "--webhook-url" in arguments or "--webhook-service" in arguments else ["--webhook-url", "https://x:1"]
    done = shell.run("controllers", "--kubeconfig", str(shell.home / "config"), *arguments, *given)
    assert (done.returncode, done.stdout) == (2, "")
    assert sentence in done.stderr
    assert done.stderr.count("\n") == 1


def test_serve_refuses_a_controller_that_does_not_exist(shell: Shell) -> None:
    done = shell.run("serve", "--controllers", "*,-garbage")
    assert (done.returncode, done.stdout) == (2, "")
    assert "there is no controller 'garbage'" in done.stderr


def test_serve_has_cluster_api_s_core_with_its_rules_and_conversion(shell: Shell) -> None:
    with serving(shell) as served:
        served_kinds = "/apis/cluster.x-k8s.io/v1beta1"

        def there() -> bool:
            try:
                return "machines" in {each["name"] for each in oneshot.get(served.target, served_kinds, 10)["resources"]}
            except oneshot.NoAnswer:
                return False

        wait_until(there)
        served.process.terminate()
        assert served.ends() == (0, "")


def test_serve_leaves_cluster_api_alone_when_told(shell: Shell) -> None:
    with serving(shell, "--controllers=-capi") as served:
        groups = [dig(each, "name") for each in oneshot.get(served.target, "/apis", 10)["groups"]]
        assert "cluster.x-k8s.io" not in groups


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--machineset-preflight-checks", "All,Luck"], "unknown check 'Luck'"),
        (["--additional-sync-machine-labels", "a,("], "'(' is not a regular expression"),
        (["--remote-conditions-grace-period", "40s"], "must be at least 2m"),
        (["--concurrency", "0"], "0 is not in the range"),
    ],
)
@pytest.mark.parametrize("command", ["serve", "controllers"])
def test_options_of_the_core_that_make_no_sense(shell: Shell, command: str, arguments: list[str], words: str) -> None:
    done = shell.run(command, *arguments)
    assert (done.returncode, done.stdout) == (2, "")
    assert words in done.stderr
