"""The same plans with Rancher's own system agent and with ours: what each leaves in the Secret and on the host.

Our server's plans drive the original, and our agent does what the original does. Where the two differ on purpose is said in
`WIPED`, with the reason; everything else is compared field by field.
"""

from __future__ import annotations

import base64
import contextlib
import io
import json
import ssl
import subprocess
import tarfile
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler
from pathlib import Path
from typing import Any

import pytest

from remuda.provisioning.plans.machine_plan_secret import decode, with_question
from remuda.provisioning.plans.plan import File, HttpGet, Instruction, PeriodicInstruction, Plan, Probe, checksum, encode
from tests.e2e.serving import eventually
from tests.integration.agent.builders import server
from tests.real.systemagents import KINDS, ORIGINAL, OURS, Agent, Api, PlanSecret, both_possible, named, serving, unpacked
from tests.unit.certificates import certificate

pytestmark = [pytest.mark.real, pytest.mark.timeout(1500)]

Obj = dict[str, Any]

# After a failed plan with a state, the original's next pass calls it applied and wipes what failed, so that only the state tells
# (docs/reference/agent.md#decision). Ours leaves the results of the run as they are.
WIPED = ("applied-checksum", "applied-output", "failed-checksum", "failed-output", "failure-count")


@pytest.fixture(scope="module")
def api(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Api]:
    both_possible()
    with serving(tmp_path_factory.mktemp("systemagent") / "server") as started:
        yield started


@pytest.fixture
def probed() -> Iterator[str]:
    def handle(request: BaseHTTPRequestHandler, body: bytes) -> tuple[int, dict[str, str], bytes]:
        if request.path == "/moved":
            return 302, {"Location": "/good"}, b""
        return (200 if request.path == "/good" else 503), {}, b""

    with server(handle) as url:
        yield url


def sh(script: str, name: str = "", **more: Any) -> Instruction:
    return Instruction(name=name, command="sh", args=("-c", script), saveOutput=bool(name), **more)


class Pair:
    """Both agents, each with a plan of its own that says the same."""

    def __init__(self, api: Api, name: str, directory: Path) -> None:
        self.plans = {kind: api.plan(f"{name}-{kind[:6]}", directory / kind) for kind in KINDS}
        self.agents = {kind: Agent.remote(kind, plan, api) for kind, plan in self.plans.items()}

    def __enter__(self) -> Pair:
        for agent in self.agents.values():
            agent.start()
        return self

    def __exit__(self, *_: object) -> None:
        for agent in self.agents.values():
            agent.kill()

    def give(self, plan: Plan | bytes, **how: Any) -> None:
        for each in self.plans.values():
            each.give(plan, **how)

    def until(self, true: Callable[[PlanSecret], bool], seconds: float = 180) -> None:
        for kind, agent in self.agents.items():
            agent.until(lambda kind=kind: true(self.plans[kind]), seconds)

    def said(self, *without: str, once: Callable[[Obj], bool] = bool) -> Obj:
        """What both say, once it is the same and so far, or as it is when it never becomes that."""
        seen: list[Obj] = []

        def same(_: PlanSecret) -> bool:
            seen[:] = [_without(plan.said(), without) for plan in self.plans.values()]
            return bool(seen[0] == seen[1] and once(seen[0]))

        try:
            self.until(same)
        except AssertionError:
            assert seen[0] == seen[1]
        return seen[0]

    def trees(self, below: str = "made") -> dict[str, tuple[str, int, int, str]]:
        ours, original = (self.agents[kind].tree(below) for kind in (OURS, ORIGINAL))
        assert ours == original
        return ours


def _without(said: Obj, keys: tuple[str, ...]) -> Obj:
    return {key: value for key, value in said.items() if key not in keys}


def in_state(state: str) -> Callable[[PlanSecret], bool]:
    return lambda plan: plan.text("plan-state") == state


FILES = (
    File.of("{root}/made/config.yaml", b"a: 1\n", permissions="0640"),
    File.of("{root}/made/deep/er/plain", b""),
    File(path="{root}/made/directory", directory=True),
    File(path="{root}/made/closed", directory=True, permissions="0700"),
    File(path="{root}/made/gone", action="delete"),
    File.of("{root}/made/dynamic", "ü\n", dynamic=True, minor=True),
)
WORK = (
    sh("echo out; echo err >&2; printf 'no end'", "one"),
    sh("true", "silent"),
    sh('echo "$CATTLE_AGENT_ATTEMPT_NUMBER $A $B"', "variables", env=("A=1", "B=a b=c")),
    sh("printf 'windows\\r\\n\\nlast\\n'", "lines"),
    sh(
        "pwd | sed s,/[0-9-]*/[0-9a-f]*_,/T/C_,; echo $CATTLE_AGENT_EXECUTION_PWD | grep -c $PWD; echo $PATH | grep -c $PWD",
        "where",
    ),
    Instruction(command="sh", args=("-c", "echo unnamed; echo ran >> {root}/made/ran")),
)


def whole(probed: str) -> Plan:
    return Plan(
        files=FILES,
        instructions=WORK,
        periodicInstructions=(
            PeriodicInstruction(name="often", command="sh", args=("-c", "echo p; echo e >&2"), periodSeconds=3600),
            PeriodicInstruction(name="both", command="sh", args=("-c", "echo p; echo e >&2"), saveStderrOutput=True),
            PeriodicInstruction(command="sh", args=("-c", "touch {root}/made/nameless")),
        ),
        probes={
            "good": Probe(
                name="good", timeoutSeconds=5, successThreshold=2, failureThreshold=2, httpGet=HttpGet(f"{probed}/good")
            ),
            "bad": Probe(name="bad", timeoutSeconds=5, successThreshold=1, failureThreshold=2, httpGet=HttpGet(f"{probed}/bad")),
            "moved": Probe(name="moved", timeoutSeconds=5, httpGet=HttpGet(f"{probed}/moved")),
            "nobody": Probe(name="nobody", timeoutSeconds=1, httpGet=HttpGet("http://127.0.0.1:1/")),
        },
    )


def settled(said: Obj) -> bool:
    """Applied, and its probes have been asked often enough; a probe that was late once begins anew."""
    told = said.get("probe-statuses") or {}
    counted = told.get("good", {}).get("successCount") == 2 and told.get("nobody", {}).get("failureCount") == 3
    return bool(counted and said.get("applied-checksum"))


@pytest.mark.parametrize("legacy", [False, True], ids=["with a state", "without"])
def test_a_plan_is_applied(api: Api, probed: str, tmp_path: Path, legacy: bool) -> None:
    with Pair(api, f"applied-{legacy}".lower(), tmp_path) as pair:
        for kind in KINDS:
            made = tmp_path / kind / "made"
            made.mkdir()
            (made / "gone").write_text("x")
        pair.give(whole(probed), legacy=legacy, probe_period_seconds="1")
        said = pair.said(once=settled)
        assert said["applied-checksum"] == "{checksum}" and said["failure-count"] == "0" and said["success-count"] == "1"
        assert ("plan-state" in said, said.get("plan-revision")) == ((False, None) if legacy else (True, "1"))
        assert said["applied-output"] == {
            "one": "out\nno end\n",
            "silent": None,
            "variables": "1 1 a b=c\n",
            "lines": "windows\n\nlast\n",
            "where": "{root}/agent/work/T/C_4\n1\n1\n",
        }
        assert said["applied-periodic-output"]["both"]["stderr"] == "e\n"
        assert said["probe-statuses"]["good"] == {"healthy": True, "successCount": 2}
        found = pair.trees()
        assert found["made/config.yaml"][1:] == (0o640, 0, "a: 1\n") and "made/gone" not in found
        assert found["made/ran"][3] == "ran\n", "once"
        history(pair, whole(probed))
        for kind in KINDS:
            ask(pair.plans[kind])
        pair.until(is_answered)
        after = pair.said(once=settled)
        assert after["success-count"] == "1" and after["probe-statuses"]["good"] == {"healthy": True, "successCount": 2}


def ask(plan: PlanSecret) -> None:
    """Whether its agent is there."""
    eventually(lambda: plan.ask("PUT", plan.path, with_question(plan.get()))[0] == 200, 60, why="it can't be asked")


def is_answered(plan: PlanSecret) -> bool:
    found = decode(plan.get())
    return found is not None and not found.asked


def history(pair: Pair, plan: Plan) -> None:
    """What was applied is kept on the host, in the same words."""
    kept = {}
    for kind, agent in pair.agents.items():
        (path,) = (agent.root / "agent/applied").glob("*-applied.plan")
        text = path.read_text().replace(str(agent.root), "{root}")
        kept[kind] = text.replace(checksum(encode(plan).replace(b"{root}", str(agent.root).encode())), "{checksum}")
    assert kept[OURS] == kept[ORIGINAL]


@pytest.mark.parametrize("legacy", [False, True], ids=["with a state", "without"])
def test_a_plan_fails(api: Api, tmp_path: Path, legacy: bool) -> None:
    plan = Plan(
        instructions=(
            sh('echo "$CATTLE_AGENT_ATTEMPT_NUMBER" | tee -a {root}/made/tries', "first"),
            sh("echo before; exit 3", "second"),
            sh("echo never > {root}/made/never", "third"),
        ),
        files=(File(path="{root}/made", directory=True),),
        periodicInstructions=(PeriodicInstruction(name="still", command="true"),),
    )
    with Pair(api, f"failing-{legacy}".lower(), tmp_path) as pair:
        # Once for now: what may be tried again is so half a minute later, whoever has looked by then.
        pair.give(plan, legacy=legacy, max_failures="1" if legacy else "2")
        if legacy:
            pair.until(lambda secret: secret.text("failure-count") == "1")
            assert pair.said()["failed-output"] == {"first": "1\n", "second": "before\n"}
            for each in pair.plans.values():
                # As if half a minute had passed, after which it is tried again.
                each.put(last_apply_time="Sun Nov 15 07:03:16 UTC 2020", max_failures="2")
            pair.until(lambda secret: secret.text("failure-count") == "2")
            said = pair.said()
            assert (said["failed-checksum"], said["failed-output"]["first"], said["success-count"]) == ("{checksum}", "2\n", "0")
            assert said["applied-checksum"] == ""
            assert pair.trees()["made/tries"][3] == "1\n2\n"
            return
        pair.until(in_state("failed"))
        said = pair.said(*WIPED)
        assert (said["plan-state"], said["success-count"], said["plan-revision"]) == ("failed", "0", "1")
        assert said["applied-periodic-output"]["still"]["exitCode"] == 0
        ours = pair.plans[OURS].said()
        assert (ours["failed-checksum"], ours["failure-count"]) == ("{checksum}", "1")
        assert pair.trees()["made/tries"][3] == "1\n"


def test_the_next_plan_starts_from_the_last(api: Api, tmp_path: Path) -> None:
    with Pair(api, "next", tmp_path) as pair:
        pair.give(Plan(instructions=(sh("echo 1", "a"), sh("echo 1", "b"))))
        pair.until(in_state("succeeded"))
        pair.give(Plan(instructions=(sh("echo 2", "b"), sh("echo 2", "c"))))
        pair.until(lambda plan: plan.text("success-count") == "2")
        said = pair.said()
        assert (said["plan-revision"], said["applied-output"]) == ("2", {"a": "1\n", "b": "2\n", "c": "2\n"})


def test_a_plan_that_failed_is_followed_by_one_that_does_not(api: Api, tmp_path: Path) -> None:
    with Pair(api, "healed", tmp_path) as pair:
        pair.give(Plan(instructions=(sh("exit 1", "a"),)))
        pair.until(in_state("failed"))
        pair.give(Plan(instructions=(sh("echo well", "a"),)))
        pair.until(in_state("succeeded"))
        said = pair.said()
        assert (said["failure-count"], said["failed-checksum"], said["failed-output"]) == ("0", "", "")
        assert said["applied-output"] == {"a": "well\n"}


def test_an_agent_that_died_does_its_plan_again(api: Api, tmp_path: Path) -> None:
    with Pair(api, "died", tmp_path) as pair:
        pair.give(
            Plan(instructions=(sh('echo "$CATTLE_AGENT_ATTEMPT_NUMBER"', "a"),)), plan_state="in-progress", failure_count="2"
        )
        pair.until(in_state("succeeded"))
        said = pair.said()
        assert said["applied-output"] == {"a": "3\n"} and "plan-revision" not in said


@pytest.mark.parametrize("state", ["succeeded", "failed", "cancelled"])
def test_a_plan_that_is_over_is_left_alone(api: Api, tmp_path: Path, state: str) -> None:
    with Pair(api, f"over-{state}", tmp_path) as pair:
        plan = Plan(
            instructions=(sh("touch {root}/ran", "a"),), periodicInstructions=(PeriodicInstruction(name="p", command="true"),)
        )
        pair.give(plan, plan_state=state)
        pair.until(lambda secret: bool(secret.text("applied-periodic-output")))
        said = pair.said(*WIPED)
        assert said["plan-state"] == state and "last-apply-time" not in said
        assert not any((agent.root / "ran").exists() for agent in pair.agents.values())


def test_a_periodic_instruction_fails(api: Api, tmp_path: Path) -> None:
    with Pair(api, "periodic", tmp_path) as pair:
        failing = PeriodicInstruction(name="bad", command="sh", args=("-c", "echo x; exit 4"), periodSeconds=3600)
        after = PeriodicInstruction(name="after", command="true")
        pair.give(Plan(instructions=(sh("echo 1", "a"),), periodicInstructions=(failing, after)))
        pair.until(in_state("succeeded"))
        found = pair.said()["applied-periodic-output"]
        assert (found["bad"]["exitCode"], found["bad"]["failures"], found["bad"]["lastSuccessfulRunTime"]) == (4, 1, "")


def test_a_plan_counts_by_its_bytes(api: Api, tmp_path: Path) -> None:
    step = rb"""{"args":["-c","echo '<&> \u00fc'"],"command":"sh","saveOutput":true,"name":"a"}"""
    odd = b' {"unknown": [1], "instructions" : [' + step + b"]}\n"
    with Pair(api, "bytes", tmp_path) as pair:
        pair.give(odd)
        pair.until(in_state("succeeded"))
        said = pair.said()
        assert (said["applied-checksum"], said["plan"]) == ("{checksum}", odd.decode())
        assert said["applied-output"] == {"a": "<&> ü\n"}
        pair.give(b"{ no plan")
        for agent in pair.agents.values():
            agent.until(lambda agent=agent: "invalid character" in agent.told() or "not JSON" in agent.told())
        said = pair.said()
        assert (said["plan-state"], said["plan-revision"]) == ("pending", "1"), "nobody takes up what can't be read"
        pair.give(odd)
        pair.until(lambda plan: plan.text("success-count") == "2")
        pair.said()


def image(path: Path, tag: str, files: dict[str, tuple[int, bytes]]) -> None:
    """An image in a file, as docker saves it."""
    layer = io.BytesIO()
    with tarfile.open(fileobj=layer, mode="w") as archive:
        for name, (mode, content) in files.items():
            _add(archive, name, content, mode)
    digest = checksum(layer.getvalue())
    config = json.dumps(
        {"architecture": "amd64", "os": "linux", "config": {}, "rootfs": {"type": "layers", "diff_ids": [f"sha256:{digest}"]}}
    ).encode()
    with tarfile.open(path, "w") as archive:
        _add(archive, "config.json", config)
        _add(archive, "layer.tar", layer.getvalue())
        _add(
            archive, "manifest.json", json.dumps([{"Config": "config.json", "RepoTags": [tag], "Layers": ["layer.tar"]}]).encode()
        )


def _add(archive: tarfile.TarFile, name: str, content: bytes, mode: int = 0o644) -> None:
    about = tarfile.TarInfo(name)
    about.size, about.mode = len(content), mode
    archive.addfile(about, io.BytesIO(content))


def test_an_image_is_run(api: Api, tmp_path: Path) -> None:
    listing = "ls -l | awk 'NR > 1 { print $1, $NF }'; basename $CATTLE_AGENT_EXECUTION_PWD | cut -d_ -f2"
    run = f'#!/bin/sh\necho "run $1"; tool; {listing}\n'.encode()
    tag = "rancher/system-agent-installer-x:v1"
    with Pair(api, "image", tmp_path) as pair:
        for agent in pair.agents.values():
            files = {"run.sh": (0o755, run), "tool": (0o777, b"#!/bin/sh\necho tool\n"), "data": (0o600, b"x")}
            image(agent.root / "agent/images/one.tar", tag, files)
        plain = Instruction(name="plain", image=tag, args=("a",), saveOutput=True)
        pair.give(Plan(instructions=(plain, sh("run.sh b", "by-name", image=tag))))
        pair.until(in_state("succeeded"))
        found = pair.said()["applied-output"]
        assert found["plain"].splitlines() == ["run a", "tool", "-rw------- data", "-rwxr-xr-x run.sh", "-rwxr-xr-x tool", "0"]
        assert found["by-name"].splitlines()[:2] == ["run b", "tool"]


# --- local plans --------------------------------------------------------------------------------------------------------


def position(agent: Agent, name: str) -> Obj:
    path = agent.root / f"agent/plans/{name}.pos"
    found: list[Obj] = [{}]

    def whole() -> bool:
        # The original writes it in place, so that a part may be there for a moment.
        with contextlib.suppress(ValueError):
            found[0] = json.loads(path.read_text()) if path.exists() else {}
            return True
        return False

    eventually(whole, 60, why=f"{path} is no position")
    return found[0]


def shown(agent: Agent, name: str) -> Obj:
    found = position(agent, name)
    plan = (agent.root / f"agent/plans/{name}.plan").read_bytes()
    for key in ("output", "periodicOutput"):
        if found.get(key):
            found[key] = unpacked(base64.b64decode(found[key]))
    return dict(named(found, {checksum(plan): "{checksum}", str(agent.root): "{root}"}))


def alike(agents: dict[str, Agent], name: str) -> Obj:
    """What both show, once it is the same: each is at some place of its round when one looks."""
    seen: list[Obj] = []

    def same() -> bool:
        seen[:] = [shown(agents[kind], name) for kind in (OURS, ORIGINAL)]
        return bool(seen[0] == seen[1])

    with contextlib.suppress(AssertionError):
        eventually(same, every=0.2)
    assert seen[0] == seen[1]
    return seen[0]


def test_plans_in_files(tmp_path: Path, probed: str) -> None:
    both_possible()
    agents = {kind: Agent.local(kind, tmp_path / kind) for kind in KINDS}
    failing = Plan(instructions=(sh("echo before", "a"), sh("exit 2", "b")))
    try:
        for agent in agents.values():
            plans = agent.root / "agent/plans"
            for name, plan in (("whole", whole(probed)), ("failing", failing), ("skipped", failing), (".hidden", failing)):
                (plans / f"{name}.plan").write_bytes(encode(plan).replace(b"{root}", str(agent.root).encode()))
            (plans / "skipped.plan.skip").touch()
            agent.start()
        for agent in agents.values():
            agent.until(lambda agent=agent: "nobody" in (position(agent, "whole").get("probeStatus") or {}))
            agent.until(lambda agent=agent: position(agent, "whole")["probeStatus"]["nobody"].get("failureCount") == 3)
            agent.until(lambda agent=agent: bool(position(agent, "failing")))
        for name in ("whole", "failing"):
            assert alike(agents, name)["appliedChecksum"] == "{checksum}"
            modes = [(agent.root / f"agent/plans/{name}.pos").stat().st_mode & 0o777 for agent in agents.values()]
            assert modes == [0o600, 0o600]
        assert not any(position(agent, name) for agent in agents.values() for name in ("skipped", ".hidden"))
        assert agents[OURS].tree("made") == agents[ORIGINAL].tree("made")
    finally:
        for agent in agents.values():
            agent.kill()


# --- files that agents are started with ----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("mode", "connection", "good"),
    [
        (0o600, {"kubeConfig": "x", "namespace": "n", "secretName": "s"}, True),
        (0o600, {"kubeConfig": "x", "namespace": "n", "secretName": "s", "more": 1}, True),
        (0o600, {"kubeConfig": "x", "namespace": "n"}, False),
        (0o600, {"kubeConfig": "", "namespace": "n", "secretName": "s"}, False),
        (0o644, {"kubeConfig": "x", "namespace": "n", "secretName": "s"}, False),
        (0o400, {"kubeConfig": "x", "namespace": "n", "secretName": "s"}, False),
    ],
)
def test_connections_are_judged_alike(tmp_path: Path, mode: int, connection: Obj, good: bool) -> None:
    both_possible()
    path = tmp_path / "info.json"
    path.write_text(json.dumps(connection))
    path.chmod(mode)
    for kind in KINDS:
        agent = Agent.local(kind, tmp_path / kind)
        done = subprocess.run([*agent.command(), "validate-connection", str(path)], capture_output=True, check=False)
        assert (done.returncode == 0) is good, (kind, done.stderr)


# --- what comes in between -----------------------------------------------------------------------------------------------


def test_an_installer_that_never_returned_delays_nothing(api: Api, tmp_path: Path) -> None:
    with Pair(api, "interlock", tmp_path) as pair:
        for agent in pair.agents.values():
            (agent.root / "agent/interlock/restart-pending").write_text("Sun Nov 15 07:03:16 UTC 2020")
        pair.give(Plan(instructions=(sh("ls {root}/agent/interlock", "a"),)))
        pair.until(in_state("succeeded"))
        assert pair.said()["applied-output"] == {"a": "applyinator-active\n"}
        for agent in pair.agents.values():
            agent.until(lambda agent=agent: not list((agent.root / "agent/interlock").iterdir()))


def test_the_server_writes_while_a_plan_runs(api: Api, tmp_path: Path) -> None:
    with Pair(api, "between", tmp_path) as pair:
        pair.give(Plan(instructions=(sh("while [ ! -e {root}/go ]; do sleep 0.1; done; echo done", "a"),)))
        pair.until(in_state("in-progress"))
        for kind, plan in pair.plans.items():
            plan.put(appliedPlan="another", probe_period_seconds="1")
            (pair.agents[kind].root / "go").touch()
        pair.until(in_state("succeeded"))
        said = pair.said()
        assert (said["appliedPlan"], said["applied-output"], said["plan-revision"]) == ("another", {"a": "done\n"}, "1")


def test_a_secret_that_was_made_anew_is_a_new_one(api: Api, tmp_path: Path) -> None:
    with Pair(api, "anew", tmp_path) as pair:
        plan = Plan(instructions=(sh("echo x >> {root}/runs; cat {root}/runs", "a"),))
        pair.give(plan, legacy=True)
        pair.until(lambda secret: secret.text("success-count") == "1")
        for secret in pair.plans.values():
            before = secret.get()
            assert api.ask("DELETE", secret.path)[0] == 200
            meta = {key: before["metadata"][key] for key in ("name", "labels")}
            made = {
                "apiVersion": "v1",
                "kind": "Secret",
                "type": before["type"],
                "metadata": meta,
                "data": {"plan": before["data"]["plan"]},
            }
            assert api.ask("POST", secret.path.rpartition("/")[0], made)[0] == 201
        pair.until(lambda secret: secret.text("success-count") == "1")
        assert pair.said()["applied-output"] == {"a": "x\nx\n"}


def test_probes_trust_the_given_ca(api: Api, tmp_path: Path) -> None:
    cert, key = certificate(tmp_path, "probed")
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(cert, key)
    with server(lambda request, body: (200, {}, b""), context) as url, Pair(api, "trust", tmp_path) as pair:
        asked = {
            "told": HttpGet(url, caCert=str(cert)),
            "careless": HttpGet(url, insecure=True),
            "strict": HttpGet(url),
            "missing": HttpGet(url, caCert=str(tmp_path / "none")),
            "shows": HttpGet(url, caCert=str(cert), clientCert=str(cert), clientKey=str(key)),
        }
        limits = {"timeoutSeconds": 10, "successThreshold": 1, "failureThreshold": 1}
        pair.give(Plan(probes={name: Probe(name=name, httpGet=get, **limits) for name, get in asked.items()}))
        trusting = {"told", "careless", "shows"}

        def healthy(said: Obj) -> set[str]:
            return {name for name, status in said["probe-statuses"].items() if status.get("healthy")}

        # One that is late once is asked again.
        found = pair.said(once=lambda said: len(said.get("probe-statuses") or {}) == len(asked) and healthy(said) == trusting)
        assert healthy(found) == trusting and len(found["probe-statuses"]) == len(asked)
