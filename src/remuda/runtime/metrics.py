"""Numbers about queues, reconciles and leadership, in Prometheus' text form, under controller-runtime's names.

A :class:`Registry` belongs to one process; the server of `/metrics` includes its :meth:`Registry.text`. A family is made on
first use and shared afterwards, so that ten queues are ten label sets of one family.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Iterable, Sequence

Labels = tuple[str, ...]
# Read at each scrape: label values and the number.
Reading = Callable[[], Iterable[tuple[Labels, float]]]


def _rendered(names: Labels, values: Labels) -> str:
    pairs = ",".join(f'{name}="{_escape(value)}"' for name, value in zip(names, values, strict=True))
    return f"{{{pairs}}}" if pairs else ""


def _escape(text: str) -> str:
    return text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")


class Counter:
    kind = "counter"

    def __init__(self, name: str, labels: Labels) -> None:
        self._name, self._labels = name, labels
        self._values: dict[Labels, float] = {}

    def add(self, *labels: str, by: float = 1.0) -> None:
        self._values[labels] = self._values.get(labels, 0.0) + by

    def value(self, *labels: str) -> float:
        return self._values.get(labels, 0.0)

    def lines(self) -> Iterable[str]:
        for labels, value in self._values.items():
            yield f"{self._name}{_rendered(self._labels, labels)} {value:.15g}"


class Gauge:
    """Every component with such a number adds a reading function, and removes it when it ends."""

    kind = "gauge"

    def __init__(self, name: str, labels: Labels) -> None:
        self._name, self._labels = name, labels
        self._readings: list[Reading] = []

    def read(self, reading: Reading) -> Callable[[], None]:
        """Show the values of `reading`; call the result to stop that."""
        self._readings.append(reading)

        def forget() -> None:
            if reading in self._readings:
                self._readings.remove(reading)

        return forget

    def lines(self) -> Iterable[str]:
        for reading in self._readings:
            for labels, value in reading():
                yield f"{self._name}{_rendered(self._labels, labels)} {value:.15g}"


class Tally(Gauge):
    """Counts that their owners keep, and that disappear with their owners."""

    kind = "counter"


class Histogram:
    kind = "histogram"

    def __init__(self, name: str, labels: Labels, buckets: Sequence[float]) -> None:
        self._name, self._labels = name, labels
        self._buckets = tuple(buckets)
        # Counts per bucket, the one above all of them, and the sum.
        self._values: dict[Labels, list[float]] = {}

    def observe(self, seconds: float, *labels: str) -> None:
        found = self._values.get(labels)
        if found is None:
            found = self._values[labels] = [0.0] * (len(self._buckets) + 2)
        found[bisect_left(self._buckets, seconds)] += 1
        found[-1] += seconds

    def count(self, *labels: str) -> float:
        return sum(self._values.get(labels, [0.0])[:-1])

    def lines(self) -> Iterable[str]:
        bounds = (*(f"{bound:g}" for bound in self._buckets), "+Inf")
        for labels, values in self._values.items():
            total = 0.0
            for bound, count in zip(bounds, values, strict=False):
                total += count
                yield f"{self._name}_bucket{_rendered((*self._labels, 'le'), (*labels, bound))} {total:g}"
            yield f"{self._name}_sum{_rendered(self._labels, labels)} {values[-1]:.9g}"
            yield f"{self._name}_count{_rendered(self._labels, labels)} {total:g}"


class Registry:
    def __init__(self) -> None:
        self._families: dict[str, tuple[str, Counter | Gauge | Histogram]] = {}

    def counter(self, name: str, help_: str, labels: Labels) -> Counter:
        made = self._families.setdefault(name, (help_, Counter(name, labels)))[1]
        assert isinstance(made, Counter)
        return made

    def gauge(self, name: str, help_: str, labels: Labels) -> Gauge:
        made = self._families.setdefault(name, (help_, Gauge(name, labels)))[1]
        assert isinstance(made, Gauge)
        return made

    def tally(self, name: str, help_: str, labels: Labels) -> Tally:
        made = self._families.setdefault(name, (help_, Tally(name, labels)))[1]
        assert isinstance(made, Tally)
        return made

    def histogram(self, name: str, help_: str, labels: Labels, buckets: Sequence[float]) -> Histogram:
        made = self._families.setdefault(name, (help_, Histogram(name, labels, buckets)))[1]
        assert isinstance(made, Histogram)
        return made

    def queue(self, name: str) -> QueueMetrics:
        return QueueMetrics(self, name)

    def text(self) -> str:
        lines: list[str] = []
        for name, (help_, family) in self._families.items():
            lines += (f"# HELP {name} {help_}", f"# TYPE {name} {family.kind}")
            lines += family.lines()
        return "\n".join(lines) + "\n" if lines else ""


# Ten nanoseconds and ten times more, eleven times over.
_QUEUE_BUCKETS = tuple(1e-8 * 10**power for power in range(12))
_RECONCILE_BUCKETS = (
    *(0.005, 0.01, 0.025, 0.05, 0.1, 0.15, 0.2, 0.25, 0.3, 0.35, 0.4, 0.45, 0.5, 0.6, 0.7, 0.8, 0.9, 1.0),
    *(1.25, 1.5, 1.75, 2.0, 2.5, 3.0, 3.5, 4.0, 4.5, 5, 6, 7, 8, 9, 10, 15, 20, 25, 30, 40, 50, 60),
)


class QueueMetrics:
    """The metrics of client-go's work queues, for one queue."""

    def __init__(self, registry: Registry, name: str) -> None:
        both = ("name", "controller")
        self._labels = (name, name)
        self._depth = registry.gauge("workqueue_depth", "Keys that wait, by priority.", (*both, "priority"))
        self._adds = registry.counter("workqueue_adds_total", "Keys added.", both)
        self._latency = registry.histogram(
            "workqueue_queue_duration_seconds", "The time that a key waits before it is taken.", both, _QUEUE_BUCKETS
        )
        self._work = registry.histogram(
            "workqueue_work_duration_seconds", "The time that the work on a key takes.", both, _QUEUE_BUCKETS
        )
        self._unfinished = registry.gauge(
            "workqueue_unfinished_work_seconds", "Seconds of work in progress, all keys in hand together.", both
        )
        self._longest = registry.gauge(
            "workqueue_longest_running_processor_seconds", "For how long the oldest key in hand has been worked on.", both
        )
        self._retries = registry.counter("workqueue_retries_total", "Keys added with a delay.", both)

    def follow(self, depths: Callable[[], Iterable[tuple[int, int]]], ages: Callable[[], list[float]]) -> Callable[[], None]:
        """Read the queue's depth by priority and the ages of keys in hand; call the result when the queue closes."""
        labels = self._labels
        stops = (
            self._depth.read(lambda: [((*labels, str(priority)), float(count)) for priority, count in depths()]),
            self._unfinished.read(lambda: [(labels, sum(ages()))]),
            self._longest.read(lambda: [(labels, max(ages(), default=0.0))]),
        )

        def forget() -> None:
            for stop in stops:
                stop()

        return forget

    def added(self) -> None:
        self._adds.add(*self._labels)

    def delayed(self) -> None:
        self._retries.add(*self._labels)

    def taken(self, waited: float) -> None:
        self._latency.observe(waited, *self._labels)

    def finished(self, worked: float) -> None:
        self._work.observe(worked, *self._labels)


class ReconcileMetrics:
    """The metrics of controller-runtime, for one controller."""

    def __init__(self, registry: Registry, name: str) -> None:
        one = ("controller",)
        self._name = name
        self._total = registry.counter("controller_runtime_reconcile_total", "Reconciles by result.", (*one, "result"))
        self._errors = registry.counter("controller_runtime_reconcile_errors_total", "Reconciles that failed.", one)
        self._panics = registry.counter(
            "controller_runtime_reconcile_panics_total", "Reconciles that failed with an unexpected error.", one
        )
        self._timeouts = registry.counter(
            "controller_runtime_reconcile_timeouts_total", "Reconciles cut for taking too long.", one
        )
        self._time = registry.histogram(
            "controller_runtime_reconcile_time_seconds", "The time that a reconcile takes.", one, _RECONCILE_BUCKETS
        )
        self._most = registry.gauge("controller_runtime_max_concurrent_reconciles", "Reconciles allowed at once.", one)
        self._active = registry.gauge("controller_runtime_active_workers", "Reconciles that run now.", one)
        # Zero values, so that a dashboard has no gap.
        for result in ("success", "error", "requeue", "requeue_after"):
            self._total.add(name, result, by=0.0)
        for counter in (self._errors, self._panics, self._timeouts):
            counter.add(name, by=0.0)

    def follow(self, concurrency: int, active: Callable[[], int]) -> Callable[[], None]:
        stops = (
            self._most.read(lambda: [((self._name,), float(concurrency))]),
            self._active.read(lambda: [((self._name,), float(active()))]),
        )

        def forget() -> None:
            for stop in stops:
                stop()

        return forget

    def ended(self, result: str, seconds: float) -> None:
        """`result`: success, requeue_after, requeue (not yet), error, timeout or panic (also errors)."""
        self._time.observe(seconds, self._name)
        failed = result in ("error", "timeout", "panic")
        self._total.add(self._name, "error" if failed else result)
        if failed:
            self._errors.add(self._name)
        if result == "timeout":
            self._timeouts.add(self._name)
        if result == "panic":
            self._panics.add(self._name)
