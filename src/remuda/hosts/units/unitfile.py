"""Unit files: the texts of a file and its drop-ins become one :class:`Unit`. Pure.

Only services; unknown directives are ignored, as in systemd, unless they would change the meaning of a start.
"""

from __future__ import annotations

import re
import signal
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Final

NEVER: Final = float("inf")
TYPES = ("simple", "exec", "notify", "oneshot")
# Types that differ in nothing that matters here.
_SAME_TYPE = {"idle": "simple", "notify-reload": "notify"}
RESTARTS = ("no", "always", "on-success", "on-failure", "on-abnormal", "on-abort", "on-watchdog")
KILL_MODES = ("control-group", "mixed", "process", "none")

_SPAN = re.compile(r"(\d+(?:\.\d+)?)\s*([a-zA-Z]*)\s*")
_SPANS = {
    **dict.fromkeys(("", "s", "sec", "second", "seconds"), 1.0),
    **dict.fromkeys(("ms", "msec"), 0.001),
    **dict.fromkeys(("us", "usec"), 0.000001),
    **dict.fromkeys(("m", "min", "minute", "minutes"), 60.0),
    **dict.fromkeys(("h", "hr", "hour", "hours"), 3600.0),
    **dict.fromkeys(("d", "day", "days"), 86400.0),
}
_LIMITS = ("NOFILE", "NPROC", "CORE", "STACK", "MEMLOCK", "AS", "FSIZE", "DATA")
_PREFIXES = "-@:+!"


class UnitError(ValueError):
    """A unit that can't be used."""


@dataclass(frozen=True, slots=True)
class Command:
    """One command line, not yet expanded. `may_fail` is its leading `-`."""

    text: str
    may_fail: bool = False
    renamed: bool = False
    literal: bool = False


@dataclass(frozen=True, slots=True)
class Unit:
    """A service. Times are seconds."""

    name: str
    description: str = ""
    after: tuple[str, ...] = ()
    before: tuple[str, ...] = ()
    wants: tuple[str, ...] = ()
    requires: tuple[str, ...] = ()
    conflicts: tuple[str, ...] = ()
    start_limit_interval: float = 10.0
    start_limit_burst: int = 5
    type: str = "simple"
    start_pre: tuple[Command, ...] = ()
    start: tuple[Command, ...] = ()
    start_post: tuple[Command, ...] = ()
    reload: tuple[Command, ...] = ()
    stop: tuple[Command, ...] = ()
    stop_post: tuple[Command, ...] = ()
    environment: tuple[str, ...] = ()
    environment_files: tuple[str, ...] = ()
    unset: tuple[str, ...] = ()
    directory: str = ""
    umask: int | None = None
    limits: tuple[tuple[str, str], ...] = ()
    restart: str = "no"
    restart_after: float = 0.1
    start_timeout: float = 90.0
    stop_timeout: float = 90.0
    kill_mode: str = "control-group"
    kill_signal: signal.Signals = signal.SIGTERM
    remains: bool = False
    good_exits: frozenset[int] = frozenset({0})
    # After one of these exit statuses it is not started again, whatever `Restart=` says.
    final_exits: frozenset[int] = frozenset()
    good_signals: frozenset[int] = frozenset({signal.SIGHUP, signal.SIGINT, signal.SIGTERM, signal.SIGPIPE})
    wanted_by: tuple[str, ...] = ()
    required_by: tuple[str, ...] = ()
    alias: tuple[str, ...] = ()

    @property
    def stem(self) -> str:
        return self.name.removesuffix(".service")

    def ended_well(self, code: int) -> bool:
        """True if an exit status (negative for a signal) is a success."""
        return code in self.good_exits if code >= 0 else -code in self.good_signals

    def wants_restart(self, code: int, timed_out: bool = False) -> bool:
        """True if `Restart=` asks for another start after this end."""
        if code in self.final_exits:
            return False
        if self.restart in ("no", "always"):
            return self.restart == "always"
        well = self.ended_well(code) and not timed_out
        if self.restart == "on-success":
            return well
        if self.restart == "on-failure":
            return not well
        is_signal = code < 0 and not well
        return timed_out or is_signal if self.restart == "on-abnormal" else is_signal and self.restart == "on-abort"


Sections = Mapping[str, Mapping[str, list[str]]]


def read(texts: Iterable[str]) -> Sections:
    """The assignments by section and key, drop-ins after the file; an empty assignment clears earlier ones."""
    sections: dict[str, dict[str, list[str]]] = {}
    for text in texts:
        section = ""
        for line in _lines(text):
            if line.startswith("[") and line.endswith("]"):
                section = line[1:-1]
                continue
            key, equals, value = line.partition("=")
            if not equals:
                continue
            found = sections.setdefault(section, {}).setdefault(key.strip(), [])
            if value.strip():
                found.append(value.strip())
            else:
                found.clear()
    return sections


def _lines(text: str) -> Iterable[str]:
    """The lines without comments; a line that ends with a backslash continues on the next one, skipping comments."""
    waiting = ""
    for raw in text.splitlines():
        line = raw.strip()
        if line[:1] in ("#", ";") or (not line and not waiting):
            continue
        if line.endswith("\\"):
            waiting += line[:-1] + " "
            continue
        yield (waiting + line).strip()
        waiting = ""
    if waiting:
        yield waiting.strip()


def parse(name: str, texts: Iterable[str], specifiers: Mapping[str, str] | None = None) -> Unit:
    """The unit of these texts; raises UnitError."""
    sections = read(texts)
    known = {**_specifiers(name), **(specifiers or {})}
    try:
        return _unit(name, _Values(sections.get("Unit", {}), known), _Values(sections.get("Service", {}), known), sections)
    except WordError as error:
        raise UnitError(f"{name}: {error}") from None


def _specifiers(name: str) -> dict[str, str]:
    stem = name.rpartition(".")[0] or name
    prefix, _, instance = stem.partition("@")
    return {"n": name, "N": stem, "p": prefix, "i": instance, "I": instance}


class _Values:
    """The assignments of one section, read by type."""

    def __init__(self, found: Mapping[str, list[str]], specifiers: Mapping[str, str]) -> None:
        self._found = found
        self._specifiers = specifiers

    def all(self, key: str) -> list[str]:
        return [specified(value, self._specifiers) for value in self._found.get(key, ())]

    def last(self, key: str, default: str = "") -> str:
        return (self.all(key) or [default])[-1]

    def words(self, key: str) -> tuple[str, ...]:
        return tuple(word for value in self.all(key) for word in split(value))

    def one_of(self, key: str, allowed: tuple[str, ...], default: str, name: str) -> str:
        value = self.last(key, default)
        if value not in allowed:
            raise UnitError(f"{name}: {key}={value} is not offered here, only {', '.join(allowed)}")
        return value

    def seconds(self, key: str, default: float) -> float:
        value = self.last(key)
        return seconds(value) if value else default

    def truth(self, key: str) -> bool:
        return self.last(key).lower() in ("1", "yes", "true", "on", "y", "t")

    def commands(self, key: str) -> tuple[Command, ...]:
        # Specifiers are expanded after splitting into words, variables when it runs.
        return tuple(_command(value) for value in self.all(key))


def _command(text: str) -> Command:
    prefix = text[: len(text) - len(text.lstrip(_PREFIXES))]
    return Command(text[len(prefix) :].strip(), "-" in prefix, "@" in prefix, ":" in prefix)


def _unit(name: str, unit: _Values, service: _Values, sections: Sections) -> Unit:
    install = _Values(sections.get("Install", {}), _specifiers(name))
    said = service.one_of("Type", (*TYPES, *_SAME_TYPE), "simple" if service.all("ExecStart") else "oneshot", name)
    type_ = _SAME_TYPE.get(said, said)
    start = service.commands("ExecStart")
    if type_ != "oneshot" and len(start) != 1:
        raise UnitError(f"{name}: a service of type {type_} has one ExecStart=, this one has {len(start)}")
    both = service.seconds("TimeoutSec", 90.0)
    burst = unit.last("StartLimitBurst") or service.last("StartLimitBurst")
    return Unit(
        name=name,
        description=unit.last("Description", name),
        after=unit.words("After"),
        before=unit.words("Before"),
        wants=unit.words("Wants"),
        requires=unit.words("Requires") + unit.words("BindsTo"),
        conflicts=unit.words("Conflicts"),
        start_limit_interval=unit.seconds("StartLimitIntervalSec", service.seconds("StartLimitInterval", 10.0)),
        start_limit_burst=int(burst) if burst.isdigit() else 5,
        type=type_,
        start_pre=service.commands("ExecStartPre"),
        start=start,
        start_post=service.commands("ExecStartPost"),
        reload=service.commands("ExecReload"),
        stop=service.commands("ExecStop"),
        stop_post=service.commands("ExecStopPost"),
        environment=service.words("Environment"),
        environment_files=tuple(service.all("EnvironmentFile")),
        unset=service.words("UnsetEnvironment"),
        directory=service.last("WorkingDirectory"),
        umask=_octal(service.last("UMask")),
        limits=tuple((limit, service.last(f"Limit{limit}")) for limit in _LIMITS if service.all(f"Limit{limit}")),
        restart=service.one_of("Restart", RESTARTS, "no", name),
        restart_after=service.seconds("RestartSec", 0.1),
        start_timeout=service.seconds("TimeoutStartSec", both if type_ != "oneshot" else NEVER) or NEVER,
        stop_timeout=service.seconds("TimeoutStopSec", both) or NEVER,
        kill_mode=service.one_of("KillMode", KILL_MODES, "control-group", name),
        kill_signal=_signal(service.last("KillSignal", "SIGTERM"), name),
        remains=service.truth("RemainAfterExit"),
        good_exits=frozenset({0, *(int(word) for word in service.words("SuccessExitStatus") if word.isdigit())}),
        final_exits=frozenset(int(word) for word in service.words("RestartPreventExitStatus") if word.isdigit()),
        wanted_by=install.words("WantedBy"),
        required_by=install.words("RequiredBy"),
        alias=install.words("Alias"),
    )


def seconds(text: str) -> float:
    """A time span such as `5s`, `1min 30s` or `infinity`."""
    if text.lower() == "infinity":
        return NEVER
    parts = _SPAN.findall(text)
    if not parts or _SPAN.sub("", text).strip() or any(unit.lower() not in _SPANS for _, unit in parts):
        raise UnitError(f"{text!r} is no time span")
    return sum(float(number) * _SPANS[unit.lower()] for number, unit in parts)


def _octal(text: str) -> int | None:
    return int(text, 8) if re.fullmatch("[0-7]{1,4}", text) else None


def _signal(text: str, name: str) -> signal.Signals:
    wanted = text if text.startswith("SIG") else f"SIG{text}"
    try:
        return signal.Signals(int(text)) if text.isdigit() else signal.Signals[wanted]
    except (KeyError, ValueError):
        raise UnitError(f"{name}: there is no signal {text}") from None


def environment_of(text: str) -> dict[str, str]:
    """The variables of an EnvironmentFile: a line each, without comments, values optionally quoted."""
    found: dict[str, str] = {}
    for line in _lines(text):
        key, equals, value = line.partition("=")
        if not equals or not re.fullmatch("[A-Za-z_][A-Za-z0-9_]*", key.strip()):
            continue
        found[key.strip()] = _unquoted(value.strip())
    return found


def _unquoted(value: str) -> str:
    if len(value) < 2 or value[0] != value[-1] or value[0] not in "\"'":
        return value
    # Between double quotes a backslash escapes the next character.
    return re.sub(r"\\(.)", r"\1", value[1:-1]) if value[0] == '"' else value[1:-1]


# --- command line ---------------------------------------------------------------------------------------------------------
#
# Command lines and lists in unit files: quotes, escapes, specifiers and variables (systemd.syntax(7)). Pure.

_ESCAPES = {"a": "\a", "b": "\b", "f": "\f", "n": "\n", "r": "\r", "t": "\t", "v": "\v", "s": " ", "\\": "\\", '"': '"', "'": "'"}
_BRACED = re.compile(r"\$\$|\$\{([A-Za-z_][A-Za-z0-9_]*)\}")
_WHOLE = re.compile(r"\$([A-Za-z_][A-Za-z0-9_]*)")
_SPECIFIER = re.compile(r"%(.)", re.DOTALL)


class WordError(ValueError):
    """A text with an unclosed quote."""


def split(text: str) -> list[str]:
    """The words of a text; a word may be quoted, as a whole or in part."""
    found: list[str] = []
    word: list[str] | None = None
    quote = ""
    position = 0
    while position < len(text):
        letter = text[position]
        position += 1
        if letter == "\\" and position < len(text):
            word = word or []
            escaped, position = _escaped(text, position)
            word.append(escaped)
        elif quote:
            if letter == quote:
                quote = ""
            else:
                word = word or []
                word.append(letter)
        elif letter in "\"'":
            quote, word = letter, word if word is not None else []
        elif letter.isspace():
            if word is not None:
                found.append("".join(word))
            word = None
        else:
            word = word or []
            word.append(letter)
    if quote:
        raise WordError(f"a quotation mark is never closed: {text}")
    return found if word is None else [*found, "".join(word)]


def _escaped(text: str, position: int) -> tuple[str, int]:
    letter = text[position]
    if letter == "x" and re.fullmatch("[0-9a-fA-F]{2}", text[position + 1 : position + 3]):
        return chr(int(text[position + 1 : position + 3], 16)), position + 3
    # An unknown escape stays as it is written, for the sake of regular expressions.
    return _ESCAPES.get(letter, "\\" + letter), position + 1


def specified(text: str, specifiers: Mapping[str, str]) -> str:
    """The text with its specifiers (`%n`) expanded; unknown ones stay."""
    return _SPECIFIER.sub(lambda found: "%" if found[1] == "%" else specifiers.get(found[1], found[0]), text)


def expanded(words: list[str], variables: Mapping[str, str]) -> list[str]:
    """The words with their variables: `${A}` anywhere is one word, a word `$A` becomes as many as its value has."""
    found: list[str] = []
    for word in words:
        whole = _WHOLE.fullmatch(word)
        if whole is not None:
            found.extend(split(variables.get(whole[1], "")))
        else:
            found.append(_BRACED.sub(lambda match: variables.get(match[1], "") if match[1] else "$", word))
    return found
