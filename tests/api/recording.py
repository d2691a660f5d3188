"""What the real kube-apiserver said, test by test, so that most runs need none.

Each test has a *tape*: its requests to the real side in order, with the answers, what kubectl printed there, what watches told
and what webhooks were asked. `REMUDA_TRUTH` says where answers come from:

- `recorded` (the default, `make test`): from the tape. A request that is not on it, or that was recorded with another body, fails
  the test, and so does a tape that a passing test has not used up: a comparison that was removed leaves its answer behind.
- `live` (`make test-real`): from a real kube-apiserver; what a test compares must still be what the tape says.
- `record` (`make test-real RECORD=1`): the same, and the tapes of new tests are written. Where an accepted answer has changed the
  test fails, unless `ACCEPT=1` says that the new one is right.

Tapes hold raw answers, since tests use uids and revisions of the real side in what they ask next; signatures of tokens and
private keys are replaced. Beside the answers stands a digest of everything that was compared, after masks and the test's own
shape: an answer that was edited by hand does not fit it. Tapes of one module are one compressed file in `recorded/`. Fixtures
that outlive a test have tapes of their own. Inside :func:`attempts` only the last attempt is kept.
"""

from __future__ import annotations

import base64
import hashlib
import json
import lzma
import os
import re
import time
from collections import defaultdict
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import pytest

from .masks import HOST, TIME, TOKEN, UUID

RECORDED, LIVE, RECORD = "recorded", "live", "record"
PLACE: Final = Path(__file__).parent / "recorded"
MODE: Final = os.environ.get("REMUDA_TRUTH") or RECORDED
ACCEPT: Final = os.environ.get("ACCEPT") == "1"
HOW_TO_RECORD = "make test-real RECORD=1 ARGS=<file> records it"

_SIGNATURE = re.compile(r"(eyJ[\w-]+\.[\w-]+)\.([\w-]+)")
# The same inside a Secret.
_ENCODED = re.compile(r"\bZXlK[A-Za-z0-9+/]{40,}=*")
_PRIVATE = re.compile(r"-----BEGIN ([A-Z ]*PRIVATE KEY)-----[\w+/=\s\\]+-----END \1-----")
_BUNDLE = re.compile(r'("caBundle": ?")[^"]*"')
_SEPARATE = re.compile(r"/tmp/[^\s\"']*")
_PLACE = re.compile(r"(?<=resourceVersion=)\d+|(?<=continue=)[^&]+")


@dataclass(slots=True)
class Entry:
    """One step: what was asked, a digest of what was sent along, and what came back."""

    key: str
    sent: str
    value: Any


@dataclass
class Tape:
    name: str
    stored: list[Entry] | None = None
    # Whether answers come from the tape, and whether they are kept on it.
    plays: bool = True
    keeps: bool = False
    entries: list[Entry] = field(default_factory=list)
    _queues: dict[str, list[Entry]] = field(default_factory=lambda: defaultdict(list))
    _used: dict[str, int] = field(default_factory=lambda: defaultdict(int))
    names: int = 0

    def __post_init__(self) -> None:
        for entry in self.stored or []:
            self._queues[entry.key].append(entry)

    def new_name(self) -> str:
        """A name that no other test uses, and that is the same in each run."""
        self.names += 1
        return f"t{self.names}-{int(hashlib.sha256(self.name.encode()).hexdigest()[:8], 16)}"

    def take(self, key: str, sent: str, live: Callable[[], Any]) -> Any:
        """The answer to a step; `live` gets it from the real side, as JSON can hold it."""
        if not self.plays:
            entry = Entry(key, sent, live())
            if self.keeps:
                self.entries.append(entry)
            return entry.value
        if self.stored is None:
            pytest.fail(f"there is no recording of {self.name}: {HOW_TO_RECORD}", pytrace=False)
        queue, used = self._queues[key], self._used[key]
        if used >= len(queue):
            pytest.fail(f"{self.name}: {key} is not in its recording (any more often than {len(queue)} times): {HOW_TO_RECORD}")
        self._used[key] += 1
        if queue[used].sent != sent:
            pytest.fail(f"{self.name}: {key} was recorded with another body or other headers: {HOW_TO_RECORD}")
        return queue[used].value

    def compared(self, what: str, shown: Any) -> None:
        """Something of the real side takes part in a comparison, as `shown`."""
        digest = _digest(json.dumps(shown, sort_keys=True, default=str))
        accepted = self.take(f"compared {_neutral(what)}", "", lambda: digest)
        if accepted != digest:
            pytest.fail(f"{self.name}: the recorded answer to {what} is not the one that was accepted", pytrace=False)

    def mark(self) -> Any:
        return dict(self._used) if self.plays else len(self.entries)

    def rewind(self, mark: Any) -> None:
        if self.plays:
            self._used = defaultdict(int, mark)
        else:
            del self.entries[mark:]

    def unused(self) -> list[str]:
        return [key for key, queue in self._queues.items() if self._used[key] < len(queue)]

    def changes(self) -> list[str]:
        """What the real side says otherwise than it did."""
        was, now = (_comparisons(entries) for entries in (self.stored or [], self.entries))
        return sorted(key for key in was.keys() | now.keys() if was.get(key) != now.get(key))

    def asks_otherwise(self) -> bool:
        """True if the real side was asked for something, or with a body, that it was not asked with when this was recorded."""
        was, now = ({(_neutral(entry.key), entry.sent) for entry in entries} for entries in (self.stored or [], self.entries))
        return not now <= was


def _comparisons(entries: list[Entry]) -> dict[str, list[Any]]:
    found: dict[str, list[Any]] = defaultdict(list)
    for entry in entries:
        if entry.key.startswith("compared "):
            found[entry.key].append(entry.value)
    return found


class Shelf:
    """The tapes of all modules, and which one is running."""

    def __init__(self, place: Path = PLACE, mode: str = MODE, *, accept: bool = ACCEPT) -> None:
        self._place, self._mode, self._accept = place, mode, accept
        self._files: dict[str, dict[str, list[Entry]]] = {}
        self._made: dict[str, dict[str, list[Entry]]] = defaultdict(dict)
        self._running: list[Tape] = []
        # Tests elsewhere that use these tools always have a real server, and no tapes.
        self._elsewhere = Tape(f"process {os.getpid()}", plays=False, keeps=False)

    @property
    def current(self) -> Tape:
        return self._running[-1] if self._running else self._elsewhere

    def _file(self, module: str) -> Path:
        return self._place / f"{module}.json.xz"

    def _load(self, module: str) -> dict[str, list[Entry]]:
        if module not in self._files:
            path = self._file(module)
            found = json.loads(lzma.decompress(path.read_bytes())) if path.exists() else {}
            self._files[module] = {name: [Entry(*each) for each in entries] for name, entries in found.items()}
        return self._files[module]

    def begin(self, module: str, name: str) -> Tape:
        plays = self._mode == RECORDED
        tape = Tape(f"{module}::{name}", self._load(module).get(name), plays=plays, keeps=not plays)
        self._running.append(tape)
        return tape

    def end(self, module: str, name: str, *, passed: bool) -> str:
        """What is wrong with the tape, if anything. A test that did not pass says nothing about its tape."""
        tape = self._running.pop()
        if not passed:
            return ""
        if self._mode == RECORDED:
            unused = tape.unused()
            return f"{tape.name}: recorded, and not used: {'; '.join(unused)}. {HOW_TO_RECORD}" if unused else ""
        if tape.stored is None and not tape.entries:
            return ""
        if tape.stored is not None and not (changed := tape.changes()):
            if self._mode == RECORD and tape.asks_otherwise():
                self._made[module][name] = tape.entries
            return ""
        if tape.stored is not None and not (self._mode == RECORD and self._accept):
            return f"{tape.name}: kube-apiserver says something else than was recorded: {'; '.join(changed)}"
        if self._mode != RECORD:
            return f"there is no recording of {tape.name}: {HOW_TO_RECORD}"
        self._made[module][name] = tape.entries
        return ""

    def write(self, module: str, known: set[str] | None) -> None:
        """Keep what was recorded; forget the tests that are not `known`."""
        old, made = self._load(module), self._made.pop(module, {})
        kept = {name: each for name, each in {**old, **made}.items() if known is None or name.startswith("@") or name in known}
        if kept.keys() == old.keys() and not made:
            return
        self._place.mkdir(exist_ok=True)
        listed = {name: [[each.key, each.sent, each.value] for each in kept[name]] for name in sorted(kept)}
        text = scrubbed(json.dumps(listed, sort_keys=True, separators=(",", ":")))
        self._file(module).write_bytes(lzma.compress(text.encode(), preset=9 | lzma.PRESET_EXTREME))
        self._files[module] = kept


SHELF: Final = Shelf()


def current() -> Tape:
    return SHELF.current


def value(what: str, live: Callable[[], Any]) -> Any:
    """Something that only the real side knows."""
    return current().take(what, "", live)


def scrubbed(text: str) -> str:
    """Without what opens something: a token keeps its claims and its length, and loses its signature."""

    def without(token: re.Match[str]) -> str:
        return f"{token[1]}.{('recorded' * len(token[2]))[: len(token[2])]}"

    def decoded(secret: re.Match[str]) -> str:
        return base64.b64encode(_SIGNATURE.sub(without, base64.b64decode(secret[0]).decode()).encode()).decode()

    unsigned = _ENCODED.sub(decoded, _SIGNATURE.sub(without, text))
    return _PRIVATE.sub(r"-----BEGIN \1-----recorded-----END \1-----", unsigned)


def _neutral(text: str) -> str:
    """Without what is another in each run."""
    return UUID.sub("<uid>", _PLACE.sub("<revision>", _SEPARATE.sub("<file>", HOST.sub("<host>", text))))


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def sent(body: bytes | str | None, **more: str | None) -> str:
    """A digest of what goes along with a request."""
    text = body.decode("latin-1") if isinstance(body, bytes) else body or ""
    for pattern, name in ((TOKEN, "<token>"), (_BUNDLE, r"\1"), (HOST, "<host>"), (TIME, "<time>"), (_SEPARATE, "<file>")):
        text = pattern.sub(name, text)
    said = [f"{name}: {TOKEN.sub('<token>', value)}" for name, value in sorted(more.items()) if value]
    return _digest("\n".join([text, *said])) if text or said else ""


def packed(data: bytes) -> str | dict[str, str]:
    try:
        return data.decode()
    except UnicodeDecodeError:
        return {"base64": base64.b64encode(data).decode()}


def unpacked(value: str | dict[str, str]) -> bytes:
    return value.encode() if isinstance(value, str) else base64.b64decode(value["base64"])


# --- waiting ------------------------------------------------------------------------------------------------------------------


class Attempt:
    """`saw` keeps what was found, so that waiting ends when it no longer changes."""

    def __init__(self) -> None:
        self.last: Any = None
        self.moved = time.monotonic()

    def saw(self, found: Any) -> None:
        text = repr(found)
        if text != self.last:
            self.last, self.moved = text, time.monotonic()


def attempts(what: str, quiet: float = 90.0, pause: float = 0.03) -> Iterator[Attempt]:
    """Try again until the caller leaves the loop. Fails when nothing that it `saw` has changed for `quiet` seconds."""
    attempt, mark = Attempt(), current().mark()
    while True:
        current().rewind(mark)
        yield attempt
        if time.monotonic() - attempt.moved > quiet:
            pytest.fail(f"{what}: nothing has changed for {quiet:g} s; last seen: {attempt.last}")
        time.sleep(pause)


# --- pytest -------------------------------------------------------------------------------------------------------------------


@contextmanager
def of_fixture(fixturedef: pytest.FixtureDef[Any], request: pytest.FixtureRequest) -> Iterator[None]:
    """A fixture that outlives a test has a tape of its own for what it does at its beginning, and another for its end."""
    module = request.node.path.stem if request.scope in ("module", "class") else "conftest"
    param = f"[{request.param_index}]" if hasattr(request, "param") else ""
    name = f"@{fixturedef.argname}{param}"
    closing: list[Tape] = []

    def closed() -> None:
        if closing and (problem := SHELF.end(module, f"{name} ends", passed=True)):
            pytest.fail(problem, pytrace=False)

    # Finalizers run in reverse: this one after the fixture's own end, the one below before it.
    fixturedef.addfinalizer(closed)
    SHELF.begin(module, name)
    passed = False
    try:
        yield
        passed = True
    finally:
        problem = SHELF.end(module, name, passed=passed)
    fixturedef.addfinalizer(lambda: closing.append(SHELF.begin(module, f"{name} ends")))
    if problem:
        pytest.fail(problem, pytrace=False)
