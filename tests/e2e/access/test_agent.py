"""`remuda cluster-agent` as a process, against a server and a cluster in processes of their own."""

from __future__ import annotations

import base64
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from remuda.gateway.agents.tunnels import keys_of

from .harness import Agent, Cluster, Embedded, Gateway, Person, Program, until

MANAGED = "/apis/management.cattle.io/v3/clusters"
NEW_TOKEN = "n" * 54


def registered(gateway: Gateway, name: str) -> Cluster:
    """A cluster that the server waits for."""
    gateway.made(MANAGED, {"kind": "Cluster", "metadata": {"name": name}, "spec": {"displayName": name}})
    cluster = Cluster(gateway, name, name)
    until(cluster.is_known, why="the cluster has got no registration tokens")
    return cluster


def connected(agent: Program, times: int = 1) -> None:
    until(lambda: agent.told().count("connected to https://") >= times, why="the agent did not connect")


def refused(*arguments: str, environ: dict[str, str] | None = None) -> tuple[int, str]:
    command = [sys.executable, "-m", "remuda", "cluster-agent", *arguments]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, env={"PATH": "/usr/bin:/bin", **(environ or {})})
    return done.returncode, done.stderr


class AgentWithArguments(Agent):
    """Told its token on the command line, as people do."""

    def command(self) -> list[str]:
        told = super().command()
        at = told.index("--token-file")
        return [*told[:at], "--token", self.token_file.read_text(), *told[at + 2 :]]


def test_a_token_does_not_stay_on_the_command_line(gateway: Gateway, downstream: Embedded) -> None:
    cluster = registered(gateway, "c-argv1")
    token = cluster.token()
    with AgentWithArguments(cluster, downstream) as agent:
        connected(agent)
        # The server looks at what the tunnel leads to after it stands.
        until(lambda: "apiEndpoint" in cluster.status(), why="what the agent says of its cluster is not known")
        shown = Path(f"/proc/{agent.pid}/cmdline").read_bytes()
        assert b"--ca-checksum" in shown
        assert token.encode() not in shown
        assert agent.stop() == 0
        assert token not in agent.told()
    assert token not in gateway.told()
    told = cluster.managed()["status"]
    assert told["apiEndpoint"] == f"https://127.0.0.1:{downstream.port}"
    assert b"BEGIN CERTIFICATE" in base64.b64decode(told["caCert"])


@pytest.mark.story
def test_a_token_that_is_rotated_is_taken_up_without_a_gap(gateway: Gateway, downstream: Embedded, tmp_path: Path) -> None:
    cluster = registered(gateway, "c-rotat")
    (tmp_path / "url").write_text(gateway.url)
    (tmp_path / "token").write_text(cluster.token())
    agent = Mounted(cluster, downstream, tmp_path)
    with agent:
        connected(agent)
        where = f"/api/v1/namespaces/{cluster.id}/secrets/crt-token-default-token"
        coded = {
            "token": base64.b64encode(NEW_TOKEN.encode()).decode(),
            "previousToken": base64.b64encode(cluster.token().encode()).decode(),
            "gracePeriodExpiresAt": base64.b64encode(b"2999-01-01T00:00:00Z").decode(),
        }
        patch = json.dumps({"data": coded}).encode()
        answer = gateway.endpoint.request("PATCH", where, patch, {"Content-Type": "application/merge-patch+json"})
        assert answer.status == 200, answer.body
        (tmp_path / "token").write_text(NEW_TOKEN)
        connected(agent, 2)
        until(lambda: len(lines(gateway, cluster.id, "ended")) == 1)
        events = [line for line in gateway.told().splitlines() if f"client={cluster.id} " in line]
        assert ["connected" in line for line in events] == [True, True, False], events
        assert agent.stop() == 0


class Mounted(Agent):
    """As a pod is told: by the files of a Secret."""

    def __init__(self, cluster: Cluster, downstream: Embedded, credentials: Path) -> None:
        super().__init__(cluster, downstream)
        self.credentials = credentials

    def command(self) -> list[str]:
        told = ["--kubeconfig", str(self.downstream.kubeconfig), "--credentials", str(self.credentials)]
        return [sys.executable, "-m", "remuda", "cluster-agent", *told, "--ca-checksum", self.checksum, "--strict-verify"]


def lines(gateway: Gateway, client: str, what: str) -> list[str]:
    return [line for line in gateway.told().splitlines() if f"tunnel {what}" in line and f"client={client} " in line]


def ended(gateway: Gateway, cluster: str) -> list[list[str]]:
    """What was said of tunnels of a cluster that have ended, for each of its two."""
    return [lines(gateway, key, "ended") for key in keys_of(cluster)]


def test_a_server_with_another_ca_gets_no_token(gateway: Gateway, downstream: Embedded) -> None:
    cluster = registered(gateway, "c-wrong")
    with Agent(cluster, downstream, checksum="0" * 64) as agent:
        until(lambda: "another checksum" in agent.told(), log=agent)
        assert not lines(gateway, cluster.id, "connected")
        assert agent.stop() == 0


def test_it_survives_a_server_that_is_restarted(place: Path, downstream: Embedded) -> None:
    with Gateway(place / "restarted") as gateway:
        gateway.announced()
        cluster = registered(gateway, "c-again")
        with Agent(cluster, downstream) as agent:
            connected(agent)
            # The agent may know of its tunnel before the server has written of it.
            until(lambda: lines(gateway, cluster.id, "connected"), log=gateway)
            gateway.kill()
            before = len(lines(gateway, cluster.id, "connected"))
            gateway.start()
            until(lambda: len(lines(gateway, cluster.id, "connected")) > before, log=agent)
            assert agent.stop() == 0


@pytest.mark.parametrize(
    ("arguments", "code", "words"),
    [
        ((), 2, "there is no token"),
        (("--token-file", "x"), 2, "--server is missing"),
        (("--server", "http://x", "--token-file", "/dev/null"), 1, "does not begin with https"),
        (("--server", "https://x", "--token-file", "/dev/null"), 1, "there is no registration token"),
        (("--server", "https://x", "--token-file", "/etc/hostname"), 1, "this is not a pod"),
        (("--allow", "nonsense"), 2, "is not HOST:PORT"),
    ],
)
def test_what_it_says_when_it_is_told_too_little(arguments: tuple[str, ...], code: int, words: str) -> None:
    found, said = refused(*arguments)
    assert (found, words in said) == (code, True), said
    assert "Traceback" not in said


# --- two agents -----------------------------------------------------------------------------------------------------------

# The server's words for a connection that did not come about through one agent.
DIALLED_AGAIN = "another one is tried"


class Polls:
    """Requests one after the other, and the longest time between two that succeeded."""

    def __init__(self, person: Person, path: str) -> None:
        self._person = person
        self._path = path
        self._last = time.monotonic()
        self.longest_gap = 0.0

    def failed(self, times: int) -> list[int]:
        """The statuses of those of the next so many requests that fail."""
        statuses = []
        for _ in range(times):
            statuses.append(self._person.request("GET", self._path).status)
            now = time.monotonic()
            if statuses[-1] == 200:
                self.longest_gap = max(self.longest_gap, now - self._last)
                self._last = now
            time.sleep(0.05)
        return [status for status in statuses if status != 200]


@pytest.mark.story
@pytest.mark.parametrize("loss", [signal.SIGKILL, signal.SIGSTOP], ids=["killed", "silent"])
def test_polls_go_on_when_one_of_two_agents_is_lost(
    gateway: Gateway, downstream: Embedded, loss: signal.Signals, record_property: Callable[[str, object], None]
) -> None:
    name = f"c-two{'ks'[loss == signal.SIGSTOP]}1"
    cluster = registered(gateway, name)
    administrator = gateway.administrator()
    path = cluster.path("/api/v1/namespaces/default")
    with (
        Agent(cluster, downstream, called=f"{name}-first") as first,
        Agent(cluster, downstream, called=f"{name}-second") as second,
    ):
        connected(first)
        connected(second)
        until(lambda: administrator.request("GET", path).status == 200, log=gateway)
        polls = Polls(administrator, path)
        assert polls.failed(20) == []
        os.kill(first.pid, loss)
        try:
            # More than the time after which the silent one counts as lost.
            failed = polls.failed(200)
            dialled_again = gateway.told().count(DIALLED_AGAIN)
            assert polls.failed(200) == []
        finally:
            if loss == signal.SIGSTOP:
                os.kill(first.pid, signal.SIGCONT)
        gap = round(polls.longest_gap, 2)
        print(f"\nafter {loss.name}: failed {failed}, {dialled_again} connections dialled again, longest gap {gap} s")
        record_property("longest_gap_seconds", gap)
        # The requests that were on their way through a killed one may fail: their connection is cut.
        assert len(failed) <= 1, failed
        assert gateway.told().count(DIALLED_AGAIN) == dialled_again, "the lost one is still dialled"
        assert cluster.condition("Connected").get("status") == "True"
        assert second.alive


@pytest.mark.story
def test_the_agent_of_a_deleted_cluster_stops_by_itself(gateway: Gateway, downstream: Embedded) -> None:
    cluster = registered(gateway, "c-gone1")
    with Agent(cluster, downstream, called="gone-agent") as agent:
        connected(agent)
        gateway.endpoint.request("DELETE", f"{MANAGED}/c-gone1")
        until(lambda: not agent.alive, 240, agent)
        assert agent.told().splitlines()[-1].endswith("this agent stops; import the cluster to use it again"), agent.told()
        assert agent.stop() == 0
