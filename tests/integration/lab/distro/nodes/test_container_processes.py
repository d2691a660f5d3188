"""Pods of known images run as processes: with their files, variables and token, restarted when they end, gone when deleted."""

from __future__ import annotations

import asyncio
import base64
import json
import os
import re
import sys
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from remuda.client.interface import Send, WrappedClient
from remuda.kube.builtin_resources import EVENTS, PODS
from remuda.kube.clock import SYSTEM_CLOCK
from remuda.kube.conditions import is_true
from remuda.kube.errors import ApiError
from remuda.kube.objects import dig, uid_of
from remuda.lab.distro.nodes import BuiltinProgram, NodeConfig, PodDelays, run_node
from remuda.lab.distro.nodes.builtin_programs import BUILT_IN, program_of
from remuda.lab.distro.nodes.pod_volumes import CONFIG_MAPS, SECRETS
from remuda.lab.distro.nodes.sandboxes import Process
from tests.unit.lab.distro.nodes.simulated_cluster import NAMESPACE, Village, village
from tests.waiting import until

Obj = dict[str, Any]

# Tells what it was given in a file, then does as a file says.
_PROGRAM = """
import json, os, pathlib, signal, sys, time
place = pathlib.Path(sys.argv[sys.argv.index("--place") + 1])
account = pathlib.Path(sys.argv[sys.argv.index("--account") + 1])
told = {
    "pid": os.getpid(),
    "environment": dict(os.environ),
    "files": {str(path.relative_to(place)): path.read_text() for path in sorted(place.rglob("*")) if path.is_file()},
    "account": {path.name: path.read_text() for path in account.iterdir()},
}
print("begun", flush=True)
out = pathlib.Path("told.new"); out.write_text(json.dumps(told)); out.rename("told")
if "STUBBORN" in os.environ:
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
while not pathlib.Path("end").exists():
    time.sleep(0.02)
sys.exit(int(pathlib.Path("end").read_text()))
"""
_SHOW = BuiltinProgram(
    "test/show",
    (sys.executable, "-I", "-c", _PROGRAM),
    {"--place": "/settings", "--account": "/var/run/secrets/kubernetes.io/serviceaccount"},
    re.compile(r"TEST_\w+|STUBBORN|KUBERNETES_\w+|HOSTNAME"),
)


@pytest.fixture
async def place(tmp_path: Path) -> AsyncIterator[Village]:
    async with village(clock=SYSTEM_CLOCK) as found:
        await _materials(found)
        await _start(found, tmp_path)
        yield found


async def _materials(found: Village) -> None:
    await found.make(CONFIG_MAPS, _object("ConfigMap", "colours", data={"sky": "blue", "grass": "green"}))
    secret = {"password": base64.b64encode(b"hunter2").decode()}
    await found.make(SECRETS, _object("Secret", "keys", data=secret))


async def _start(found: Village, root: Path) -> None:
    pace = PodDelays(0.0, 0.0, 0.1, restart=1.0, retry=0.2)
    await found.add_node("a", root=root, programs=(_SHOW, *BUILT_IN), pace=pace, api_server="https://127.1.2.3:6443")


def _object(kind: str, name: str, **rest: Any) -> Obj:
    return {"apiVersion": "v1", "kind": kind, "metadata": {"name": name, "namespace": NAMESPACE}, **rest}


def _pod(name: str = "show", **spec: Any) -> Obj:
    sources = [
        {"configMap": {"name": "colours", "items": [{"key": "sky", "path": "colours/sky"}]}},
        {"secret": {"name": "keys"}},
        {"downwardAPI": {"items": [{"path": "me", "fieldRef": {"fieldPath": "metadata.name"}}]}},
    ]
    container = {
        "name": "main",
        "image": "registry.example.org:5000/test/show:v1@sha256:" + 64 * "0",
        "env": [
            {"name": "TEST_PLAIN", "value": "a $(KUBERNETES_SERVICE_HOST) $$(b)"},
            {"name": "TEST_SECRET", "valueFrom": {"secretKeyRef": {"name": "keys", "key": "password"}}},
            {"name": "TEST_NODE", "valueFrom": {"fieldRef": {"fieldPath": "spec.nodeName"}}},
            {"name": "LD_PRELOAD", "value": "/settings/evil.so"},
            *spec.pop("env", ()),
        ],
        "volumeMounts": [{"name": "settings", "mountPath": "/settings"}],
    }
    volumes = [{"name": "settings", "projected": {"sources": sources}}]
    return _object("Pod", name, spec={"containers": [container], "volumes": volumes, **spec})


def _directory(root: Path, pod: Obj) -> Path:
    return root / "var/lib/kubelet/pods" / uid_of(pod) / "main"


async def _told(place: Village, root: Path, pod: Obj) -> Obj:
    path = _directory(root, pod) / "told"

    async def there() -> bool:
        return path.exists()

    await place.until("the process tells what it was given", there)
    found: Obj = json.loads(path.read_text())
    return found


def _end(directory: Path, code: int) -> None:
    """Tell the process to end so; whole at once, since it may look at any moment."""
    (directory / "end.new").write_text(str(code))
    (directory / "end.new").rename(directory / "end")


def _lives(pid: int) -> bool:
    try:
        # One that has ended and was not waited for lives no more.
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except (FileNotFoundError, ProcessLookupError):
        return False


async def _ended(place: Village, pid: int) -> None:
    async def ended() -> bool:
        return not _lives(pid)

    await place.until(f"process {pid} has ended", ended)


async def _ready(place: Village, name: str = "show") -> Obj:
    async def ready() -> Obj | None:
        pod = await place.get(PODS, name)
        return pod if is_true(pod, "Ready") else None

    found: Obj = await place.until("the pod is ready", ready)
    return found


async def test_a_process_gets_what_its_pod_says(place: Village, tmp_path: Path) -> None:
    pod = await place.make(PODS, _pod())
    told = await _told(place, tmp_path, pod)
    environment = told["environment"]
    assert environment["TEST_PLAIN"] == "a 127.1.2.3 $(b)"
    assert environment["TEST_SECRET"] == "hunter2"
    assert environment["TEST_NODE"] == "a"
    assert environment["KUBERNETES_SERVICE_PORT"] == "6443"
    assert environment["HOSTNAME"] == "show"
    assert "LD_PRELOAD" not in environment
    assert told["files"] == {"colours/sky": "blue", "me": "show", "password": "hunter2"}
    assert told["account"]["namespace"] == NAMESPACE
    assert told["account"]["ca.crt"] == "ca"
    assert told["account"]["token"].count(".") == 2
    status = (await _ready(place))["status"]
    assert status["podIP"] == "127.0.0.1"
    assert not status.get("message")
    logs = tmp_path / f"var/log/pods/{NAMESPACE}_show_{uid_of(pod)}/main/0.log"
    assert logs.read_text() == "begun\n"


async def test_a_process_that_ends_is_started_again_after_a_pause(place: Village, tmp_path: Path) -> None:
    pod = await place.make(PODS, _pod())
    told = await _told(place, tmp_path, pod)
    (_directory(tmp_path, pod) / "told").unlink()
    _end(_directory(tmp_path, pod), 7)

    async def pausing() -> Obj | None:
        status = dig(await place.get(PODS, "show"), "status", "containerStatuses", 0)
        return status if dig(status, "state", "waiting", "reason") == "CrashLoopBackOff" else None

    status = await place.until("it pauses", pausing)
    assert dig(status, "lastState", "terminated", "exitCode") == 7
    (_directory(tmp_path, pod) / "end").unlink()
    again = await _told(place, tmp_path, pod)
    assert again["pid"] != told["pid"]
    log = tmp_path / f"var/log/pods/{NAMESPACE}_show_{uid_of(pod)}/main/0.log"

    async def counted() -> bool:
        # More than once when the pause was over before we looked.
        starts = log.read_text().count("begun\n")
        return bool(dig(await _ready(place), "status", "containerStatuses", 0, "restartCount") == starts - 1 > 0)

    await place.until("each restart is counted", counted)

    async def told_of() -> bool:
        events = (await place.client.list(EVENTS, NAMESPACE, fields="involvedObject.name=show,source=kubelet"))["items"]
        return {each["reason"] for each in events} == {"Started", "BackOff"}

    await place.until("there are events about it", told_of)


async def test_a_deleted_pod_is_told_to_go_and_leaves_nothing(place: Village, tmp_path: Path) -> None:
    pod = await place.make(PODS, _pod())
    told = await _told(place, tmp_path, pod)
    await place.client.delete(PODS, "show", NAMESPACE)
    await _ended(place, told["pid"])
    await place.until("the pod is gone", lambda: _gone(place, "show"))
    assert not _directory(tmp_path, pod).parent.exists()


async def test_one_that_does_not_listen_is_killed_when_its_grace_ends(place: Village, tmp_path: Path) -> None:
    pod = await place.make(PODS, _pod(env=[{"name": "STUBBORN", "value": "1"}], terminationGracePeriodSeconds=1))
    told = await _told(place, tmp_path, pod)
    await place.client.delete(PODS, "show", NAMESPACE)
    await _ended(place, told["pid"])
    await place.until("the pod is gone", lambda: _gone(place, "show"))


async def _gone(place: Village, name: str) -> bool:
    return await place.find(PODS, name) is None


async def test_a_pod_that_was_deleted_by_force_does_not_run_on(place: Village, tmp_path: Path) -> None:
    pod = await place.make(PODS, _pod())
    told = await _told(place, tmp_path, pod)
    await place.client.delete(PODS, "show", NAMESPACE, grace_seconds=0)
    await _ended(place, told["pid"])


async def test_mounted_files_follow_what_they_are_made_of(place: Village, tmp_path: Path) -> None:
    pod = await place.make(PODS, _pod())
    await _told(place, tmp_path, pod)
    await place.patch(CONFIG_MAPS, "colours", {"data": {"sky": "grey"}})
    # Any change of the pod is a reason to look; without one it takes a minute.
    await place.patch(PODS, "show", {"metadata": {"labels": {"look": "again"}}})
    path = _directory(tmp_path, pod).parent / "volumes/settings/colours/sky"

    async def changed() -> bool:
        return path.read_text() == "grey"

    await place.until("the file has changed", changed)


async def test_a_pod_waits_for_what_is_missing(place: Village, tmp_path: Path) -> None:
    wanted = {"name": "TEST_LATE", "valueFrom": {"secretKeyRef": {"name": "late", "key": "x"}}}
    pod = await place.make(PODS, _pod(env=[wanted]))

    async def waits() -> Obj | None:
        found = dig(await place.get(PODS, "show"), "status", "containerStatuses", 0, "state", "waiting")
        return found if dig(found, "message") else None

    waiting = await place.until("it says what it waits for", waits)
    assert waiting == {"reason": "CreateContainerConfigError", "message": 'secret "late" not found'}
    await place.make(SECRETS, _object("Secret", "late", data={"x": base64.b64encode(b"now").decode()}))
    assert (await _told(place, tmp_path, pod))["environment"]["TEST_LATE"] == "now"


async def test_processes_end_with_their_node_and_begin_with_it(place: Village, tmp_path: Path) -> None:
    pod = await place.make(PODS, _pod())
    told = await _told(place, tmp_path, pod)
    await _ready(place)
    await place.kill("a")
    assert not _lives(told["pid"])
    (_directory(tmp_path, pod) / "told").unlink()
    await _start(place, tmp_path)
    again = await _told(place, tmp_path, pod)
    assert again["pid"] != told["pid"]


async def test_a_task_ends_as_its_process_does(place: Village, tmp_path: Path) -> None:
    pod = await place.make(PODS, _pod(restartPolicy="Never"))
    await _told(place, tmp_path, pod)
    _end(_directory(tmp_path, pod), 0)

    async def succeeded() -> bool:
        return bool(dig(await place.get(PODS, "show"), "status", "phase") == "Succeeded")

    await place.until("it has succeeded", succeeded)


async def test_a_process_dies_with_a_node_that_is_killed(tmp_path: Path) -> None:
    script = (
        "import asyncio, pathlib, sys\n"
        "from remuda.lab.distro.nodes.sandboxes import Process\n"
        "from remuda.kube.clock import SYSTEM_CLOCK\n"
        "async def main():\n"
        "    place = pathlib.Path(sys.argv[1])\n"
        "    process = Process(place, place, SYSTEM_CLOCK, lambda: None)\n"
        "    sleeper = 'import os, time; print(os.getpid(), flush=True); time.sleep(600)'\n"
        "    await process.start([sys.executable, '-c', sleeper], {})\n"
        "    await process.gone()\n"
        "asyncio.run(main())\n"
    )
    node = await asyncio.create_subprocess_exec(sys.executable, "-c", script, str(tmp_path))
    log = tmp_path / "0.log"
    await until(lambda: log.exists() and log.read_text().endswith("\n"))
    pid = int(log.read_text())
    assert _lives(pid)
    node.kill()
    await node.wait()
    await until(lambda: not _lives(pid))


async def test_children_go_with_their_process(tmp_path: Path) -> None:
    gone = asyncio.Event()
    process = Process(tmp_path / "run", tmp_path / "logs", SYSTEM_CLOCK, gone.set)
    child = "import subprocess, sys; p = subprocess.Popen([sys.executable, '-c', 'import time; time.sleep(600)']); print(p.pid)"
    await process.start([sys.executable, "-c", child], {})
    await gone.wait()
    pid = int((tmp_path / "logs/0.log").read_text())
    await until(lambda: not _lives(pid))
    assert process.last is not None
    assert process.last.code == 0


@pytest.mark.parametrize(
    ("image", "known"),
    [
        ("remuda/cluster-agent", True),
        ("remuda/cluster-agent:v1", True),
        ("registry:5000/remuda/cluster-agent:v1@sha256:" + 64 * "a", True),
        ("example.org/a/remuda/cluster-agent@sha256:" + 64 * "a", True),
        ("notremuda/cluster-agent", False),
        ("remuda/cluster-agent-other", False),
        ("remuda/cluster-agent/other:v1", False),
        ("", False),
    ],
)
def test_our_own_images_are_known_by_name(image: str, known: bool) -> None:
    assert (program_of({"image": image}, BUILT_IN) is not None) is known


@pytest.mark.parametrize("field", ["command", "args"])
def test_what_a_pod_wants_to_run_itself_is_not_run(field: str) -> None:
    assert program_of({"image": "remuda/cluster-agent", field: ["sh"]}, BUILT_IN) is None


class _Line(WrappedClient):
    """A client whose server can be out of reach."""

    cut = False

    async def _call(self, send: Send, *, write: bool) -> Any:
        if self.cut:
            raise ApiError(503, "ServiceUnavailable", "cut")
        return await send()


async def test_a_process_is_restarted_while_the_api_is_away(tmp_path: Path) -> None:
    async with village(clock=SYSTEM_CLOCK) as place:
        await _materials(place)
        line = _Line(place.client)
        config = NodeConfig(name="a", client=line, root=tmp_path, programs=(_SHOW,), pace=PodDelays(0.0, 0.0, 0.1, restart=0.1))
        node = asyncio.create_task(run_node(config))
        try:
            await place.until("the node is ready", lambda: place.node_is_ready("a"))
            pod = await place.make(PODS, _pod())
            told = await _told(place, tmp_path, pod)
            await _ready(place)
            line.cut = True
            (_directory(tmp_path, pod) / "told").unlink()
            os.kill(told["pid"], 9)
            again = await _told(place, tmp_path, pod)
            assert again["environment"]["TEST_SECRET"] == "hunter2"
            line.cut = False

            async def counted() -> bool:
                return bool(dig(await place.get(PODS, "show"), "status", "containerStatuses", 0, "restartCount") == 1)

            await place.until("what happened is told", counted)
        finally:
            node.cancel()
            await asyncio.gather(node, return_exceptions=True)
