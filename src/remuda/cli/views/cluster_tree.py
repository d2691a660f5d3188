"""A cluster as a tree of lines, and as facts of which one tells the changes. Pure, but for the screen that shows either.

A line is made of pieces, each with the colour it has where there are colours.
"""

from __future__ import annotations

import re
import shutil
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, TextIO

from remuda.gateway.explain import operations, states
from remuda.gateway.explain.states import ClusterView, StateText
from remuda.kube.duration import human_age
from remuda.kube.objects import dig, metadata, name_of, namespace_of

from .output import is_terminal, paint

Obj = dict[str, Any]

# The columns that each level of a tree takes, and what a deep one keeps on a narrow terminal.
_STEP, _NARROWEST = 3, 24
_WORD = re.compile(r"\S+\s*|\s+")


class Piece(NamedTuple):
    text: str
    colour: str = ""


Line = tuple[Piece, ...]


@dataclass(frozen=True, slots=True)
class Branch:
    """`more` are lines of the same thing, below it."""

    line: Line
    more: tuple[Line, ...] = ()
    below: tuple[Branch, ...] = ()


def drawn(branch: Branch, width: int = 0) -> list[Line]:
    """The lines of a tree, with the signs that show what belongs to what; wrapped at `width`, if that is not 0."""
    through = Piece("│  " if branch.below else "   ", "dim")
    inner = max(width - _STEP, _NARROWEST) if width else 0
    first, *rest = wrapped(branch.line, width, inner)
    more = [part for line in branch.more for part in wrapped(line, inner, inner)]
    return [first, *((through, *line) for line in (*rest, *more)), *_hung(branch.below, inner)]


def _hung(branches: Sequence[Branch], width: int) -> Iterable[Line]:
    for at, each in enumerate(branches):
        last = at == len(branches) - 1
        first, *rest = drawn(each, width)
        yield (Piece("└─ " if last else "├─ ", "dim"), *first)
        for line in rest:
            yield (Piece("   " if last else "│  ", "dim"), *line)


def wrapped(line: Line, width: int, later: int) -> list[Line]:
    """The line in parts, broken between words: the first no wider than `width`, the others no wider than `later`; 0: as it is."""
    if not width or len(plain(line)) <= width:
        return [line]
    parts: list[Line] = []
    current: list[Piece] = []
    for word in _words(line):
        if current and len(plain((*current, *word))) > (later if parts else width):
            parts.append(tuple(current))
            current = []
        current += word
    return [*parts, tuple(current)]


def _words(line: Line) -> Iterable[list[Piece]]:
    """Each with the space after it; one may be made of several pieces."""
    word: list[Piece] = []
    for piece in line:
        for text in _WORD.findall(piece.text):
            word.append(piece._replace(text=text))
            if text[-1].isspace():
                yield word
                word = []
    if word:
        yield word


def plain(line: Line) -> str:
    return "".join(piece.text for piece in line).rstrip()


# --- a cluster as a tree ------------------------------------------------------------------------------------------------------


def of_cluster(sight: ClusterView, now: float, *, metered: bool = False) -> Branch:
    """`metered` shows how far each machine has come, in the place of its node's name."""
    wanted = sight.wanted
    state = states.of_cluster(wanted, sight.managed, sight.plane)
    facts = [states.version_of(wanted, sight.managed), states.identifier_of(wanted), f"in {namespace_of(wanted)}"]
    line = (*_headed("cluster", name_of(wanted), state), *_dim([*facts, _age(wanted, now)]))
    below = [
        *_control_plane(sight),
        *_operations(sight, now),
        *([_machines(sight, now, metered)] if states.is_administrated(wanted) else []),
    ]
    # What its control plane says is told there.
    own = _said(state) if sight.plane is None or states.of_plane(sight.plane).message != state.message else ()
    return Branch(line, own, tuple(below))


def _control_plane(sight: ClusterView) -> Iterable[Branch]:
    if sight.plane is not None:
        state = states.of_plane(sight.plane)
        yield Branch(_headed("control plane", "", state), _said(state))


def _operations(sight: ClusterView, now: float) -> Iterable[Branch]:
    """Those that are not done: what runs, what is queued, and what has failed."""
    for each in operations.of_cluster(sight.wanted, sight.plane):
        if each.word != operations.DONE:
            ago = f"{human_age(each.since, now)} ago" if each.since else ""
            more = ((Piece(each.message),),) if each.message else ()
            yield Branch((*_headed(each.title, "", StateText(each.word)), *_dim([each.detail, ago])), more)


def _machines(sight: ClusterView, now: float, metered: bool) -> Branch:
    found = sorted(sight.machines, key=_order)
    line = (Piece("machines ", "bold"), Piece(states.count(sight.wanted, sight.managed, found)))
    rows = [_metered(each) if metered else _cells(each) for each in found]
    widths = [max((len(text) for text in column), default=0) for column in zip(*rows, strict=True)]
    return Branch(line, (), tuple(_machine(sight, each, row, widths, now) for each, row in zip(found, rows, strict=True)))


def _machine(sight: ClusterView, machine: Obj, row: Sequence[str], widths: Sequence[int], now: float) -> Branch:
    state = states.of_machine(machine)
    cells = [f"{text.ljust(width)}  " for text, width in zip(row, widths, strict=True) if width]
    colours = ("bold", state.colour, *("dim",) * len(cells))
    pieces = [*map(Piece, cells, colours), Piece(_age(machine, now), "dim")]
    more = list(_said(state))
    # A machine that is done has nothing to tell: its last word may be long past.
    said = sight.said.get(name_of(machine)) if state.word != states.READY else None
    if said is not None:
        more.append((Piece(f"{human_age(said.time, now)} ago: ", "dim"), Piece(said.text)))
    return Branch(tuple(pieces), tuple(more))


def _cells(machine: Obj) -> tuple[str, ...]:
    roles = ",".join(states.roles_of(machine)) or "no role"
    word = states.of_machine(machine).word
    return name_of(machine), word, roles, states.node_of(machine) or "no node", states.kubelet_of(machine)


def _metered(machine: Obj) -> tuple[str, ...]:
    steps, most = states.progress_of(machine)
    name, word, roles, _, version = _cells(machine)
    return name, f"{'▰' * steps}{'▱' * (most - steps)} {word}", roles, version


def _order(machine: Obj) -> tuple[Any, ...]:
    """Servers first, in the order in which they are configured."""
    roles = states.roles_of(machine)
    return "etcd" not in roles, "controlplane" not in roles, name_of(machine)


def _headed(kind: str, name: str, state: StateText) -> Line:
    named = (Piece(f"{kind} "), Piece(f"{name}  ", "bold")) if name else (Piece(f"{kind}  ", "bold"),)
    return (*named, Piece(f"{state.word}  ", state.colour))


def _said(state: StateText) -> tuple[Line, ...]:
    return ((Piece(state.message),),) if state.message else ()


def _dim(facts: Iterable[str]) -> Iterable[Piece]:
    for fact in facts:
        if fact.strip():
            yield Piece(f"{fact}  ", "dim")


def _age(obj: Obj, now: float) -> str:
    return human_age(metadata(obj).get("creationTimestamp"), now)


# --- what changes -------------------------------------------------------------------------------------------------------------


def facts(sight: ClusterView) -> dict[str, str]:
    """The reportable facts by subject, without ages, which always change."""
    wanted = sight.wanted
    about = f"cluster {name_of(wanted)}"
    state = states.of_cluster(wanted, sight.managed, sight.plane)
    told = {about: _sentence(state, states.version_of(wanted, sight.managed))}
    if sight.plane is not None:
        plane = states.of_plane(sight.plane)
        told["control plane"] = _sentence(plane)
        if plane.message == state.message:
            told[about] = _sentence(state._replace(message=""), states.version_of(wanted, sight.managed))
    for operation in operations.of_cluster(wanted, sight.plane):
        told[operation.title] = operation.sentence
    for machine in sorted(sight.machines, key=_order):
        name, node = name_of(machine), states.node_of(machine)
        known = (",".join(states.roles_of(machine)), f"node {node}" if node else "", states.kubelet_of(machine))
        told[f"machine {name}"] = _sentence(states.of_machine(machine), *known)
        if name in sight.said:
            told[f"host of {name}"] = sight.said[name].text
    return told


def _sentence(state: StateText, *known: str) -> str:
    about = f" ({', '.join(filter(None, known))})" if any(known) else ""
    return f"{state.word}{about}" + (f": {state.message}" if state.message else "")


def news(before: Mapping[str, str], after: Mapping[str, str]) -> list[str]:
    """A line for each fact that is new or another one, and for each that is no more."""
    changed = [f"{about}: {said}" for about, said in after.items() if before.get(about) != said]
    return changed + [f"{about}: gone" for about in before if about not in after and not about.startswith("host of ")]


# --- for programs -------------------------------------------------------------------------------------------------------------


def data(sight: ClusterView) -> Obj:
    machines = []
    for machine in sorted(sight.machines, key=_order):
        said = sight.said.get(name_of(machine))
        last = {"time": said.time, "text": said.text} if said is not None else None
        machines.append({**states.machine_data(machine), "lastLine": last})
    found = states.cluster_data(sight.wanted, sight.managed, sight.plane, sight.machines)
    plane = None
    if sight.plane is not None:
        state = states.of_plane(sight.plane)
        plane = {
            "name": name_of(sight.plane),
            "state": state.word,
            "message": state.message,
            "initialized": dig(sight.plane, "status", "initialization", "controlPlaneInitialized") is True,
        }
    requested = [each.data() for each in operations.of_cluster(sight.wanted, sight.plane)]
    return {**found, "controlPlane": plane, "operations": requested, "machines": machines}


# --- screen ---------------------------------------------------------------------------------------------------------------
#
# Showing something that changes: redrawn in place on a terminal, and as one line for each change everywhere else.


def painted(line: Line, stream: TextIO) -> str:
    text = "".join(paint(piece.text, piece.colour, stream) if piece.colour else piece.text for piece in line)
    return text if "\x1b" in text else text.rstrip()


def cut(line: Line, width: int) -> Line:
    """No wider than that: a line that wraps would be two."""
    kept: list[Piece] = []
    left = width
    if len(plain(line)) <= width:
        return line
    for piece in line:
        if len(piece.text) >= left:
            kept.append(piece._replace(text=f"{piece.text[: max(left - 1, 0)]}…"))
            break
        kept.append(piece)
        left -= len(piece.text)
    return tuple(kept)


def fitting(lines: Sequence[Line], width: int, height: int) -> list[Line]:
    """The lines that fit on a terminal, and the number of the others."""
    if len(lines) > height:
        lines = [*lines[: max(height - 1, 0)], (Piece(f"… and {len(lines) - height + 1} more lines", "dim"),)]
    return [cut(line, width) for line in lines]


class Screen:
    """A picture that takes the place of the one before it."""

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream
        self._drawn = 0
        self.live = is_terminal(stream)

    def show(self, lines: Sequence[Line]) -> None:
        """Show it in one write, without flicker."""
        size = shutil.get_terminal_size()
        # The last line of the terminal is the cursor's.
        shown = fitting(lines, size.columns, size.lines - 1)
        up = f"\x1b[{self._drawn}A" if self._drawn else ""
        self._stream.write(up + "".join(f"\r{painted(line, self._stream)}\x1b[K\n" for line in shown) + "\x1b[J")
        self._stream.flush()
        self._drawn = len(shown)
