"""Obeying plan files."""

from __future__ import annotations

import base64
import json
import os
import threading
from pathlib import Path
from typing import Any

from remuda.agent.local_mode import Local, plans_in
from remuda.agent.plans import outputs
from remuda.agent.plans.plan import parse

from .builders import FixedClock, engine, plan_bytes, shell


def local(root: Path) -> Local:
    clock = FixedClock()
    return Local(engine(root, clock), str(root / "var/plans"), clock, threading.Event())


def put(root: Path, name: str, data: bytes) -> Path:
    path = root / "var/plans" / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(data)
    return path


def position(path: Path) -> dict[str, Any]:
    return json.loads(path.with_suffix(".pos").read_text())


def test_a_plan_runs_once_and_its_position_says_so(tmp_path: Path) -> None:
    data = plan_bytes(instructions=[shell(f'echo "$CATTLE_AGENT_ATTEMPT_NUMBER" | tee -a {tmp_path}/runs', "one")])
    path = put(tmp_path, "sub/a.plan", data)
    agent = local(tmp_path)
    agent.step()
    agent.step()
    assert (tmp_path / "runs").read_text() == "0\n"
    found = position(path)
    assert found["appliedChecksum"] == parse(data).checksum
    assert outputs.decode_one_time(base64.b64decode(found["output"])) == {"one": b"0\n"}
    assert "probeStatus" not in found
    assert path.with_suffix(".pos").stat().st_mode & 0o777 == 0o600
    path.write_bytes(data + b"\n")
    agent.step()
    assert (tmp_path / "runs").read_text() == "0\n0\n"


def test_a_plan_that_comes_back_later_runs_again(tmp_path: Path) -> None:
    one, two = (plan_bytes(instructions=[shell(f"echo {n} >> {tmp_path}/runs")]) for n in (1, 2))
    agent = local(tmp_path)
    for number, data in enumerate((one, two, one)):
        path = put(tmp_path, "a.plan", data)
        os.utime(path, (number, number))
        agent.step()
    assert (tmp_path / "runs").read_text() == "1\n2\n1\n"


def test_a_failed_plan_is_not_tried_again_and_holds_no_other(tmp_path: Path) -> None:
    put(tmp_path, "a.plan", b"not json")
    put(tmp_path, "b.plan", plan_bytes(instructions=[shell(f"echo b >> {tmp_path}/runs; exit 1")]))
    put(tmp_path, "c.plan", plan_bytes(instructions=[shell(f"echo c >> {tmp_path}/runs")]))
    agent = local(tmp_path)
    agent.step()
    agent.step()
    assert (tmp_path / "runs").read_text() == "b\nc\n"


def test_hidden_skipped_and_other_files_are_no_plans(tmp_path: Path) -> None:
    for name in ("b.plan", ".a.plan", "c.plan", "x/c.plan", "x/c.plan.skip", "d.pos", "x/a.plan"):
        put(tmp_path, name, b"{}")
    root = tmp_path / "var/plans"
    assert [Path(path).relative_to(root).as_posix() for path in plans_in(str(root))] == ["b.plan", "x/a.plan"]
