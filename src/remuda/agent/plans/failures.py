"""The reason of a failed instruction: the lines of its output that explain the failure. Pure.

Installers write much that is no reason: progress, a shell's trace, and how to look for the reason. The last lines that are none
of that, and the journal of a unit that did not start, go to the server (docs/reference/agent.md#decision), so that a user need
not log in.
"""

from __future__ import annotations

import re

#: The first line, and all lines.
LONGEST_SENTENCE, LONGEST_REASON = 1000, 4000
#: Kept of an instruction whose output nothing asked for.
LONGEST_TAIL = 16 * 1024
_LINES = 12

#: Prefixes of journals' lines, of systemd's and of our hosts', and colours.
_PREFIX = re.compile(r"^(?:[A-Z][a-z]{2} +\d+ \d\d:\d\d:\d\d \S+ \S+?(?:\[\d+\])?: |\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ )")
_COLOUR = re.compile(r"\x1b\[[0-9;]*[A-Za-z]")
_NOISE = re.compile(
    r"""^\++\s|^\[?(?:INFO|DEBUG)\b|level=(?:info|debug)\b|^--\s|^(?:Hint:|See )["'a-z]*.*(?:systemctl|journalctl)"""
    r"""|Main process exited|Failed with result|Scheduled restart job|Start request repeated|Consumed .* CPU time"""
    r"""|^(?:Starting|Started|Stopping|Stopped|Finished|Deactivated)\b|^Created symlink|Unit process .* remains running"""
)
_TELLING = re.compile(
    r"\b(?:error|errors|fatal|fata|panic|failed|failure|denied|invalid|unknown|cannot|unable|missing|refused|not found)\b|can't"
    r"|^remuda: |no space|not (?:allowed|permitted|supported|provided|defined)|exceeded|\bmust\b",
    re.IGNORECASE,
)
#: Sentences that say only that something failed.
_SUMMARY = re.compile(r"^Job for \S+ failed|does not start$|^Failed to start\b")
_UNIT = re.compile(rb"^Job for ([A-Za-z0-9@._:-]+\.service) failed", re.MULTILINE)


def unit_that_failed(output: bytes) -> str:
    """The unit that systemctl could not start; its journal has the reason."""
    found = _UNIT.findall(output)
    return found[-1].decode() if found else ""


def meaningful(output: bytes) -> list[str]:
    """The lines of an output that may be a reason, without repetitions."""
    lines = (_COLOUR.sub("", line.decode(errors="replace")).strip() for line in output.splitlines())
    kept = (_PREFIX.sub("", line) for line in lines)
    # Of a repeated line the last one counts: a service that is started again and again ends with its reason.
    return list(dict.fromkeys(reversed([line for line in kept if line and not _NOISE.search(line)])))[::-1]


def reason(label: str, why: str, stdout: bytes, stderr: bytes) -> str:
    """A sentence with the lines that tell most, then the last meaningful lines. Programs write errors to stderr, as a rule."""
    lines = meaningful(stderr) or meaningful(stdout)
    said = [why, *telling(lines)]
    sentence = f"{label}: {': '.join(said)}"[:LONGEST_SENTENCE]
    return "\n".join([sentence, *lines[-_LINES:]])[:LONGEST_REASON] if len(lines) > 1 else sentence


def telling(lines: list[str]) -> list[str]:
    """The last line; the last that names a reason, too, where that one only sums up."""
    last = lines[-1:]
    if last and _SUMMARY.search(last[0]):
        others = [line for line in lines[:-1] if not _SUMMARY.search(line)]
        return [*last, *([line for line in others if _TELLING.search(line)] or others)[-1:]]
    if last and not _TELLING.search(last[0]):
        return [line for line in lines if _TELLING.search(line)][-1:] or last
    return last


def tail(stdout: bytes, stderr: bytes) -> bytes:
    """The end of both streams, cut at the beginning of a line."""
    half = LONGEST_TAIL // 2
    return b"".join(_last(stream, half) for stream in (stdout, stderr) if stream)


def _last(stream: bytes, most: int) -> bytes:
    cut = stream if len(stream) <= most else stream[-most:].partition(b"\n")[2]
    return cut if cut.endswith(b"\n") or not cut else cut + b"\n"
