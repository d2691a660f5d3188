"""Counters for /metrics, in Prometheus' text form, under kube-apiserver's names where they mean the same."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from .paths import Target

_BUCKETS = (0.005, 0.025, 0.05, 0.1, 0.2, 0.4, 0.6, 0.8, 1.0, 1.25, 1.5, 2, 3, 4, 5, 6, 8, 10, 15, 20, 30, 45, 60)
Gauge = Callable[[], Iterable[tuple[dict[str, str], float]]]


def _labels(names: tuple[str, ...], values: tuple[str, ...]) -> str:
    pairs = ",".join(f'{name}="{_escape(value)}"' for name, value in zip(names, values, strict=True))
    return f"{{{pairs}}}" if pairs else ""


def _escape(text: str) -> str:
    return text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")


class Metrics:
    def __init__(self) -> None:
        self._requests: dict[tuple[str, ...], int] = {}
        self._durations: dict[tuple[str, ...], list[float]] = {}
        self._gauges: dict[str, tuple[str, Gauge, str]] = {}
        self.lag = [0.0] * (len(_BUCKETS) + 3)
        # Metrics of other parts of this process, in the same text form.
        self.others: list[Callable[[], str]] = []

    def request(self, target: Target, status: int, seconds: float) -> None:
        scope = "resource" if target.name else "namespace" if target.namespace else "cluster" if target.resource else ""
        verb = target.verb.upper() if target.resource else target.method
        where = (verb, target.group, target.version, target.resource, target.subresource, scope)
        key = (*where, str(status))
        self._requests[key] = self._requests.get(key, 0) + 1
        if verb == "WATCH":
            return
        found = self._durations.get(where)
        if found is None:
            found = self._durations[where] = [0.0] * (len(_BUCKETS) + 3)
        _observe(found, seconds)

    def loop_lag(self, seconds: float) -> None:
        _observe(self.lag, seconds)

    def gauge(self, name: str, help_: str, read: Gauge, kind: str = "gauge") -> None:
        """A value that is read on each scrape."""
        self._gauges[name] = (help_, read, kind)

    def text(self) -> str:
        lines: list[str] = []
        names = ("verb", "group", "version", "resource", "subresource", "scope")
        lines += _head("apiserver_request_total", "Requests answered.", "counter")
        for key, count in self._requests.items():
            lines.append(f"apiserver_request_total{_labels((*names, 'code'), key)} {count}")
        lines += _head("apiserver_request_duration_seconds", "Time to answer, watches left out.", "histogram")
        for key, values in self._durations.items():
            lines += _histogram("apiserver_request_duration_seconds", names, key, values)
        lines += _head("remuda_event_loop_lag_seconds", "The delay of the event loop's timers.", "histogram")
        lines += _histogram("remuda_event_loop_lag_seconds", (), (), self.lag)
        for name, (help_, read, kind) in self._gauges.items():
            lines += _head(name, help_, kind)
            for labels, value in read():
                lines.append(f"{name}{_labels(tuple(labels), tuple(labels.values()))} {value:g}")
        return "\n".join(lines) + "\n" + "".join(other() for other in self.others)


def _observe(values: list[float], seconds: float) -> None:
    values[bisect_left(_BUCKETS, seconds)] += 1
    values[-1] += seconds


def _head(name: str, help_: str, kind: str) -> list[str]:
    return [f"# HELP {name} {help_}", f"# TYPE {name} {kind}"]


def _histogram(name: str, label_names: tuple[str, ...], key: tuple[str, ...], values: list[float]) -> list[str]:
    lines: list[str] = []
    total = 0.0
    for bound, count in zip((*(f"{b:g}" for b in _BUCKETS), "+Inf"), values, strict=False):
        total += count
        lines.append(f"{name}_bucket{_labels((*label_names, 'le'), (*key, bound))} {total:g}")
    labels = _labels(label_names, key)
    return [*lines, f"{name}_sum{labels} {values[-1]:.9g}", f"{name}_count{labels} {total:g}"]
