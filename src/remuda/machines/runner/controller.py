"""The controller of local Jobs: queues those that should run, runs a few at a time, and records their results.

A Job that has not ended and has no process gets one, also after a crash, and after another server has led. A deleted Job loses
its process. All processes end when this server loses the lease. Clusters take turns, so that a large one does not delay the
others.
"""

from __future__ import annotations

import asyncio
import contextlib
import sys
from collections.abc import AsyncIterator, Callable, Iterable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from remuda.kube.clock import deadline, rfc3339
from remuda.kube.errors import ApiError
from remuda.kube.objects import Key, labels_of, name_of, namespace_of, resource_version_of, uid_of
from remuda.kube.owners import controller_of
from remuda.kube.waits import Actor, Code, Ref, Wait
from remuda.provisioning.references import Access
from remuda.provisioning.well_known import CLUSTER_NAME
from remuda.runtime import DONE, Controller, Manager, Result, Workers, WorkQueue, changed, logger, synced
from remuda.runtime.informer import without_managed_fields

from ..errors import Reason
from ..machineprovision.controller import JOB_LABELS, jobs_of
from ..machineprovision.job_arguments import IN_A_POD, Places, arguments, variables
from ..machineprovision.job_objects import CREATE_RETRIES, REMOVE_RETRIES, JobPlan
from ..machineprovision.job_outcome import LONGEST, failure_of
from ..machineprovision.machine_inputs import InputReader, MachineKinds, NotYet
from ..machineprovision.well_known import JOB_UID, JOBS, job_name
from . import job_logs, job_status
from .confinement import PythonPaths, environment, jailed, on_this_machine, secrets, user_of
from .job_logs import Output
from .job_status import is_managed, refusal, wanted
from .job_token import granted, kubeconfig, revoked
from .process import Child, Directories, named

log = logger(__name__)

Obj = dict[str, Any]

CONTROLLER = "job-runner"
# How many processes run at once; each waits for a provider most of the time.
CONCURRENCY = 16
# How long one may take.
PATIENCE = 3600.0
_TOKEN_SECONDS = 2 * int(PATIENCE)
# The interval for writing output: short at first, when a user may be watching.
_FIRST_FLUSH, _FLUSH_SECONDS = 0.5, 5.0
_NOT_YET_SECONDS = 10.0
_KILLED_SECONDS = 1.0
# For how long it is tried to write down how one has ended.
_TELLING_SECONDS = 300.0
# Not from the directory that it runs in, in which others may have a hand.
PROGRAM = (sys.executable, "-P", "-m", "remuda", "provision")


@dataclass(slots=True)
class _Run:
    """A process, and whether it was taken away from under itself."""

    job: str
    child: Child | None = None
    stopped: bool = False

    def stop(self) -> None:
        self.stopped = True
        if self.child is not None:
            self.child.kill()


@dataclass(frozen=True, slots=True)
class RunnerConfig:
    """The surroundings of processes. `api` is the server's address and trust, as a kubeconfig's cluster entry; None: not known
    yet.

    `hosts` is the directory in which the driver `local` keeps its hosts; None: there is none.
    """

    api: Callable[[], Obj | None]
    environment: Mapping[str, str]
    program: tuple[str, ...] = PROGRAM
    concurrency: int = CONCURRENCY
    directory: Path | None = None
    hosts: Path | None = None


@dataclass(frozen=True, slots=True)
class _Work:
    """All that one process needs, read before it begins."""

    plan: JobPlan
    api: Obj
    slot: int
    given: Mapping[str, str]
    script: bytes


class JobRunner:
    controller = Controller(CONTROLLER, JOBS, labels=JOB_LABELS, transform=without_managed_fields)

    def __init__(self, manager: Manager, access: Access, ground: RunnerConfig) -> None:
        self._manager = manager
        self._client = manager.client
        self._clock = manager.clock
        self._ground = ground
        self._around = PythonPaths.this(ground.environment)
        self._directories = Directories(ground.directory)
        self._jobs = jobs_of(manager)
        self._reading = InputReader(manager, access, ground.environment, local=True)
        self._kinds = MachineKinds(manager, CONTROLLER, _job_of, _says_another)
        self._running: dict[Key, _Run] = {}
        self._slots = set(range(ground.concurrency))
        self._queue: WorkQueue[Key] | None = None
        # The reasons why Jobs do not begin, by key.
        self._held: dict[Key, Wait] = {}
        # The Jobs that were told that they begin next.
        self._expected: set[Key] = set()
        gauge = manager.registry.gauge("remuda_job_processes", "Processes of local Jobs, and Jobs that wait for one.", ("state",))
        gauge.read(self._counted)
        self.controller = replace(type(self).controller, concurrency=4, lane=self._lane, subject=_subject)
        manager.beside(self.run)

    def _lane(self, key: Key) -> Key:
        found = self._jobs.get(*key)
        infra = None if found is None else self._machine_of(found)
        return Key(key.namespace, labels_of(infra or {}).get(CLUSTER_NAME) or "")

    def _machine_of(self, job: Obj) -> Obj | None:
        owner = controller_of(job) or {}
        found = self._kinds.get(str(owner.get("kind") or ""), Key(namespace_of(job), str(owner.get("name") or "")))
        return None if found is None else found.obj

    def _counted(self) -> list[tuple[tuple[str, ...], float]]:
        waiting = len(self._queue) if self._queue is not None else 0
        return [(("running",), float(len(self._running))), (("waiting",), float(waiting))]

    # --- which -----------------------------------------------------------------------------------------------------------

    async def reconcile(self, key: Key) -> Result:
        await synced(self._jobs, self._kinds.crds)
        job = self._jobs.get(*key)
        run = self._running.get(key)
        self._expected.discard(key)
        if job is None or not is_managed(job) or job_status.is_over(job):
            self._held.pop(key, None)
            if run is not None and (job is None or run.job != uid_of(job)):
                self._stop(key, run)
            return DONE
        infra = self._machine_of(job)
        subject = _subject(key)
        if why := refusal(job, infra):
            if run is not None:
                self._stop(key, run)
            return Result(waits=(Wait(Code.REFERENCE, subject, Actor.REMUDA, None, why),))
        if run is not None and run.job != uid_of(job):
            self._stop(key, run)
        if run is not None and run.job == uid_of(job):
            return Result(waits=(Wait(Code.PROVISIONING, subject, Actor.PROVIDER, None, "its process runs"),))
        if self._queue is not None:
            self._queue.add(key)
        if key in self._held:
            return Result(waits=(self._held[key],))
        why = "it is about to begin"
        if job_status.failures(job):
            why = "its process failed, and another begins after a pause"
        if self._slots:
            self._expected.add(key)
        else:
            why = f"{self._ground.concurrency} Jobs run already, and no more at once"
        return Result(waits=(Wait(Code.TURN, subject, Actor.REMUDA, None, why),))

    def _stop(self, key: Key, run: _Run) -> None:
        log.info("the process of a Job that is gone, or to be no more, ends")
        run.stop()

    # --- running ---------------------------------------------------------------------------------------------------------

    async def run(self) -> None:
        """Run Jobs while the controllers run; all processes end with them."""
        await asyncio.to_thread(self._directories.open)
        queue: WorkQueue[Key] = WorkQueue(self._clock, self._manager.rng, backoff=1.0, cap=60.0, lane=self._lane)
        workers = Workers(
            f"{CONTROLLER} process", queue, self._one, self._ground.concurrency, clock=self._clock, rng=self._manager.rng
        )
        self._queue = queue
        try:
            # Jobs that were seen before there was a queue.
            for key in list(self._jobs.keys()):
                if (working := self._manager.working(CONTROLLER)) is not None:
                    working.queue.add(key)
            async with asyncio.TaskGroup() as group:
                group.create_task(workers.run())
                group.create_task(job_logs.sweep(self._client, self._clock))
        finally:
            self._queue = None
            self._directories.close()

    async def _one(self, key: Key) -> Result:
        """One process for a Job, from its beginning to its end."""
        job = self._jobs.get(*key)
        if job is None or not is_managed(job) or job_status.is_over(job):
            return DONE
        infra = self._machine_of(job)
        if infra is None or refusal(job, infra):
            # A change of either wakes the controller.
            return DONE
        run = self._running[key] = _Run(uid_of(job))
        slot = self._slots.pop()
        if not self._slots:
            self._disappoint()
        try:
            return await self._run(key, run, job, infra, slot)
        finally:
            self._slots.add(slot)
            del self._running[key]

    async def _run(self, key: Key, run: _Run, job: Obj, infra: Obj, slot: int) -> Result:
        removing = bool(wanted(infra))
        api = self._ground.api()
        if api is None:
            return Result(_NOT_YET_SECONDS)
        try:
            given = await self._reading.environment(infra)
            plan = await self._reading.plan(infra, removing=removing)
            given |= variables(plan.facts, plan.secrets)
            script = b"" if removing else await self._reading.script(infra)
        except NotYet as missing:
            self._hold(key, missing.wait)
            return Result(_NOT_YET_SECONDS)
        self._held.pop(key, None)
        work = _Work(plan, api, slot, given, script)
        # A client that deletes a Job which has not begun does so in the state that it saw: either the delete or this write wins.
        bound = {"metadata": {"resourceVersion": resource_version_of(job)}}
        try:
            job = await self._tell(job, {**bound, **job_status.began(job, self._clock.time())})
        except ApiError as error:
            if error.is_not_found:
                return DONE
            raise
        try:
            code, output = await self._supervised(run, work)
        except OSError as error:
            log.warning("no process can be started: %s", error)
            return Result(_NOT_YET_SECONDS)
        if run.stopped:
            return DONE
        return await self._ended(job, code, output, removing=removing)

    def _disappoint(self) -> None:
        """Queue again the Jobs that were told they would start next, but lost the last slots: their status must say that they
        wait."""
        if (working := self._manager.working(CONTROLLER)) is not None:
            for key in self._expected:
                working.queue.add(key)

    def _hold(self, key: Key, wait: Wait) -> None:
        """Record the reason why the Job does not begin."""
        if self._held.get(key) != wait:
            self._held[key] = wait
            if (working := self._manager.working(CONTROLLER)) is not None:
                working.queue.add(key)

    async def _ended(self, job: Obj, code: int | None, output: Output, *, removing: bool) -> Result:
        now = self._clock.time()
        if code == 0:
            await self._told(job, job_status.succeeded(job, now))
            return DONE
        words = output.last(LONGEST - 256) or f"its process ended with {named(code)} and said nothing"
        if code is None:
            words += f"\n{Reason.TIMED_OUT}: its process took longer than {PATIENCE / 60:.0f} minutes"
        failure = failure_of(words)
        log.info("failed: %s: %s", failure.reason, failure.message)
        # A killed process does not prove that it can't be done: the next one continues.
        killed = code is not None and code < 0
        retries = REMOVE_RETRIES if removing or killed else CREATE_RETRIES
        written = await self._told(job, job_status.failed(job, words, now, retries=retries))
        if job_status.is_over(written):
            return DONE
        pause = _KILLED_SECONDS if killed else job_status.pause(job_status.failures(written))
        # With `rest`, since the write a moment ago wakes the controller, which would queue it at once.
        return Result(pause, rest=pause)

    async def _told(self, job: Obj, patch: Obj) -> Obj:
        """Record how a process ended, also when the server is away for a while. Otherwise another process would do it all again,
        and not every program knows what an earlier one has made."""
        until, pause = self._clock.monotonic() + _TELLING_SECONDS, 0.5
        while True:
            try:
                return await self._tell(job, patch)
            except ApiError as error:
                passes = error.code >= 500 or error.code == 429
                if not passes or self._clock.monotonic() >= until:
                    raise
            await self._clock.sleep(pause)
            pause = min(2 * pause, _FLUSH_SECONDS)

    async def _tell(self, job: Obj, patch: Obj) -> Obj:
        """Write the status of this Job; raises a conflict when another one has replaced it."""
        meta = {"uid": uid_of(job), **(patch.get("metadata") or {})}
        body = {**patch, "metadata": meta}
        return await self._client.patch(
            JOBS, name_of(job), body, namespace_of(job), subresource="status", field_manager=CONTROLLER
        )

    # --- one process -----------------------------------------------------------------------------------------------------

    async def _supervised(self, run: _Run, work: _Work) -> tuple[int | None, Output]:
        """The process's exit status (None when it took too long), and its output. Raises OSError."""
        infra, given, driver = work.plan.infra, work.given, work.plan.facts.name
        async with self._granted(infra) as token, self._directory(work, token) as prepared:
            directory, argv = prepared
            before = await job_logs.kept_before(self._client, infra)
            output = Output(
                [token, *secrets(given, work.script, _told(work.plan)[1]), *work.plan.secrets.values()],
                before,
                lambda line: log.info("the Job of %s/%s: %s", namespace_of(infra), name_of(infra), line),
            )
            output.begin(f"--- {'remove' if work.plan.removing else 'create'}, {rfc3339(self._clock.time())}")
            variables = environment(self._around, str(directory), given, self._ground.environment)
            variables |= on_this_machine(driver, self._ground.hosts, self._ground.environment)
            whole = [*self._ground.program, *argv]
            told = jailed(whole, variables, str(directory), self._around, driver=driver, slot=work.slot)
            if run.stopped:
                return None, output
            child = run.child = Child(told, output.feed)
            try:
                return await self._until_ended(child, infra, output), output
            finally:
                run.child = None
                child.close()

    async def _until_ended(self, child: Child, infra: Obj, output: Output) -> int | None:
        machine = self._reading.machine_of(infra)
        owner = self._reading.wanted_of(infra, machine)

        async def flush() -> None:
            kept, pause = -1, _FIRST_FLUSH
            while True:
                if kept != output.count:
                    kept = output.count
                    await job_logs.keep(self._client, infra, owner, output, self._clock.time())
                await self._clock.sleep(pause)
                pause = min(2 * pause, _FLUSH_SECONDS)

        flushing = asyncio.create_task(flush(), name="log")
        try:
            async with deadline(self._clock, PATIENCE):
                code: int | None = await child.ended()
        except TimeoutError:
            code = None
        finally:
            flushing.cancel()
            await asyncio.gather(flushing, return_exceptions=True)
        output.end()
        if code:
            output.line(f"--- ended with {named(code)}")
        await job_logs.keep(self._client, infra, owner, output, self._clock.time())
        return code

    @asynccontextmanager
    async def _granted(self, infra: Obj) -> AsyncIterator[str]:
        token, bound = await granted(self._client, infra, _TOKEN_SECONDS)
        try:
            yield token
        finally:
            with contextlib.suppress(ApiError):
                await revoked(self._client, bound)

    @asynccontextmanager
    async def _directory(self, work: _Work, token: str) -> AsyncIterator[tuple[Path, list[str]]]:
        """Its private directory with all that the program reads, and its arguments."""
        plan, infra = work.plan, work.plan.infra
        content: dict[str, bytes] = {"kubeconfig": kubeconfig(work.api, namespace_of(infra), token)}
        if work.script:
            content["script"] = work.script
        content |= {f"files/{name}": text.encode() for name, text in _told(plan)[1].items() if _is_plain(name)}
        directory = await asyncio.to_thread(self._directories.make, content, user_of(plan.facts.name, work.slot))
        try:
            places = Places(f"{directory}/script", f"{directory}/files")
            yield directory, _told(plan, places)[0]
        finally:
            await asyncio.to_thread(self._directories.discard, directory)


def _told(plan: JobPlan, places: Places = IN_A_POD) -> tuple[list[str], dict[str, str]]:
    """The arguments of a process, and the files that they name."""
    return arguments(
        plan.infra,
        plan.machine,
        plan.facts,
        plan.belonging,
        removing=plan.removing,
        places=places,
        secrets=plan.secrets,
        shown=False,
    )


def _subject(key: Key) -> Ref:
    return Ref("batch", "Job", *key)


def _job_of(infra: Obj) -> Iterable[Key]:
    return (Key(namespace_of(infra), job_name(name_of(infra))),)


# True if the machine names another Job, or another thing to do.
_says_another = changed(("metadata", "annotations", JOB_UID), wanted)


def _is_plain(name: str) -> bool:
    return "/" not in name and name not in ("", ".", "..")


# --- hosts of the driver `local` ----------------------------------------------------------------------------------------
#
# Those that ran when this machine was switched off are started again, once, when the server starts. Of several servers on one
# store each has hosts of its own, whether it leads or not: so the process does this, and not the controllers, which work for as
# long as a server leads.


async def power_on(ground: RunnerConfig) -> None:
    """Start the hosts, and return when all that can be started run; failures are logged. Returns at once if there are no
    hosts."""
    if ground.hosts is None or not ground.hosts.is_dir():
        return
    directories = Directories(ground.directory)
    try:
        await _power_on_all(ground, ground.hosts, directories)
    except OSError as error:
        log.warning("hosts can't be started: %s", error)
    finally:
        directories.close()


async def _power_on_all(ground: RunnerConfig, hosts: Path, directories: Directories) -> None:
    around = PythonPaths.this(ground.environment)
    output = Output()
    directory = await asyncio.to_thread(directories.make, {}, 0)
    variables = environment(around, str(directory), {}, ground.environment)
    variables |= on_this_machine("local", hosts, ground.environment)
    argv = [*ground.program, "power-on"]
    child = Child(jailed(argv, variables, str(directory), around, driver="local", slot=0), output.feed)
    try:
        if code := await child.ended():
            log.warning("hosts can't be started (%s): %s", named(code), output.last(LONGEST))
    finally:
        child.close()
