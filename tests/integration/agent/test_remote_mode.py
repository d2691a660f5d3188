"""Obeying the plan of a Secret."""

from __future__ import annotations

import gzip
import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler
from pathlib import Path
from typing import Any

import pytest

from remuda.agent.clock import Clock
from remuda.agent.errors import AgentError, ApiError, ConfigError, Departed, UntrustedServer
from remuda.agent.plan_secret import KubeApi, SecretWatch
from remuda.agent.plans import outputs
from remuda.agent.remote_mode import ProgressReporter, Remote, Superseded
from tests.unit.certificates import certificate

from .builders import FixedClock, engine, file, plan_bytes, server, shell
from .fakeapi import KUBECONFIG, FakeApi


def remote(url: str, root: Path, clock: Clock | None = None) -> Remote:
    clock = clock or FixedClock()
    stop = threading.Event()
    api = KubeApi(KUBECONFIG.format(url=url, ca=""))
    watch = SecretWatch(api, "ns", "plan", clock, stop)
    return Remote(engine(root, clock if isinstance(clock, FixedClock) else None), api, watch, clock, stop)


def step(agent: Remote) -> float:
    agent.watch.offer(agent.api.list("ns", "plan")[0])
    return agent.step()


def test_a_pending_plan_is_claimed_applied_and_reported(tmp_path: Path) -> None:
    api = FakeApi(plan=plan_bytes(instructions=[shell("echo out1", "one"), shell("true", "two")]), plan_state=b"pending")
    with api.serving() as url:
        agent = remote(url, tmp_path)
        assert step(agent) == 5
        assert [sorted(put) for put in api.puts] == [
            ["plan-revision", "plan-state"],
            [
                "applied-checksum",
                "applied-output",
                "applied-periodic-output",
                "failed-checksum",
                "failed-output",
                "failure-count",
                "last-apply-time",
                "plan-state",
                "probe-statuses",
                "success-count",
            ],
        ]
        assert (api.text("plan-state"), api.text("plan-revision"), api.text("success-count")) == ("succeeded", "1", "1")
        assert json.loads(gzip.decompress(api.data()["applied-output"])) == {"one": "b3V0MQo=", "two": None}
        assert api.secret["metadata"]["labels"] == {"keep": "me"}
        step(agent)
        api.set(appliedPlan=api.data()["plan"])
        step(agent)
        assert len(api.puts) == 2, "a settled plan is not written again"


def test_an_agent_that_can_be_replaced_says_which_one_it_is(tmp_path: Path) -> None:
    api = FakeApi(plan=plan_bytes(instructions=[shell("true", "one")]), plan_state=b"succeeded")
    with api.serving() as url:
        agent = remote(url, tmp_path)
        agent.about = lambda: b'{"checksum":"abc"}'
        step(agent)
        assert api.text("agent") == '{"checksum":"abc"}'
        before = len(api.puts)
        step(agent)
        assert len(api.puts) == before, "it is said once"
        api.before_put.append(lambda: api.set(hello=b"from somebody else"))
        agent.about = lambda: b'{"checksum":"abc","refused":{}}'
        step(agent)
        assert api.text("agent") == '{"checksum":"abc","refused":{}}' and api.text("hello")


def test_a_plan_that_can_not_be_begun_says_why_until_it_is(tmp_path: Path) -> None:
    (tmp_path / "host").write_text("not a directory")
    plan = plan_bytes(files=[file(tmp_path / "host/a")], instructions=[shell("echo 1", "one")])
    api = FakeApi(plan=plan, plan_state=b"pending")
    with api.serving() as url:
        agent = remote(url, tmp_path)
        for _ in range(2):
            with pytest.raises((AgentError, OSError)) as stuck:
                step(agent)
            agent.complain(str(stuck.value))
        assert api.text("plan-state") == "in-progress" and "host" in api.text("failure-reason")
        assert len(api.puts) == 2, "it was claimed, and said once"
        (tmp_path / "host").unlink()
        step(agent)
        assert (api.text("plan-state"), api.text("failure-reason")) == ("succeeded", "")


def test_a_failed_plan_waits_for_the_server(tmp_path: Path) -> None:
    api = FakeApi(plan=plan_bytes(instructions=[shell(f"echo x >> {tmp_path}/runs; exit 1")]), plan_state=b"pending")
    with api.serving() as url:
        agent = remote(url, tmp_path)
        for _ in range(3):
            step(agent)
        assert (api.text("plan-state"), api.text("failure-count")) == ("failed", "1")
        assert (tmp_path / "runs").read_text() == "x\n"
        api.set(plan_state=b"pending")
        step(agent)
        assert (tmp_path / "runs").read_text() == "x\nx\n"
        assert (api.text("plan-revision"), api.text("failure-count")) == ("2", "2")


def test_the_older_flow_retries_after_thirty_seconds_up_to_its_limit(tmp_path: Path) -> None:
    script = f'echo "$CATTLE_AGENT_ATTEMPT_NUMBER" >> {tmp_path}/runs; exit 1'
    api = FakeApi(plan=plan_bytes(instructions=[shell(script)]), max_failures=b"2")
    clock = FixedClock()
    with api.serving() as url:
        agent = remote(url, tmp_path, clock)
        for _ in range(20):
            step(agent)
            clock.advance(5)
        assert (tmp_path / "runs").read_text() == "1\n2\n"
        assert (api.text("failure-count"), api.text("applied-checksum"), api.text("success-count")) == ("2", "", "0")


def test_the_older_flow_applies_once_after_each_start(tmp_path: Path) -> None:
    api = FakeApi(plan=plan_bytes(instructions=[shell(f"echo x >> {tmp_path}/runs")]))
    with api.serving() as url:
        for starts in (1, 2):
            agent = remote(url, tmp_path)
            step(agent)
            step(agent)
            assert (tmp_path / "runs").read_text() == "x\n" * starts
        assert api.text("success-count") == "2"


def test_a_report_that_conflicts_is_laid_over_the_servers_write(tmp_path: Path) -> None:
    api = FakeApi(plan=plan_bytes(instructions=[shell("true")]), plan_state=b"pending")
    with api.serving() as url:
        api.before_put = [lambda: None, lambda: api.set(appliedPlan=b"server's")]
        step(remote(url, tmp_path))
        assert (api.text("plan-state"), api.text("appliedPlan")) == ("succeeded", "server's")


def test_a_plan_that_changed_meanwhile_makes_the_report_void(tmp_path: Path) -> None:
    api = FakeApi(plan=plan_bytes(instructions=[shell(f"echo 1 >> {tmp_path}/runs")]), plan_state=b"pending")
    new = plan_bytes(instructions=[shell(f"echo 2 >> {tmp_path}/runs")])
    with api.serving() as url:
        api.before_put = [lambda: None, lambda: api.set(plan=new, plan_state=b"pending")]
        agent = remote(url, tmp_path)
        with pytest.raises(Superseded):
            step(agent)
        assert (api.text("plan-state"), api.text("applied-checksum")) == ("pending", "")
        step(agent)
        assert api.text("plan-state") == "succeeded"
        assert (tmp_path / "runs").read_text() == "1\n2\n"


def test_a_report_the_server_did_not_take_is_brought_later_and_nothing_runs_twice(tmp_path: Path) -> None:
    api = FakeApi(plan=plan_bytes(instructions=[shell(f"echo x >> {tmp_path}/runs; echo out")]), plan_state=b"pending")
    with api.serving() as url:
        api.before_put = [lambda: None, *[lambda: 500] * 10]
        agent = remote(url, tmp_path)
        with pytest.raises(ApiError):
            step(agent)
        with pytest.raises(ApiError):
            step(remote(url, tmp_path))  # restarted meanwhile
        step(remote(url, tmp_path))
        assert api.text("plan-state") == "succeeded"
        assert outputs.decode_one_time(api.data()["applied-output"]) == {"step": b"out\n"}
        assert (tmp_path / "runs").read_text() == "x\n"


class Killed(BaseException):
    """kill -9: nothing after it runs."""


@pytest.mark.parametrize("flow", ["plan-state", "checksums"])
@pytest.mark.parametrize("fails", [False, True])
def test_an_agent_killed_around_any_write_runs_the_plan_once(tmp_path: Path, flow: str, fails: bool) -> None:
    for dies_at in range(8):
        root = tmp_path / str(dies_at)
        root.mkdir()
        script = f"echo x >> {root}/runs" + ("; exit 1" if fails else "")
        state = {"plan_state": b"pending"} if flow == "plan-state" else {"max_failures": b"1"}
        api = FakeApi(plan=plan_bytes(instructions=[shell(script)]), **state)
        with api.serving() as url:
            agent = remote(url, root)
            update = agent.api.update
            count = 0

            def dying(secret: dict[str, Any], update: Any = update, dies_at: int = dies_at) -> dict[str, Any]:
                nonlocal count
                for moment in ("before", "after"):
                    if count == dies_at:
                        raise Killed
                    count += 1
                    if moment == "before":
                        written: dict[str, Any] = update(secret)
                return written

            agent.api.update = dying  # type: ignore[method-assign]
            died = False
            try:
                step(agent)
            except Killed:
                died = True
            successor = remote(url, root)
            if flow == "plan-state" or not died or count % 2 == 0:
                step(successor)
            runs = (root / "runs").read_text()
            if flow == "plan-state":
                assert runs == "x\n"
                assert api.text("plan-state") == ("failed" if fails else "succeeded")
            elif died and count % 2 == 0:
                assert runs == "x\n", "the report was not written: it is owed, the run is not"
            assert api.text("failure-count") == ("1" if fails else "0")
        if not died:
            return
    raise AssertionError("the plan never came to its end")


def test_while_the_server_is_away_nothing_is_due_more_often(tmp_path: Path) -> None:
    steps = [{"name": "p", "command": "sh", "args": ["-c", f"echo x >> {tmp_path}/runs"], "periodSeconds": 60}]
    api = FakeApi(plan=plan_bytes(periodicInstructions=steps, instructions=[shell("true")]), plan_state=b"pending")
    clock = FixedClock()
    with api.serving() as url:
        agent = remote(url, tmp_path, clock)
        api.before_put = [lambda: None, *[lambda: 500] * 20]
        for _ in range(4):
            with pytest.raises(ApiError):
                step(agent)
            clock.advance(10)
        assert (tmp_path / "runs").read_text() == "x\n"
        clock.advance(60)
        step(agent)
        assert (tmp_path / "runs").read_text() == "x\nx\n"
        assert api.text("plan-state") == "succeeded"


def test_a_new_secret_of_the_same_name_is_another_one(tmp_path: Path) -> None:
    api = FakeApi(plan=plan_bytes(instructions=[shell(f"echo x >> {tmp_path}/runs")]))
    with api.serving() as url:
        agent = remote(url, tmp_path)
        step(agent)
        api.secret = {**api.secret, "metadata": {**api.secret["metadata"], "uid": "u2", "resourceVersion": "7"}}
        api.version = 7
        step(agent)
        assert (tmp_path / "runs").read_text() == "x\nx\n"


def test_without_a_plan_nothing_is_written(tmp_path: Path) -> None:
    api = FakeApi(probe_period_seconds=b"9")
    with api.serving() as url:
        assert step(remote(url, tmp_path)) == 9
        assert api.puts == []


@contextmanager
def running(agent: Remote) -> Iterator[threading.Thread]:
    agent.watch.start()
    thread = threading.Thread(target=agent.run, daemon=True)
    thread.start()
    try:
        yield thread
    finally:
        agent.stop.set()
        agent.watch.wake.set()
        thread.join(60)
        assert not thread.is_alive()


def test_a_running_agent_follows_its_secret_over_ended_watches(tmp_path: Path) -> None:
    api = FakeApi(plan=plan_bytes(instructions=[shell("true")]), plan_state=b"pending")
    api.watch_ends = True
    with api.serving() as url, running(remote(url, tmp_path, Clock())):
        api.wait(lambda a: a.text("plan-state") == "succeeded")
        for number in range(3):
            api.set(plan=plan_bytes(instructions=[shell("true")], n=number), plan_state=b"pending")
            api.wait(lambda a: a.text("plan-state") == "succeeded")
        assert api.text("plan-revision") == "4"


def test_a_ca_that_is_not_the_servers_gives_way_to_the_systems_unless_strict(tmp_path: Path) -> None:
    import base64
    import ssl

    cert, key = certificate(tmp_path, "127.0.0.1")
    other, _ = certificate(tmp_path, "other")
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(cert, key)

    def config(path: Path) -> str:
        return f"    certificate-authority-data: {base64.b64encode(path.read_bytes()).decode()}\n"

    api = FakeApi()
    with api.serving(context) as url:
        good = KubeApi(KUBECONFIG.format(url=url, ca=config(cert)), strict=True)
        assert good.check() == "v1.36.3"
        assert api.asked[-1] == ("GET", "/version", "Bearer s3cret")
        for strict in (True, False):
            stranger = KubeApi(KUBECONFIG.format(url=url, ca=config(other)), strict)
            with pytest.raises(UntrustedServer):
                stranger.check()
            assert bool(stranger._ca) is strict, "the system's roots do not know the server either, but were asked"
    with pytest.raises(ConfigError):
        KubeApi(KUBECONFIG.format(url=url, ca=""), strict=True)


def test_the_token_is_never_sent_in_clear(tmp_path: Path) -> None:
    api = FakeApi()
    with api.serving() as url:
        KubeApi(KUBECONFIG.format(url=url, ca="")).check()
    assert api.asked == [("GET", "/version", "")]


def test_progress_is_sent_in_batches_without_secrets_until_refused() -> None:
    heard: list[list[str]] = []
    status = [200]

    def listen(_: object, body: bytes) -> tuple[int, dict[str, str], bytes]:
        heard.append(json.loads(body)["lines"])
        return status[0], {}, b"{}"

    with server(listen) as url:
        api = KubeApi(KUBECONFIG.format(url=url, ca=""))
        progress = ProgressReporter(FixedClock())
        progress.say("nobody listens yet")
        progress._on, progress._secrets = True, ("s3cret",)
        progress.say("token s3cret is used")
        for number in range(500):
            progress.say(str(number))
        assert progress.send(api) == 0
        assert progress.send(api) == 0
        assert len(heard) == 1 and len(heard[0]) == 200 and heard[0][-1] == "499"
        progress.say("x s3cret y" * 1000)
        status[0] = 404
        assert progress.send(api) == 3600
        assert "s3cret" not in heard[1][0] and len(heard[1][0]) == 1000


# --- the machine was deleted ----------------------------------------------------------------------------------------------


class Unforgiving(FakeApi):
    """Refuses the token; `says` is its answer to the question whether the machine was deleted."""

    def __init__(self, says: int) -> None:
        super().__init__()
        self.says = says

    def __call__(self, request: BaseHTTPRequestHandler, body: bytes) -> tuple[int, dict[str, str], bytes] | None:
        self.asked.append((request.command, request.path, ""))
        return (self.says if request.path == "/v3/connect/progress" else 401), {}, b'{"message":"Unauthorized"}'


@pytest.mark.parametrize(("says", "error"), [(410, Departed), (401, AgentError), (404, AgentError), (503, AgentError)])
def test_an_agent_ends_for_good_only_when_the_server_knows_that_its_machine_was_deleted(
    tmp_path: Path, says: int, error: type[AgentError]
) -> None:
    api = Unforgiving(says)
    with api.serving() as url:
        agent = remote(url, tmp_path)
        agent.watch.start()
        with pytest.raises(AgentError) as caught:
            agent.run()
    assert type(caught.value) is error
    assert len(api.asked) == 13
    if error is Departed:
        assert "was deleted on 127.0.0.1" in str(caught.value)
        assert "rancher-system-agent-uninstall.sh" in str(caught.value)
