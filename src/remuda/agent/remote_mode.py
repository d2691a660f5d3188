"""Remote mode: apply the plan in a Secret and report into the same Secret (docs/reference/agent.md#decision,
docs/reference/agent.md#conflicts).

One pass: take the newest version, decide, claim, apply, probe, write what changed. Passes come with events and, while all is
settled, every five seconds. The original ends its process when a write fails; here the pass is repeated, and ``plans.journal``
keeps what ran from running again, so a server that is away for a day only delays the report.
"""

from __future__ import annotations

import collections
import threading
from collections.abc import Callable

from . import log
from .clock import Clock
from .errors import AgentError, ApiError, Departed
from .plan_secret import KubeApi, Secret, SecretWatch, data_of, older, with_data
from .plans import decide as d
from .plans import probes
from .plans.apply import Engine
from .plans.plan import Plan, checksum_of, parse

_ERROR_PAUSE, _LONGEST_ERROR_PAUSE = 60.0, 300.0
_REPORT_PAUSES = (0.01, 0.05, 0.25, 1.25)
_AWAY_PAUSE = 5.0


class Superseded(AgentError):
    """The plan changed while it was applied: the result is not reported."""


class Remote:
    """Obeys one Secret."""

    def __init__(
        self,
        engine: Engine,
        api: KubeApi,
        watch: SecretWatch,
        clock: Clock,
        stop: threading.Event,
        settled: Callable[[], None] = lambda: None,
        about: Callable[[], bytes] = bytes,
        noticed: Callable[[Secret], None] = lambda secret: None,
    ) -> None:
        self.engine = engine
        self.api = api
        self.watch = watch
        self.clock = clock
        self.stop = stop
        self.settled = settled
        self.about = about
        self.noticed = noticed
        self.journal = engine.journal("remote")
        self.prober = probes.Prober(clock, log.debug)
        self._uid = ""
        self._first = True
        self._written = ""
        self._last: Secret | None = None
        # Data of this version that could not be written: passes continue from it, or everything periodic would be due in each.
        self._owed: tuple[str, dict[str, bytes]] = ("", {})

    def run(self) -> None:
        """Until stopped."""
        pause = 0.0
        errors = away = 0
        while not self.stop.is_set():
            if not self.clock.wait(self.watch.wake, pause) and self._last is None and self.watch.newest() is None:
                pause = d.DEFAULT_PROBE_PERIOD
                continue
            self.watch.wake.clear()
            if self.stop.is_set():
                return
            if self.watch.departed:
                raise Departed(
                    f"the machine of this host was deleted on {self.api.url.netloc}: the agent stops. To remove all that it "
                    "installed, run rancher-system-agent-uninstall.sh; to join a cluster again, run its registration command"
                )
            if self.watch.fatal:
                raise AgentError(self.watch.fatal)
            try:
                pause = self.step()
                errors = away = 0
            except Superseded as reason:
                log.info(str(reason))
                pause = 0.0
            except ApiError as reason:
                log.warning(f"can't write to the plan's secret: {reason}")
                pause = min(_AWAY_PAUSE * 2**away, _ERROR_PAUSE)
                away = min(away + 1, 10)
            except (AgentError, OSError) as reason:
                pause = min(_ERROR_PAUSE * 2**errors, _LONGEST_ERROR_PAUSE)
                errors = min(errors + 1, 10)
                log.error(f"can't apply the plan: {reason}; again in {pause:g} s")
                self.engine.progress(f"can't apply the plan: {reason}; again in {pause:g} s")
                self.complain(str(reason))

    def step(self) -> float:
        """One pass over the newest version; gives the seconds until the next."""
        secret = self.watch.newest()
        if secret is None:
            self._last = None
            return d.DEFAULT_PROBE_PERIOD
        self._meet(secret)
        self.noticed(secret)
        if self._last is not None and older(secret, self._last):
            # Our own write has not come back yet; it is offered to the watch, so this takes only a moment.
            return d.DEFAULT_PROBE_PERIOD
        data = data_of(secret)
        if d.PLAN not in data:
            return d.probe_period(data)
        return self._pass(secret, data, parse(data[d.PLAN]))

    def complain(self, reason: str) -> None:
        """Report the reason why a claimed plan does not begin: a full disk, for example. The original ends, and says nothing.

        Not in the older flow, in which a write of ours means that there is nothing to do.
        """
        secret = self.watch.newest()
        data = data_of(secret) if secret is not None else {}
        if secret is None or d.text(data, d.STATE) != d.IN_PROGRESS or d.text(data, d.FAILURE_REASON) == reason:
            return
        try:
            self._write(secret, {**data, d.FAILURE_REASON: reason.encode(errors="replace")}, checksum_of(data[d.PLAN]))
        except (ApiError, Superseded) as problem:
            log.warning(f"can't report this in the plan's secret: {problem}")

    def _meet(self, secret: Secret) -> None:
        uid = str(secret.get("metadata", {}).get("uid") or "")
        if uid != self._uid:
            self._uid, self._first, self._written, self._last = uid, True, "", None

    def _pass(self, secret: Secret, data: dict[str, bytes], plan: Plan) -> float:
        own = bool(self._written) and _version(secret) == self._written
        decision = d.decide(data, plan.checksum, self._uid, self.clock.now(), self._first, own)
        if decision.claim:
            secret = self._write(secret, d.claimed(data), plan.checksum, claim=True)
            data = data_of(secret)
        known = {**data, **(self._owed[1] if self._owed[0] == _version(secret) else {})}
        result = self.engine.apply(
            plan,
            run_one_time=decision.apply,
            attempt=decision.attempt,
            known_one_time=d.known_output(data, decision),
            known_periodic=known.get(d.APPLIED_PERIODIC, b""),
            journal=self.journal,
            run_id=decision.run,
        )
        if result.why:
            log.error(f"plan {plan.checksum[:12]} failed: {result.why}")
        statuses = self.prober.ask_all(plan.probes, probes.decode(known.get(d.PROBES, b"")), result.ran, self.stop)
        after = d.reported(data, plan.checksum, decision, result, probes.encode(statuses), self.clock.now())
        if said := self.about():
            after[d.AGENT] = said
        if after != data:
            self._owed = (_version(secret), {key: after[key] for key in (d.APPLIED_PERIODIC, d.PROBES)})
            self._write(secret, after, plan.checksum)
        self._owed = ("", {})
        self._first = False
        if result.ran:
            self.journal.close()
        self.settled()
        return d.probe_period(data)

    def _write(self, secret: Secret, data: dict[str, bytes], checksum: str, claim: bool = False) -> Secret:
        """Write, through a few mishaps; a conflict is resolved only while the plan is still the one we worked on."""
        trial = with_data(secret, data)
        last: ApiError | None = None
        for pause in (*_REPORT_PAUSES, None):
            try:
                written = self.api.update(trial)
            except ApiError as reason:
                last = reason
                if reason.status == 404:
                    self.watch.offer(None)
                    raise Superseded("the plan's secret is gone") from reason
                if reason.status == 409:
                    trial = self._rebased(secret, data, checksum, claim)
                elif reason.status in (400, 403, 413, 422):
                    raise
                if pause is not None:
                    self.clock.wait(self.stop, pause)
                continue
            self._last, self._written = written, _version(written)
            self.watch.offer(written)
            return written
        assert last is not None
        raise last

    def _rebased(self, secret: Secret, data: dict[str, bytes], checksum: str, claim: bool) -> Secret:
        meta = secret["metadata"]
        latest = self.api.get(meta["namespace"], meta["name"])
        self.watch.offer(latest)
        now = data_of(latest)
        if latest.get("metadata", {}).get("uid") != meta.get("uid") or checksum_of(now.get(d.PLAN, b"")) != checksum:
            raise Superseded("the plan changed while it was applied; the new one is next")
        state = d.text(now, d.STATE)
        expected = d.text(data_of(secret), d.STATE)
        if state != expected:
            raise Superseded(f"plan-state became {state!r} meanwhile; looking again")
        if claim:
            return with_data(latest, d.claimed(now))
        results = {key: data[key] for key in d.RESULT_KEYS if key in data}
        return with_data(latest, {**now, **results})


def _version(secret: Secret) -> str:
    return str(secret.get("metadata", {}).get("resourceVersion") or "")


# --- progress -------------------------------------------------------------------------------------------------------------
#
# The host's progress, sent to the server line by line for users who watch (``POST /v3/connect/progress``). Delivery is best
# effort: lines wait in a short ring, are sent in batches by a separate thread, and are dropped when the server is slow, away, or
# does not support them. They are not stored anywhere and the plan's Secret is not written for them.

_RING = 200
_LONGEST = 1000
_BATCH_PAUSE = 0.5
_SERVER_AWAY_PAUSE = 60.0
_DEAF_PAUSE = 3600.0
_HIDDEN = "***"


class ProgressReporter:
    """The ring, and the thread that empties it."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._ring: collections.deque[str] = collections.deque(maxlen=_RING)
        self._some = threading.Event()
        self._secrets: tuple[str, ...] = ()
        self._on = False

    def say(self, line: str) -> None:
        """Hand over one line; never waits."""
        if not self._on:
            return
        for secret in self._secrets:
            line = line.replace(secret, _HIDDEN)
        self._ring.append(line[:_LONGEST])
        self._some.set()

    def start(self, api: KubeApi, stop: threading.Event) -> None:
        """Begin to send; the token that opens the plan is never a line."""
        self._on = True
        self._secrets = (api.token,) if api.token else ()
        threading.Thread(target=self._run, args=(api, stop), name="progress", daemon=True).start()

    def _run(self, api: KubeApi, stop: threading.Event) -> None:
        while not stop.is_set():
            self._some.wait()
            self._clock.wait(stop, _BATCH_PAUSE)
            self._clock.wait(stop, self.send(api))

    def send(self, api: KubeApi) -> float:
        """Send the collected lines; the seconds to wait afterwards."""
        self._some.clear()
        lines = []
        while self._ring:
            lines.append(self._ring.popleft())
        if not lines:
            return 0.0
        try:
            api.call("POST", "/v3/connect/progress", {"lines": lines}, timeout=10.0)
        except ApiError as reason:
            return _DEAF_PAUSE if reason.status in (404, 405) else _SERVER_AWAY_PAUSE
        return 0.0
