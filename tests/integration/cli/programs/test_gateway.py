"""`remuda gateway` beside a running `remuda serve`: refused before it changes anything, since two gateways would compete."""

from __future__ import annotations

from pathlib import Path

from remuda.client import oneshot
from tests.integration.cli.running import Shell

from .test_serve import Served, serving

_WEBHOOKS = "/apis/admissionregistration.k8s.io/v1/validatingwebhookconfigurations"


def registered(served: Served) -> list[str]:
    return [each["metadata"]["name"] for each in oneshot.get(served.target, _WEBHOOKS, 60)["items"]]


def files(directory: Path) -> dict[str, int]:
    """Without the database and the audit log, to which a running server writes."""
    kept = (path for path in directory.rglob("*") if not path.name.startswith(("state.db", "audit.log")))
    return {str(path): path.stat().st_mtime_ns for path in kept if path.is_file()}


def test_a_gateway_on_the_state_of_a_running_server_is_refused(shell: Shell) -> None:
    with serving(shell) as served:
        before, hooks = files(served.data_dir), registered(served)
        done = shell.run("gateway", "--kubeconfig", str(served.data_dir / "kubeconfig"), "--listen", "127.0.0.1:0")
        assert done.returncode == 1 and done.stdout == ""
        (line,) = done.stderr.splitlines()
        assert f"{served.data_dir} is in use by a running `remuda serve` (pid {served.process.pid})" in line
        assert (files(served.data_dir), registered(served)) == (before, hooks)


def test_a_gateway_before_the_api_of_a_running_server_is_refused(shell: Shell, tmp_path: Path) -> None:
    with serving(shell) as served:
        hooks, own = registered(served), tmp_path / "other"
        kubeconfig = str(served.data_dir / "kubeconfig")
        done = shell.run("gateway", "--kubeconfig", kubeconfig, "--listen", "127.0.0.1:0", "--data-dir", str(own))
        assert done.returncode == 1 and done.stdout == ""
        (line,) = done.stderr.splitlines()
        assert f"{served.target.server} is a server of Remuda (or Rancher), which has a gateway of its own" in line
        assert not own.exists()
        assert registered(served) == hooks
