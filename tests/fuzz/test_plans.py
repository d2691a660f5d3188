"""Plans as an agent reads them: obeyed or refused in a sentence, nothing outside of the host's own root, and a pass that ends."""

from __future__ import annotations

import base64
import gzip
import json
import math
import threading
from pathlib import Path
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from remuda.agent.clock import Clock, elapsed, parse_unix_date
from remuda.agent.errors import AgentError, PlanError
from remuda.agent.plan_secret import KubeApi, SecretWatch
from remuda.agent.plans import decide, outputs, plan, probes
from remuda.agent.remote_mode import Remote
from tests.integration.agent.builders import FixedClock, engine
from tests.integration.agent.fakeapi import KUBECONFIG, FakeApi

from .budget import fuzzing
from .shapes import encoded, mangled, shaped, texts

Obj = dict[str, Any]

names = st.sampled_from(
    [
        "files", "instructions", "periodicInstructions", "probes", "path", "content", "permissions", "uid", "gid", "directory",
        "action", "name", "image", "command", "args", "env", "saveOutput", "periodSeconds", "httpGet", "url", "timeoutSeconds",
        "initialDelaySeconds", "successThreshold", "failureThreshold", "insecure", "caCert",
    ]
)  # fmt: skip
GOOD = {
    "files": [{"path": "/a", "content": "eA==", "permissions": "0600"}],
    "instructions": [{"name": "a", "command": "true", "args": ["x"], "env": ["A=b"], "saveOutput": True}],
    "periodicInstructions": [{"name": "p", "command": "true", "periodSeconds": 5}],
    "probes": {"x": {"httpGet": {"url": "http://127.0.0.1:1/"}, "timeoutSeconds": 1, "initialDelaySeconds": 1}},
}
written = st.one_of(shaped(names).map(encoded), mangled(encoded(GOOD)), st.binary(max_size=40))


@fuzzing(200)
@given(written)
@example(b"[" * 100_000)
@example(b'{"files":' * 50_000)
@example(b'{"files":[{"uid":' + b"9" * 5000 + b"}]}")
@example(b'{"probes":{"x":{"httpGet":[]}}}')
def test_bytes_of_plans(data: bytes) -> None:
    try:
        found = plan.parse(data)
    except PlanError as error:
        assert str(error)
        return
    plan.history_bytes(found)
    for file in found.files:
        try:
            file.data(), file.mode()
        except PlanError as error:
            assert str(error)


# --- the Secret beside the plan ---------------------------------------------------------------------------------------

keys = st.sampled_from([*decide.RESULT_KEYS, decide.MAX_FAILURES, decide.PROBE_PERIOD])
dates = [
    "Sun Nov 15 07:03:16 UTC 2026",
    "Sun Feb 31 07:03:16 UTC 2026",
    "x Nov 0 0:0:0 CET 99999999999",
    "a Jan -1 -1:-1:-1 UTC 0",
]
told = st.one_of(
    st.sampled_from(["pending", "in-progress", "failed", "succeeded", "0", "1", "-1", "9" * 400, "9" * 5000, " 7 ", "1_0", "٣"]),
    st.sampled_from(dates),
    st.text(max_size=10),
).map(str.encode)
secrets = st.dictionaries(keys, st.one_of(told, st.binary(max_size=20)), max_size=8)


@fuzzing(200)
@given(secrets, st.booleans(), st.booleans())
@example({decide.PROBE_PERIOD: b"9" * 400}, False, False)
@example({decide.PROBE_PERIOD: b"9" * 12}, False, False)
@example({decide.FAILURE_COUNT: b"9" * 4300, decide.FAILED_CHECKSUM: b"c"}, False, False)
def test_what_a_secret_says(data: dict[str, bytes], first: bool, own: bool) -> None:
    now = 1_800_000_000.0
    decision = decide.decide(data, "c", "uid", now, first, own)
    if decision.claim:
        data = decide.claimed(data)
    result = decide.Result(decision.apply, first, decide.known_output(data, decision), b"", "why")
    decide.reported(data, "c", decision, result, b"{}", now)
    assert 0 < decide.probe_period(data) <= threading.TIMEOUT_MAX


@fuzzing(200)
@given(
    st.one_of(
        st.sampled_from(dates),
        st.text(max_size=30),
        st.lists(st.sampled_from(["Sun", "Nov", "15", "7:3:16", "UTC", "2026", "1e9"])).map(" ".join),
    )
)
@example("a Jan 1 1:1:1 UTC 999999999999")
def test_dates(text: str) -> None:
    found = parse_unix_date(text)
    assert found is None or math.isfinite(found)
    elapsed(text, 10, 0)


outcomes = shaped(st.sampled_from(["name", "stdout", "exitCode", "failures", "lastFailedRunTime", "healthy", "successCount"]))
PACKED = outputs.pack(b'{"a":{"name":"a","stdout":"eA=="}}')


@fuzzing(200)
@given(st.one_of(outcomes.map(encoded).map(outputs.pack), mangled(PACKED), st.binary(max_size=40), outcomes.map(encoded)))
@example(outputs.pack(b"[" * 100_000))
@example(gzip.compress(b" " * (60 << 20)))
def test_outputs(data: bytes) -> None:
    outputs.encode_one_time(outputs.decode_one_time(data))
    outputs.encode_periodic(outputs.decode_periodic(data))
    probes.encode(probes.decode(data))


# --- a whole pass -----------------------------------------------------------------------------------------------------

numbers = st.sampled_from([0, 1, -1, 5, 2**31, 2**40, 2**63, 10**400, None])
parts = st.sampled_from(["a", "b", "..", ".", "", "x" * 300, "é", "\ud800", "a b", "~"])
files = st.fixed_dictionaries(
    {"path": st.lists(parts, max_size=3).map("/".join)},
    optional={
        "content": st.sampled_from(["", "eA==", "?", "é", base64.b64encode(b"x" * 1000).decode()]),
        "permissions": st.sampled_from(["", "0644", "644", "9", "-1", "0o644", "7777", "17777", " 6 ", "٣"]),
        "uid": st.sampled_from([-1, 0, 2**31, 2**32, 2**70, -2]),
        "gid": st.sampled_from([-1, 0, 2**31, 2**32, 2**70, -2]),
        "directory": st.booleans(),
        "action": st.sampled_from(["", "delete", "other"]),
    },
)
commands: Obj = {
    "name": st.one_of(st.sampled_from(["a", "b", "", "\ud800", "é"]), texts.filter(lambda text: "\0" not in text)),
    "command": st.sampled_from(["true", "false", "", "/nowhere", "\ud800", "a b", "."]),
    "args": st.lists(st.sampled_from(["", "x", "\ud800", "é", "x" * 100]), max_size=2),
    "env": st.lists(st.sampled_from(["A=b", "A", "=", "=b", "A=\ud800", "\ud800=a", "LD_PRELOAD="]), max_size=2),
    # None that could be found: these tests ask no registry.
    "image": st.sampled_from(["", "", "", "A B", "@", ":", "/", "a@sha256:", "\ud800", "x" * 300]),
}
instructions = st.fixed_dictionaries({}, optional={**commands, "saveOutput": st.booleans()})
periodic = st.fixed_dictionaries({}, optional={**commands, "periodSeconds": numbers, "saveStderrOutput": st.booleans()})
checks = st.fixed_dictionaries(
    {},
    optional={
        "name": st.just("a"),
        "initialDelaySeconds": numbers,
        "timeoutSeconds": numbers,
        "successThreshold": numbers,
        "failureThreshold": numbers,
        "httpGet": st.fixed_dictionaries(
            {},
            optional={
                "url": st.sampled_from(
                    [
                        "http://127.0.0.1:1/", "https://127.0.0.1:1/", "http://127.0.0.1:x/", "http://[::1", "", "x",
                        "file:///etc/passwd", "http://127.0.0.1:99999/", "http://127.0.0.1:1/\ud800", "http://é\ud800:1/",
                        "http://127.0.0.1:1/ \r\nX: y", "http://:1",
                    ]
                ),
                "insecure": st.booleans(),
                "caCert": st.sampled_from(["", "/nowhere", "\ud800", "/dev/null"]),
                "clientCert": st.sampled_from(["", "/nowhere", "/dev/null"]),
            },
        ),
    },
)  # fmt: skip
plans = st.fixed_dictionaries(
    {},
    optional={
        "files": st.lists(files, max_size=3),
        "instructions": st.lists(instructions, max_size=2),
        "periodicInstructions": st.lists(periodic, max_size=2),
        "probes": st.dictionaries(st.sampled_from(["p", "q", "\ud800"]), checks, max_size=2),
    },
)


@fuzzing(40)
@given(plans, secrets)
@example({"files": [{"path": "a", "uid": 2**70}]}, {decide.STATE: b"pending"})
@example({"files": [{"path": "\ud800", "content": "eA=="}]}, {decide.STATE: b"pending"})
@example({"instructions": [{"command": "true", "name": "\ud800", "saveOutput": True}]}, {decide.STATE: b"pending"})
@example({"probes": {"p": {"httpGet": {"url": "http://[::1"}}}}, {decide.STATE: b"succeeded"})
@example({"probes": {"p": {"httpGet": {"url": "http://127.0.0.1:1/"}, "timeoutSeconds": 10**400}}}, {decide.STATE: b"succeeded"})
@example({"probes": {"p": {"httpGet": {"url": "http://127.0.0.1:1/"}, "timeoutSeconds": -1}}}, {decide.STATE: b"succeeded"})
@example({"periodicInstructions": [{"name": "a", "command": "true", "periodSeconds": 10**400}]}, {decide.STATE: b"succeeded"})
def test_a_pass_over_any_plan(tmp_path_factory: pytest.TempPathFactory, wanted: Obj, data: dict[str, bytes]) -> None:
    home = tmp_path_factory.mktemp("host")
    root = home / "up" / "to" / "root"
    root.mkdir(parents=True)
    for file in wanted.get("files", []):
        file["path"] = f"{root}/{file['path']}"
    api = FakeApi(plan=json.dumps(wanted).encode(), **{name.replace("-", "_"): value for name, value in data.items()})
    with api.serving() as url:
        agent = _agent(url, root)
        for _ in range(2):
            agent.watch.offer(agent.api.list("ns", "plan")[0])
            try:
                pause = agent.step()
            except (AgentError, OSError) as error:
                # As the agent's own loop does, which says so and tries again.
                assert str(error)
                agent.complain(str(error))
            else:
                assert 0 <= pause <= threading.TIMEOUT_MAX
    outside = [path for path in home.rglob("*") if root not in (path, *path.parents) and path not in root.parents]
    assert outside == []


def _agent(url: str, root: Path) -> Remote:
    clock: Clock = FixedClock()
    stop = threading.Event()
    api = KubeApi(KUBECONFIG.format(url=url, ca=""))
    assert isinstance(clock, FixedClock)
    return Remote(engine(root, clock), api, SecretWatch(api, "ns", "plan", clock, stop), clock, stop)
