"""One pass over a plan, in the protocol's order (docs/reference/agent.md#a-pass).

Interlock, history, files, a clean work directory, one-time instructions until one fails, periodic instructions until one fails.
One lock serialises passes, since local and remote plans share the work directory. Instructions that finished before a crash are
in the ``journal`` and not repeated. ``decide`` says before whether the one-time part is needed, ``probes`` follow.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import stat
import threading
from collections.abc import Callable
from typing import NamedTuple

from .. import log, stage_process
from ..clock import Clock, compact, elapsed, unix_date
from ..commands import CommandResult, run
from ..config import Config
from ..errors import AgentError, PlanError
from ..paths import Layout, read_or_none, write_atomically
from . import failures, outputs
from .journal import Interlock, Journal
from .outputs import PeriodicOutput
from .plan import File, Instruction, Periodic, Plan, history_bytes

Progress = Callable[[str], None]

_JOURNAL_SECONDS = 10
_JOURNAL_LINES = "20"


class Result(NamedTuple):
    """The result of a pass; outputs are ready for the Secret."""

    ran: bool
    succeeded: bool
    one_time: bytes
    periodic: bytes
    why: str = ""


class Engine:
    """Applies plans on this host."""

    def __init__(self, config: Config, clock: Clock, progress: Progress = lambda line: None) -> None:
        self.config = config
        self.clock = clock
        self.progress = progress
        self.layout = Layout(config.root)
        state = os.path.dirname(os.path.abspath(config.work_directory))
        for place in (state, config.work_directory, config.applied_plan_directory, config.interlock_directory):
            if place:
                self.layout.inside(place)
        self.interlock = Interlock(config.interlock_directory, clock)
        self.history = History(config.applied_plan_directory, clock)
        self._blobs = os.path.join(state, "blobs")
        self._journals = os.path.join(state, "journal")
        self._lock = threading.Lock()

    def journal(self, name: str) -> Journal:
        """The notes for one source of plans."""
        return Journal.open(os.path.join(self._journals, f"{name}.json"))

    def apply(
        self,
        plan: Plan,
        *,
        run_one_time: bool,
        attempt: int,
        known_one_time: bytes,
        known_periodic: bytes,
        journal: Journal,
        run_id: str,
    ) -> Result:
        """Make one pass. Raises when files can't be written or an installer holds the interlock: nothing was run then."""
        with self._lock, self.interlock.applying():
            self._record(plan)
            resumed = False
            if run_one_time:
                for file in plan.files:
                    ensure_file(file, self.layout)
                resumed = journal.begin(run_id)
            self._clean()
            place = os.path.join(self.config.work_directory, compact(self.clock.now()))
            ok, why, one_time = True, "", known_one_time
            if run_one_time:
                ok, why, one_time = self._one_time(plan, place, attempt, known_one_time, journal)
            # A result that is only owed must not run the periodic part in every pass until it is delivered.
            after = self._periodic(plan, place, known_periodic, forced=run_one_time and not resumed)
            return Result(run_one_time, ok, one_time, after, why)

    def _record(self, plan: Plan) -> None:
        try:
            self.history.record(plan)
        except OSError as reason:
            # A full disk must not keep a host from a plan that may free it.
            log.warning(f"can't keep the plan in the history: {reason}")

    def _clean(self) -> None:
        if not self.config.preserve_work_directory and os.path.lexists(self.config.work_directory):
            shutil.rmtree(self.config.work_directory, ignore_errors=True)

    def _one_time(self, plan: Plan, place: str, attempt: int, known: bytes, journal: Journal) -> tuple[bool, str, bytes]:
        saved = outputs.decode_one_time(known)
        for index, instruction in enumerate(plan.instructions):
            if not (instruction.save_output and instruction.name):
                # Only a failed try keeps this one's output.
                saved.pop(_key(index, instruction.name), None)
        for index, instruction in enumerate(plan.instructions):
            keep = instruction.save_output and instruction.name
            if index < len(journal.done):
                log.info(f"instruction {_label(plan, index, instruction.name)} was finished before the agent was stopped")
                stdout = journal.done[index]
            elif journal.failed is not None:
                # It failed and could not be reported: the report is owed, not another try.
                if keep:
                    saved[instruction.name] = journal.failed or None
                return False, "failed before the agent was stopped", outputs.encode_one_time(saved)
            else:
                result = self._execute(plan, index, instruction, place, attempt, self.config.instruction_timeout_seconds, journal)
                stdout, failed = result.stdout if keep else b"", result.exit_code != 0
                self._note(journal, stdout, failed)
                if failed:
                    result = self._with_journal(result)
                    unasked = failures.tail(result.stdout, result.stderr)
                    if keep or unasked:
                        saved[_key(index, instruction.name)] = (stdout if keep else unasked) or None
                    label = f"instruction {index} ({instruction.name or 'unnamed'})"
                    why = failures.reason(label, result.why, result.stdout, result.stderr)
                    return False, why, outputs.encode_one_time(saved)
            if keep:
                saved[instruction.name] = stdout or None
        return True, "", outputs.encode_one_time(saved)

    def _with_journal(self, result: CommandResult) -> CommandResult:
        """The result; when a unit did not start, with the end of its journal, where the reason is."""
        unit = failures.unit_that_failed(result.stderr)
        if not unit:
            return result
        argv = ["journalctl", "-u", unit, "-n", _JOURNAL_LINES, "-o", "cat", "--no-pager"]
        read = run(argv, dict(os.environ), self.config.work_directory, _JOURNAL_SECONDS, lambda stream, line: None)
        return result._replace(stderr=result.stderr + read.stdout) if read.exit_code == 0 else result

    def _note(self, journal: Journal, stdout: bytes, failed: bool) -> None:
        try:
            if failed:
                journal.broke(stdout)
            else:
                journal.finished(stdout)
        except OSError as reason:
            # The instruction has run; without a record it may run again after a crash, as the original always would.
            log.warning(f"can't note that an instruction was finished: {reason}")

    def _periodic(self, plan: Plan, place: str, known: bytes, forced: bool) -> bytes:
        states = outputs.decode_periodic(known)
        ran = False
        for index, instruction in enumerate(plan.periodic):
            if not instruction.name:
                log.warning(f"periodic instruction {index} has no name and is skipped")
                continue
            before = states.get(instruction.name)
            if not due(instruction, before, self.clock.now(), forced):
                continue
            attempt = (before.failures if before else 0) + 1
            result = self._execute(plan, index, instruction, place, attempt, self.config.periodic_timeout_seconds, None)
            states[instruction.name] = after(instruction, before, result, self.clock.now())
            ran = True
            if result.exit_code != 0:
                break
        return outputs.encode_periodic(states) if ran or not known else known

    def _execute(
        self,
        plan: Plan,
        index: int,
        instruction: Instruction | Periodic,
        place: str,
        attempt: int,
        timeout: int,
        journal: Journal | None,
    ) -> CommandResult:
        label = _label(plan, index, instruction.name)
        directory = os.path.join(place, f"{plan.checksum}_{index}")
        try:
            self.layout.inside(directory)
            shutil.rmtree(directory, ignore_errors=True)
            os.makedirs(directory, mode=0o755)
            if instruction.image:
                self._tell(f"fetching image {instruction.image} for {label}")
                self._stage(instruction.image, directory, journal)
        except (AgentError, OSError) as reason:
            log.error(f"can't prepare instruction {label}: {reason}")
            self.progress(f"{label}: {reason}")
            return CommandResult(-1, why=str(reason))
        self._tell(f"running instruction {label}, attempt {attempt}")
        argv = [_program(instruction.command, directory), *instruction.args]
        result = run(
            argv,
            _environment(instruction.env, directory, attempt),
            directory,
            timeout,
            lambda stream, line: self._line(plan, index, stream, line),
            lambda pid: self._started(journal, pid),
        )
        if result.exit_code != 0:
            log.error(f"instruction {label}: {result.why}")
        self.progress(f"{label}: {result.why or 'done'}")
        return result

    def _stage(self, image: str, directory: str, journal: Journal | None) -> None:
        config = self.config
        stage_process.stage(
            stage_process.StageRequest(image, directory, config.images_directory, config.agent_registries_file, self._blobs),
            self._tell,
            lambda pid: self._started(journal, pid),
        )

    def _started(self, journal: Journal | None, pid: int) -> None:
        if journal is None:
            return
        try:
            journal.running(pid)
        except OSError as reason:
            log.warning(f"can't note which process runs: {reason}")

    def _line(self, plan: Plan, index: int, stream: str, line: str) -> None:
        log.info(f"[{plan.checksum}_{index}:{stream}]: {line}")
        self.progress(line)

    def _tell(self, line: str) -> None:
        log.info(line)
        self.progress(line)


def _label(plan: Plan, index: int, name: str) -> str:
    return f"{name or 'unnamed'} ({plan.checksum[:12]}_{index})"


def _key(index: int, name: str) -> str:
    """The name under which an instruction's output is kept."""
    return name or str(index)


def _program(command: str, directory: str) -> str:
    """The program by its path: names are looked up where the agent finds programs, not where the image was unpacked."""
    if not command:
        return os.path.join(directory, "run.sh")
    return command if "/" in command else shutil.which(command) or command


def _environment(given: tuple[str, ...], directory: str, attempt: int) -> dict[str, str]:
    env = dict(os.environ)
    for item in given:
        name, equals, value = item.partition("=")
        if equals and name:
            env[name] = value
    env["CATTLE_AGENT_EXECUTION_PWD"] = directory
    env["CATTLE_AGENT_ATTEMPT_NUMBER"] = str(attempt)
    env["PATH"] = f"{os.environ.get('PATH', os.defpath)}:{directory}"
    return env


# --- history --------------------------------------------------------------------------------------------------------------
#
# The last plans that were applied, kept for later inspection of the host (docs/reference/agent.md#history).

_SUFFIX = "-applied.plan"
KEEP = 64


class History:
    """The directory of applied plans; an empty one means none is kept."""

    def __init__(self, directory: str, clock: Clock) -> None:
        self.directory = directory
        self.clock = clock
        self._last = ""

    def record(self, plan: Plan) -> None:
        """Keep this plan unless it is the newest one already."""
        if not self.directory or plan.checksum == self._last:
            return
        os.makedirs(self.directory, mode=0o700, exist_ok=True)
        os.chmod(self.directory, 0o700)
        kept = self._kept()
        data = history_bytes(plan)
        if not kept or read_or_none(os.path.join(self.directory, kept[-1])) != data:
            name = compact(self.clock.now()) + _SUFFIX
            write_atomically(os.path.join(self.directory, name), data)
            for old in self._kept()[:-KEEP]:
                with contextlib.suppress(FileNotFoundError):
                    os.unlink(os.path.join(self.directory, old))
        self._last = plan.checksum

    def _kept(self) -> list[str]:
        return sorted(name for name in os.listdir(self.directory) if name.endswith(_SUFFIX))


# --- periodic -------------------------------------------------------------------------------------------------------------
#
# The times at which a periodic instruction is due, and its state after a run (docs/reference/agent.md#periodic-instructions).
# Pure.

_FAILURE_STEP = 30
_MOST_STEPS = 6


def due(instruction: Periodic, known: PeriodicOutput | None, now: float, forced: bool) -> bool:
    """True if it must run now; ``forced`` when the one-time instructions run in this pass."""
    if forced or known is None:
        return True
    if known.last_success and not elapsed(known.last_success, instruction.period_seconds, now):
        return False
    cooldown = _FAILURE_STEP * min(max(known.failures, 1), _MOST_STEPS)
    return not known.last_failure or elapsed(known.last_failure, cooldown, now)


def after(instruction: Periodic, known: PeriodicOutput | None, result: CommandResult, now: float) -> PeriodicOutput:
    """The output and counters after this run."""
    before = known or PeriodicOutput(instruction.name)
    ran = before._replace(
        name=instruction.name,
        stdout=result.stdout,
        stderr=result.stderr if instruction.save_stderr else b"",
        exit_code=result.exit_code,
    )
    if result.exit_code == 0:
        return ran._replace(last_success=unix_date(now), failures=0, last_failure="")
    return ran._replace(failures=before.failures + 1, last_failure=unix_date(now))


# --- files ----------------------------------------------------------------------------------------------------------------
#
# The files of a plan, written in their order (docs/reference/agent.md#plan). Content is written only when it differs, so that a
# file's time tells when it last changed; mode and owner are set each time. A file is written completely or not at all
# (``paths``). The first failure ends the plan: later files may depend on it.


def ensure_file(file: File, layout: Layout) -> None:
    """Write, change or delete one file."""
    if not file.path:
        raise PlanError("a file of the plan has no path")
    try:
        if file.action == "delete":
            _delete(file, layout)
        elif file.directory:
            _directory(file, layout)
        else:
            _write(file, layout)
    except OSError as reason:
        raise PlanError(f"can't write {file.path}: {reason.strerror or reason}") from reason
    except OverflowError as reason:
        raise PlanError(f"can't give {file.path} away: {file.uid}:{file.gid} is not a valid owner") from reason


def _delete(file: File, layout: Layout) -> None:
    path = layout.inside_unfollowed(file.path)
    if not os.path.lexists(path):
        return
    if file.directory and not os.path.islink(path) and os.path.isdir(path):
        shutil.rmtree(path)
    elif os.path.isdir(path) and not os.path.islink(path):
        os.rmdir(path)
    else:
        os.unlink(path)


def _directory(file: File, layout: Layout) -> None:
    path = layout.inside(file.path)
    os.makedirs(path, mode=0o755, exist_ok=True)
    _own(path, file, layout)


def _write(file: File, layout: Layout) -> None:
    path = layout.inside(file.path)
    data, mode = file.data(), file.mode()
    os.makedirs(os.path.dirname(path), mode=0o755, exist_ok=True)
    if read_or_none(path) != data:
        # Closed to others until its owner and mode are right; an existing file keeps its mode till then.
        before = stat.S_IMODE(os.stat(path).st_mode) if os.path.exists(path) else 0o600
        write_atomically(path, data, before & mode)
    _own(path, file, layout)


def _own(path: str, file: File, layout: Layout) -> None:
    found = os.stat(path)
    uid = found.st_uid if file.uid == -1 else file.uid
    gid = found.st_gid if file.gid == -1 else file.gid
    # On a host that is only a directory all files belong to the user who made it, who can't give them to another.
    mine = layout.root != "/" and os.geteuid() != 0
    if (uid, gid) != (found.st_uid, found.st_gid) and not mine:
        os.chown(path, uid, gid)
    # After chown, which takes set-uid bits away.
    if stat.S_IMODE(os.stat(path).st_mode) != file.mode():
        os.chmod(path, file.mode())
