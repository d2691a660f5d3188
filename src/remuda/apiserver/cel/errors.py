"""Errors of CEL expressions: compile errors in the text form of Kubernetes, and evaluation errors.

Two families. `CompileError` carries all issues found in a source text, rendered with line, column and caret.
`CelError` is raised while evaluating: `EvalError` may be absorbed by `&&`, `||` and the quantifiers, `CostExceeded` never is.
The lexer, parser and checker all report into one `Issues` collector.
"""

from __future__ import annotations

from bisect import bisect_right
from dataclasses import dataclass

MAX_ISSUES = 100
_MAX_SNIPPET = 16384
NO_POSITION = -1


class CompileError(ValueError):
    """The expression cannot be compiled; `messages` has one rendered text per issue."""

    def __init__(self, detail: str, messages: list[str] | None = None) -> None:
        super().__init__(detail)
        self.detail = detail
        self.messages = messages if messages is not None else [detail]


class CelError(Exception):
    """A failed evaluation; the text is Kubernetes'."""


class EvalError(CelError):
    """An ordinary evaluation error: a missing key, a division by zero, a value of the wrong type."""


class CostExceeded(CelError):
    """The expression exceeded its cost limit; nothing absorbs this."""


COST_LIMIT_TEXT = "operation cancelled: actual cost limit exceeded"


def no_such_overload() -> EvalError:
    return EvalError("no such overload")


def no_such_key(key: object) -> EvalError:
    return EvalError(f"no such key: {show_key(key)}")


def show_key(key: object) -> str:
    if isinstance(key, bool):
        return "true" if key else "false"
    return str(key)


@dataclass(frozen=True, slots=True)
class Issue:
    position: int
    message: str


class Issues:
    """All issues of one source text, in the order they were found."""

    def __init__(self, source: str) -> None:
        self.source = source
        self.found: list[Issue] = []
        self.total = 0
        self._starts = [0]
        for offset, char in enumerate(source):
            if char == "\n":
                self._starts.append(offset + 1)

    def __bool__(self) -> bool:
        return self.total > 0

    def report(self, position: int, message: str) -> None:
        self.total += 1
        if self.total <= MAX_ISSUES:
            self.found.append(Issue(position, message))

    def raise_if_any(self, prefix: str) -> None:
        if self.total:
            messages = self.render()
            raise CompileError(prefix + "\n".join(messages), messages)

    def render(self) -> list[str]:
        placed = sorted(((self._place(issue.position), issue) for issue in self.found), key=lambda pair: pair[0])
        texts = [self._display(line, column, issue.message) for (line, column), issue in placed]
        if self.total > MAX_ISSUES:
            texts.append(f"{self.total - MAX_ISSUES} more errors were truncated")
        return texts

    def _place(self, position: int) -> tuple[int, int]:
        if position < 0:
            return -1, -1
        line = bisect_right(self._starts, position)
        return line, position - self._starts[line - 1]

    def _display(self, line: int, column: int, message: str) -> str:
        text = f"ERROR: <input>:{line}:{column + 1}: {message}"
        if line < 1:
            return text
        start = self._starts[line - 1]
        end = self._starts[line] - 1 if line < len(self._starts) else len(self.source)
        snippet = self.source[start:end]
        if len(snippet.encode("utf-8", "surrogatepass")) > _MAX_SNIPPET:
            return text
        snippet = snippet.replace("\t", " ")
        dots = "".join("." if char < "\x80" else "．" for char in snippet[:column])
        pointer = "^" if column >= len(snippet) or snippet[column] < "\x80" else "＾"
        return f"{text}\n | {snippet}\n | {dots}{pointer}"
