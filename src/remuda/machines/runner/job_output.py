"""What a Job's process says: its last lines, without the secrets that it was given. Pure.

Kept in a ConfigMap, since the process is gone when somebody asks, and perhaps this server too; :mod:`.job_logs` writes it.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable
from itertools import islice

from remuda.kube.redaction import HIDDEN, redacted

from ..driver import ASIDE

LARGEST = 64 << 10
_LONGEST_LINE = 4096
# Shorter ones are no secrets, and would be found everywhere.
_SHORTEST_SECRET = 6


class Output:
    """`secrets` are hidden wherever they come up, besides all that looks like one. `before` is what earlier processes said: it is
    kept with the rest, but it is not what this one said (:meth:`last`). `aside` gets the lines that are for the server alone."""

    def __init__(self, secrets: Iterable[str] = (), before: str = "", aside: Callable[[str], None] = lambda line: None) -> None:
        parts = {part for secret in secrets for part in (secret, *secret.splitlines())}
        self._secrets = sorted((part for part in parts if len(part.strip()) >= _SHORTEST_SECRET), key=len, reverse=True)
        self._longest = len(self._secrets[0].encode()) if self._secrets else 0
        self._lines: deque[str] = deque()
        self._size = 0
        self._rest = b""
        self._aside = aside
        # Moves with every line, for who looks whether there is more.
        self.count = 0
        for line in before.splitlines():
            self._keep(line)
        # How many of the lines that are there are of this process.
        self._own = 0

    def begin(self, title: str) -> None:
        """A line above what comes now. It is not among what the process said."""
        self._keep(title)
        self._own = 0

    def feed(self, said: bytes) -> None:
        *lines, self._rest = (self._rest + said).split(b"\n")
        if len(self._rest) > _LONGEST_LINE + self._longest:
            # Where it is cut, a secret may have begun: so much of it stays for the next look.
            hidden = self._without_secrets(self._rest.decode(errors="replace")).encode()
            lines.append(hidden[: len(hidden) - self._longest])
            self._rest = hidden[len(hidden) - self._longest :]
        for line in lines:
            self.line(line.decode(errors="replace"))

    def end(self) -> None:
        """There will be no more."""
        if self._rest:
            self.line(self._rest.decode(errors="replace"))
            self._rest = b""

    def line(self, text: str) -> None:
        # First hidden, then cut and cleaned: half a secret, or one without its tabs, would not be known again.
        hidden = self._without_secrets(text.rstrip())[:_LONGEST_LINE]
        clean = redacted("".join(each if each.isprintable() else " " for each in hidden))
        if text.startswith(ASIDE):
            self._aside(clean.strip())
            return
        self._keep(clean)
        self._own += 1

    def _without_secrets(self, text: str) -> str:
        for secret in self._secrets:
            text = text.replace(secret, HIDDEN)
        return text

    def _keep(self, line: str) -> None:
        self.count += 1
        self._lines.append(line)
        self._size += len(line.encode()) + 1
        while self._size > LARGEST and self._lines:
            self._size -= len(self._lines.popleft().encode()) + 1

    def text(self) -> str:
        return "".join(f"{line}\n" for line in self._lines)

    def last(self, most: int) -> str:
        """The end of what this process said, in whole lines, of at most so many bytes; nothing of what others said before it."""
        kept: deque[str] = deque()
        size = 0
        for line in islice(reversed(self._lines), self._own):
            size += len(line.encode()) + 1
            if size > most:
                break
            kept.appendleft(line)
        return "\n".join(kept)
