"""One pass over a plan."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest

from remuda.agent.clock import parse_unix_date, unix_date
from remuda.agent.errors import InterlockHeld, OutsideRoot, PlanError
from remuda.agent.plans import outputs
from remuda.agent.plans.apply import Engine, Result
from remuda.agent.plans.plan import parse
from tests.integration.agent.builders import FixedClock, engine, file, plan_bytes, shell


def apply(
    host: Engine, data: bytes, *, run: bool = True, attempt: int = 1, run_id: str = "r1", known: Result | None = None
) -> Result:
    journal = host.journal("test")
    result = host.apply(
        parse(data),
        run_one_time=run,
        attempt=attempt,
        known_one_time=known.one_time if known else b"",
        known_periodic=known.periodic if known else b"",
        journal=journal,
        run_id=run_id,
    )
    if result.ran:
        journal.close()
    return result


def said(result: Result) -> dict[str, bytes | None]:
    return outputs.decode_one_time(result.one_time)


def test_files_then_instructions_in_order_until_one_fails(tmp_path: Path) -> None:
    data = plan_bytes(
        files=[file(tmp_path / "f", b"content")],
        instructions=[shell(f"cat {tmp_path}/f", "one"), shell("echo why >&2; exit 4", "two"), shell("echo never", "three")],
    )
    result = apply(engine(tmp_path), data)
    assert not result.succeeded
    assert result.why == "instruction 1 (two): exit status 4: why"
    assert said(result) == {"one": b"content\n", "two": None}


def test_a_failed_instruction_keeps_the_end_of_its_output_though_none_was_asked_for(tmp_path: Path) -> None:
    script = "echo working; echo 'Error: disk is full' >&2; echo 'cleaning up' >&2; exit 1"
    host = engine(tmp_path)
    data = plan_bytes(instructions=[shell("echo one", "one"), {"name": "install", "command": "sh", "args": ["-c", script]}])
    failed = apply(host, data, run_id="first")
    assert said(failed) == {"one": b"one\n", "install": b"working\nError: disk is full\ncleaning up\n"}
    assert failed.why == ("instruction 1 (install): exit status 1: Error: disk is full\nError: disk is full\ncleaning up")
    # The next try begins with the outputs of this one, of which those that nothing asked for go.
    well = plan_bytes(instructions=[shell("echo one", "one"), {"name": "install", "command": "true"}])
    assert said(apply(host, well, known=failed, run_id="second")) == {"one": b"one\n"}


def test_the_journal_of_a_unit_that_does_not_start_has_the_reason(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    programs = tmp_path / "programs"
    programs.mkdir()
    journalctl = programs / "journalctl"
    journalctl.write_text('#!/bin/sh\necho "$@" > "$(dirname "$0")/asked"\necho "level=fatal msg=no-such-flag"\n')
    journalctl.chmod(0o755)
    monkeypatch.setenv("PATH", f"{programs}:{os.environ['PATH']}")
    script = "echo 'Job for k3s.service failed because the control process exited.' >&2; exit 1"
    result = apply(engine(tmp_path), plan_bytes(instructions=[{"name": "install", "command": "sh", "args": ["-c", script]}]))
    assert (programs / "asked").read_text() == "-u k3s.service -n 20 -o cat --no-pager\n"
    assert "level=fatal msg=no-such-flag" in result.why.splitlines()[0]
    assert b"no-such-flag" in (said(result)["install"] or b"")


def test_the_reason_is_the_program_s_own_line_and_not_the_trace_of_a_shell(tmp_path: Path) -> None:
    for what, why in (("echo why >&2; exit 4", "why"), ("echo why; exit 4", "why"), ("exit 4", "")):
        result = apply(engine(tmp_path / str(len(what))), plan_bytes(instructions=[shell(f"set -x; {what}", "one")]))
        assert result.why == "instruction 0 (one): exit status 4" + (f": {why}" if why else "")


def test_an_image_that_is_not_to_be_had_is_the_reason(tmp_path: Path) -> None:
    heard: list[str] = []
    one = engine(tmp_path)
    one.progress = heard.append
    result = apply(one, plan_bytes(instructions=[{"name": "install", "image": "127.0.0.1:1/none:v1"}]))
    assert not result.succeeded and said(result) == {}
    assert result.why.startswith("instruction 0 (install): ") and "127.0.0.1:1" in result.why
    assert any("127.0.0.1:1" in line for line in heard[1:])


def test_what_a_command_finds_around_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FROM_AGENT", "a")
    script = 'echo "$PWD|$CATTLE_AGENT_EXECUTION_PWD|$CATTLE_AGENT_ATTEMPT_NUMBER|$FROM_AGENT|$GIVEN|${PATH##*:}"'
    data = plan_bytes(instructions=[shell(script, env=["GIVEN=1", "GIVEN=2"])])
    clock = FixedClock()
    result = apply(engine(tmp_path, clock), data, attempt=7)
    where, told, attempt, inherited, given, last = (said(result)["step"] or b"").decode().strip().split("|")
    assert where == told == last
    assert where.startswith(f"{tmp_path}/var/work/2027")
    assert where.endswith(f"/{parse(data).checksum}_0")
    assert (attempt, inherited, given) == ("7", "a", "2")


def test_outputs_are_kept_by_name_over_applies_and_only_when_asked_for(tmp_path: Path) -> None:
    host = engine(tmp_path)
    first = apply(host, plan_bytes(instructions=[shell("echo 1", "a"), shell("echo 2", "b", saveOutput=False)]))
    second = apply(host, plan_bytes(instructions=[shell("echo 3", "c")]), known=first, run_id="r2")
    assert said(second) == {"a": b"1\n", "c": b"3\n"}


def test_nothing_runs_when_nothing_is_needed(tmp_path: Path) -> None:
    data = plan_bytes(files=[file(tmp_path / "f")], instructions=[shell("touch ran")])
    result = apply(engine(tmp_path), data, run=False)
    assert (result.ran, result.succeeded, result.one_time) == (False, True, b"")
    assert not (tmp_path / "f").exists()


def test_a_file_that_can_not_be_written_ends_the_pass_before_anything_runs(tmp_path: Path) -> None:
    data = plan_bytes(files=[file(Path("/outside/of/root"))], instructions=[shell(f"touch {tmp_path}/ran")])
    with pytest.raises(OutsideRoot):
        apply(engine(tmp_path), data)
    assert not (tmp_path / "ran").exists()
    assert not (tmp_path / "var/interlock/applyinator-active").exists()


def test_directories_of_the_agent_must_be_inside_too(tmp_path: Path) -> None:
    with pytest.raises(OutsideRoot):
        engine(tmp_path / "root", work_directory=str(tmp_path / "work"))


def test_an_instruction_that_takes_too_long_has_failed(tmp_path: Path) -> None:
    for seconds in (1, 30):
        host = engine(tmp_path, instruction_timeout_seconds=seconds)
        result = apply(host, plan_bytes(instructions=[shell("echo x; sleep 600")]), run_id=f"r{seconds}")
        assert not result.succeeded
        assert f"still running after {seconds} s" in result.why
        # A slow machine may not have come to its first word.
        if said(result)["step"]:
            break
    assert said(result) == {"step": b"x\n"}


def test_the_work_directory_is_clean_before_each_plan_unless_kept(tmp_path: Path) -> None:
    left = tmp_path / "var/work/left"
    for keep in (True, False):
        left.mkdir(parents=True, exist_ok=True)
        apply(engine(tmp_path, preserve_work_directory=keep), plan_bytes())
        assert left.exists() is keep


def test_periodic_instructions_come_due_fail_back_off_and_recover(tmp_path: Path) -> None:
    clock = FixedClock()
    host = engine(tmp_path, clock)
    script = f"echo x >> {tmp_path}/runs; echo out; echo err >&2; test ! -e {tmp_path}/bad"
    data = plan_bytes(
        periodicInstructions=[{"name": "p", "command": "sh", "args": ["-c", script], "periodSeconds": 60}, {"command": "false"}]
    )

    def runs() -> int:
        return len((tmp_path / "runs").read_text().split())

    known = apply(host, data, run=False)
    state = outputs.decode_periodic(known.periodic)["p"]
    assert (state.stdout, state.stderr, state.exit_code, state.last_success) == (b"out\n", b"", 0, unix_date(clock.now()))
    clock.advance(59)
    again = apply(host, data, run=False, known=known)
    assert (runs(), again.periodic) == (1, known.periodic)
    clock.advance(1)
    (tmp_path / "bad").touch()
    known = apply(host, data, run=False, known=known)
    state = outputs.decode_periodic(known.periodic)["p"]
    assert (runs(), state.failures, state.exit_code) == (2, 1, 1)
    assert parse_unix_date(state.last_success) == clock.now() - 60
    clock.advance(29)
    known = apply(host, data, run=False, known=known)
    assert runs() == 2
    clock.advance(1)
    (tmp_path / "bad").unlink()
    known = apply(host, data, run=False, known=known)
    state = outputs.decode_periodic(known.periodic)["p"]
    assert (runs(), state.failures, state.last_failure) == (3, 0, "")
    clock.advance(-100_000)
    known = apply(host, data, run=False, known=known)
    assert runs() == 4, "a clock that was set back keeps nothing from running"
    apply(host, data, run=True, known=known)
    assert runs() == 5, "with the one-time instructions all run"


def test_a_failing_periodic_instruction_holds_the_later_ones(tmp_path: Path) -> None:
    data = plan_bytes(
        periodicInstructions=[{"name": "a", "command": "false"}, {"name": "b", "command": "true"}], instructions=[shell("exit 1")]
    )
    result = apply(engine(tmp_path), data)
    assert list(outputs.decode_periodic(result.periodic)) == ["a"]


def test_an_installer_that_waits_to_restart_holds_applies_for_five_minutes(tmp_path: Path) -> None:
    clock = FixedClock()
    host = engine(tmp_path, clock)
    pending = tmp_path / "var/interlock/restart-pending"
    pending.parent.mkdir(parents=True)
    pending.touch()
    for _ in range(2):
        with pytest.raises(InterlockHeld):
            apply(host, plan_bytes())
        assert parse_unix_date(pending.read_text()) == 1_800_000_000
        clock.advance(200)
    clock.advance(-101)
    with pytest.raises(InterlockHeld):
        apply(host, plan_bytes())
    clock.advance(1)
    apply(host, plan_bytes())
    assert not pending.exists()


def test_the_installer_sees_that_an_apply_runs(tmp_path: Path) -> None:
    data = plan_bytes(instructions=[shell(f"cat {tmp_path}/var/interlock/applyinator-active")])
    result = apply(engine(tmp_path), data)
    assert parse_unix_date((said(result)["step"] or b"").decode().strip()) == 1_800_000_000
    assert not (tmp_path / "var/interlock/applyinator-active").exists()


def test_history_keeps_each_plan_once_and_the_newest_64(tmp_path: Path) -> None:
    clock = FixedClock()
    host = engine(tmp_path, clock)
    for number in range(70):
        for _ in range(2):
            apply(host, plan_bytes(instructions=[], probes={}, n=number), run=False)
            clock.advance(1)
    kept = sorted(os.listdir(tmp_path / "var/applied"))
    assert len(kept) == 64
    newest = tmp_path / "var/applied" / kept[-1]
    assert newest.stat().st_mode & 0o777 == 0o600
    assert newest.parent.stat().st_mode & 0o777 == 0o700
    apply(engine(tmp_path, clock), plan_bytes(instructions=[], probes={}, n=69), run=False)
    assert len(os.listdir(tmp_path / "var/applied")) == 64


class Killed(BaseException):
    """kill -9: nothing after it runs."""


def interrupted(host: Engine, data: bytes, step: int, monkeypatch: pytest.MonkeyPatch) -> bool:
    """Apply until the journal was written so many times, then die there; true when it came to that."""
    from remuda.agent.plans.journal import Journal

    writes = 0
    save = Journal._save

    def dying(self: Journal) -> None:
        nonlocal writes
        if writes == step:
            raise Killed
        writes += 1
        save(self)

    journal = host.journal("test")
    with monkeypatch.context() as patch:
        patch.setattr(Journal, "_save", dying)
        try:
            host.apply(
                parse(data), run_one_time=True, attempt=1, known_one_time=b"", known_periodic=b"", journal=journal, run_id="r1"
            )
        except Killed:
            return True
    return False


def test_a_killed_agent_goes_on_where_its_notes_end(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for step in range(20):
        root = tmp_path / str(step)
        root.mkdir()
        data = plan_bytes(instructions=[shell(f"echo {n} >> {root}/runs; echo out{n}", f"i{n}") for n in range(3)])
        died = interrupted(engine(root), data, step, monkeypatch)
        result = apply(engine(root), data)
        assert result.succeeded
        assert said(result) == {"i0": b"out0\n", "i1": b"out1\n", "i2": b"out2\n"}
        runs = (root / "runs").read_text().split()
        assert sorted(set(runs)) == ["0", "1", "2"]
        assert len(runs) <= 4, "at most the one that was cut off runs again"
        assert not (root / "var/journal/test.json").exists()
        if not died:
            assert runs == ["0", "1", "2"], "a finished plan whose report was lost does not run again"
            assert step > 3
            return
    raise AssertionError("the plan never came to its end")


def test_a_failure_that_was_not_reported_is_reported_and_not_tried_again(tmp_path: Path) -> None:
    data = plan_bytes(instructions=[shell(f"echo x >> {tmp_path}/runs; echo out; exit 1")])
    host = engine(tmp_path)
    journal = host.journal("test")
    host.apply(parse(data), run_one_time=True, attempt=1, known_one_time=b"", known_periodic=b"", journal=journal, run_id="r1")
    result = apply(engine(tmp_path), data)
    assert (result.succeeded, said(result)) == (False, {"step": b"out\n"})
    assert (tmp_path / "runs").read_text() == "x\n"
    apply(engine(tmp_path), data, run_id="r2")
    assert (tmp_path / "runs").read_text() == "x\nx\n", "another run is another run"


def test_what_a_killed_agent_left_running_is_stopped_before_it_runs_again(tmp_path: Path) -> None:
    import subprocess
    import time

    host = engine(tmp_path)
    orphan = subprocess.Popen(["sleep", "60"], start_new_session=True)
    journal = host.journal("test")
    journal.run = "r1"
    journal.running(orphan.pid)
    apply(engine(tmp_path), plan_bytes(instructions=[shell("true")]))
    assert orphan.wait(60) == -9
    stranger = subprocess.Popen(["sleep", "60"], start_new_session=True)
    try:
        journal = host.journal("test")
        journal.child = {"pid": stranger.pid, "since": "1", "boot": "other"}
        journal.stop_orphan()
        time.sleep(0.05)
        assert stranger.poll() is None
    finally:
        stranger.kill()
        stranger.wait()


def test_a_full_disk_before_the_run_runs_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    host = engine(tmp_path)
    data = plan_bytes(instructions=[shell(f"touch {tmp_path}/ran")])
    from remuda.agent.plans import journal as module

    def full(*_: Any) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(module, "write_atomically", full)
    with pytest.raises(OSError, match="No space"):
        apply(host, data)
    assert not (tmp_path / "ran").exists()


def test_a_plan_error_names_the_file(tmp_path: Path) -> None:
    (tmp_path / "plain").write_text("")
    with pytest.raises(PlanError, match="plain/below"):
        apply(engine(tmp_path), plan_bytes(files=[file(tmp_path / "plain/below")]))
