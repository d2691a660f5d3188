"""A plan: the files, commands and probes of one machine's system agent (docs/reference/node-plan.md,
docs/reference/agent.md#plan).

The bytes matter: the agent names a plan by the hash of its bytes, and a plan that differs restarts a node. So `encode`
gives the same bytes for the same plan, with the members in the original's order and without empty ones, and `decode`
accepts any writer's output: unknown members are ignored, null is empty. :mod:`..planner.render` makes plans,
:mod:`.machine_plan_secret` stores them.
"""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Iterable, Mapping
from typing import Any

import msgspec

from remuda.kube.encoding import gojson


class PlanError(ValueError):
    """Bytes that are no plan."""


class File(msgspec.Struct, frozen=True, omit_defaults=True):
    """A file on the host. `content` is base64.

    A `dynamic` file is left out of the stamps, so that its change restarts nothing; a `minor` one may change without a drain
    and without waiting for a turn.
    """

    content: str = ""
    path: str = ""
    permissions: str = ""
    uid: int = 0
    gid: int = 0
    directory: bool = False
    action: str = ""
    dynamic: bool = False
    minor: bool = False

    @classmethod
    def of(cls, path: str, content: bytes | str, *, permissions: str = "", dynamic: bool = False, minor: bool = False) -> File:
        raw = content.encode() if isinstance(content, str) else content
        return cls(base64.b64encode(raw).decode(), path, permissions, dynamic=dynamic, minor=minor)

    @property
    def data(self) -> bytes:
        """The decoded content; raises PlanError if `content` is no base64."""
        try:
            return base64.b64decode(self.content, validate=True)
        except ValueError:
            raise PlanError(f"the content of {self.path} is no base64") from None


class Instruction(msgspec.Struct, frozen=True, omit_defaults=True):
    """A command that runs once per plan, in the order of the plan, from the files of `image`."""

    name: str = ""
    image: str = ""
    env: tuple[str, ...] = ()
    args: tuple[str, ...] = ()
    command: str = ""
    script: str = ""
    saveOutput: bool = False


class PeriodicInstruction(msgspec.Struct, frozen=True, omit_defaults=True):
    """A command that runs periodically; its output is always kept."""

    name: str = ""
    image: str = ""
    env: tuple[str, ...] = ()
    args: tuple[str, ...] = ()
    command: str = ""
    script: str = ""
    periodSeconds: int = 0
    saveStderrOutput: bool = False


class HttpGet(msgspec.Struct, frozen=True, omit_defaults=True):
    """The request of a probe; the last three are paths on the host."""

    url: str = ""
    insecure: bool = False
    clientCert: str = ""
    clientKey: str = ""
    caCert: str = ""


class Probe(msgspec.Struct, frozen=True, omit_defaults=True):
    """A check that the agent makes on its host every few seconds."""

    name: str = ""
    initialDelaySeconds: int = 0
    timeoutSeconds: int = 0
    successThreshold: int = 0
    failureThreshold: int = 0
    httpGet: HttpGet = HttpGet()


class Plan(msgspec.Struct, frozen=True, omit_defaults=True):
    """All tasks of one host. `error` is set for plans that must not be applied, and says why."""

    files: tuple[File, ...] = ()
    instructions: tuple[Instruction, ...] = ()
    periodicInstructions: tuple[PeriodicInstruction, ...] = ()
    probes: dict[str, Probe] = {}
    error: str = ""


# Names of instructions: what installs and starts the distribution, and what stops it before a restore.
INSTALL = "install"
SHUTDOWN = "shutdown"
# The periodic instruction that works on files of snapshots, and the directory of its programs: they come and go at any time.
SNAPSHOT_FILES = "snapshot-files"
SNAPSHOT_PROGRAMS = "/capr/snapshots/bin/"

_decoder = msgspec.json.Decoder(Plan)


def encode(plan: Plan) -> bytes:
    """The plan as it is stored."""
    return gojson.dumps(plan)


def decode(data: bytes) -> Plan:
    """The plan in these bytes; raises PlanError."""
    try:
        return _decoder.decode(data)
    except msgspec.ValidationError:
        # Go writes a nil list as null: rare, so only handled when the fast path fails.
        return _decoded_without_nulls(data)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise PlanError(f"the plan is no JSON: {error}") from None


def _decoded_without_nulls(data: bytes) -> Plan:
    try:
        return msgspec.convert(_without_nulls(msgspec.json.decode(data)), Plan)
    except (msgspec.ValidationError, RecursionError) as error:
        raise PlanError(f"the plan can not be read: {error}") from None


def _without_nulls(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _without_nulls(member) for key, member in value.items() if member is not None}
    if isinstance(value, list):
        return [_without_nulls(member) for member in value if member is not None]
    return value


def checksum(data: bytes) -> str:
    """The name that the agent gives to the bytes of a plan."""
    return hashlib.sha256(data).hexdigest()


def same(one: Plan, other: Plan) -> bool:
    """True if both have the same effect on a host.

    Of a file only the fields that the original compares count, so that its plans are not rewritten for an owner or an action.
    """
    return _besides_files(one) == _besides_files(other) and _compared(one.files) == _compared(other.files)


def only_minor(old: Plan, new: Plan) -> bool:
    """True if only files differ that may change at any time; false if nothing differs."""
    if _besides_files(old) != _besides_files(new):
        return False
    before, after = _by_path(old.files), _by_path(new.files)
    differing = [path for path in before.keys() | after.keys() if _of_path(before, path) != _of_path(after, path)]
    return bool(differing) and all(file.minor for path in differing for file in (*before.get(path, ()), *after.get(path, ())))


def without_file_work(plan: Plan) -> Plan:
    """The plan without the work on files of snapshots."""
    if all(each.name != SNAPSHOT_FILES for each in plan.periodicInstructions):
        return plan
    return msgspec.structs.replace(
        plan,
        files=tuple(file for file in plan.files if not (file.minor and SNAPSHOT_PROGRAMS in file.path)),
        periodicInstructions=tuple(each for each in plan.periodicInstructions if each.name != SNAPSHOT_FILES),
    )


def restarts_nothing(old: Plan, new: Plan) -> bool:
    """True if only minor files and the work on files of snapshots differ, besides instructions that an operation had added to the
    same plan."""
    old, new = without_file_work(old), without_file_work(new)
    kept = tuple(instruction for instruction in old.instructions if instruction.name == INSTALL)
    bare = msgspec.structs.replace(old, instructions=kept)
    return only_minor(old, new) or same(bare, new) or only_minor(bare, new)


def stops(plan: Plan) -> bool:
    """True if the plan leaves the distribution stopped, for a restore."""
    return any(SHUTDOWN in instruction.name for instruction in plan.instructions)


def instruction(plan: Plan, name: str) -> Instruction | None:
    """The plan's instruction of that name."""
    return next((found for found in plan.instructions if found.name == name), None)


def variable(found: Instruction | None, name: str) -> str:
    """The value of a variable in an instruction's environment, the last one winning; "" if it is not set."""
    prefix = f"{name}="
    return next((entry.removeprefix(prefix) for entry in reversed(found.env if found else ()) if entry.startswith(prefix)), "")


Compared = tuple[str, str, str, bool, bool]


def _compared(files: Iterable[File]) -> list[Compared]:
    return [(file.content, file.path, file.permissions, file.dynamic, file.minor) for file in files]


def _of_path(files: Mapping[str, list[File]], path: str) -> list[Compared]:
    return _compared(files.get(path, ()))


def _by_path(files: Iterable[File]) -> dict[str, list[File]]:
    found: dict[str, list[File]] = {}
    for file in files:
        found.setdefault(file.path, []).append(file)
    return found


def _besides_files(plan: Plan) -> tuple[object, ...]:
    return plan.instructions, plan.periodicInstructions, plan.probes, plan.error
