"""The output of the demo: in colour and with moving pictures on a terminal, one line for each event elsewhere."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TextIO, cast

from remuda.kube.clock import Clock

from ..views import cluster_tree
from ..views.cluster_tree import Line, Piece, Screen, painted
from ..views.output import is_terminal, paint

_SPINNER = "⠋⠙⠹⠸⠼⠴⠦⠧⠇⠏"
# Pictures in a second.
PACE = 10.0
DONE, FAILED = "✔", "✘"


def spinner(elapsed: float) -> str:
    return _SPINNER[int(elapsed * PACE) % len(_SPINNER)]


def header(mark: str, title: str, elapsed: float, colour: str) -> Line:
    return (Piece(f"{mark} ", colour), Piece(f"{title}  ", "bold"), Piece(f"{elapsed:.1f} s", "dim"))


class Audience:
    """A stream whose reader may go (`| head`, a terminal that is closed) without us: there are things to be taken down first."""

    def __init__(self, stream: TextIO, gone: Callable[[], None]) -> None:
        self._stream = stream
        self._gone: Callable[[], None] | None = gone

    def write(self, text: str) -> int:
        return self._unless_gone(lambda: self._stream.write(text))

    def flush(self) -> None:
        self._unless_gone(lambda: self._stream.flush() or 0)

    def isatty(self) -> bool:
        return self._stream.isatty()

    def _unless_gone(self, action: Callable[[], int]) -> int:
        if self._gone is not None:
            try:
                return action()
            except OSError:
                gone, self._gone = self._gone, None
                gone()
        return 0


class Stage:
    def __init__(self, stream: TextIO, clock: Clock, gone: Callable[[], None] = lambda: None) -> None:
        """`gone` is called once, when the last listener has left."""
        stream = cast("TextIO", Audience(stream, gone))
        self.live = is_terminal(stream)
        self._stream = stream
        self._clock = clock
        self._began = clock.monotonic()
        self._facts: dict[str, str] = {}

    @property
    def elapsed(self) -> float:
        return self._clock.monotonic() - self._began

    def say(self, text: str = "", colour: str = "") -> None:
        self._write(paint(text, colour, self._stream) if colour else text)

    def block(self, lines: Iterable[str], colour: str = "dim") -> None:
        for line in lines:
            self.say(f"  {line}".rstrip(), colour)

    def command(self, line: str) -> None:
        """As a user would type it."""
        self.say(f"$ {line}", "green")

    def begin(self, title: str) -> Act:
        if not self.live:
            self.note(title)
        return Act(self, title, self._clock, self._stream)

    def note(self, text: str) -> None:
        """A line with its time, for those who read a log."""
        self._write(f"[{self.elapsed:6.1f} s] {text}")

    def tell(self, facts: Mapping[str, str]) -> None:
        """The changes since the last report."""
        for line in cluster_tree.news(self._facts, facts):
            self.note(f"  {line}")
        self._facts = dict(facts)

    def _write(self, text: str) -> None:
        self._stream.write(f"{text}\n")
        self._stream.flush()


class Act:
    """One thing that takes its time, from :meth:`Stage.begin` to :meth:`end`."""

    def __init__(self, stage: Stage, title: str, clock: Clock, stream: TextIO) -> None:
        self._stage = stage
        self._title = title
        self._clock = clock
        self._stream = stream
        self._began = clock.monotonic()
        self._screen = Screen(stream)
        self._picture: Sequence[Line] = ()

    @property
    def elapsed(self) -> float:
        return self._clock.monotonic() - self._began

    def show(self, picture: Sequence[Line] | None = None, facts: Mapping[str, str] | None = None) -> None:
        """Shows the present state; without one, that time passes. `facts` are for output without pictures."""
        self._picture = self._picture if picture is None else picture
        if self._stage.live:
            elapsed = self.elapsed
            self._screen.show([header(spinner(elapsed), self._title, elapsed, "yellow"), *self._picture])
        elif facts is not None:
            self._stage.tell(facts)

    def end(self, title: str = "", *, failed: bool = False) -> float:
        """The picture stays as it is; how long it took."""
        elapsed = self.elapsed
        mark, colour = (FAILED, "red") if failed else (DONE, "green")
        line = header(mark, title or self._title, elapsed, colour)
        if self._stage.live:
            self._screen.show([line, *self._picture])
        else:
            self._stage.note(painted(line, self._stream))
        return elapsed
