"""Instructions on a simulated host: services that stop and start, certificates and keys that are rotated; the values that an
instruction carries (version, settings), and the result of a failed one.

Commands have the effect that they have on a host, once for their value, as the real script keeps it. What must never happen is
recorded as a violation: certificates that are replaced beneath a running server, a step of a rotation that other servers are not
ready for.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from remuda.agent.plans.apply import Result
from remuda.provisioning.plans.machine_plan_secret import packed
from remuda.provisioning.plans.plan import Instruction, Plan

from .distribution import CannotStart, Distribution
from .members import SimulatedMember

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

Obj = dict[str, Any]

_IDEMPOTENT, _PREFIX = "idempotent-", 7
_CONFIG = "/config.yaml.d/50-rancher.yaml"


class CommandFailed(Exception):
    """A command's exit code was not zero; the text is its last line."""


@dataclass(slots=True)
class HostCommands:
    """The commands of one host. `boots` waits as long as its services take to start."""

    member: SimulatedMember
    boots: Callable[[], Awaitable[None]]
    _done: set[str] = field(default_factory=set)

    async def run(self, distribution: Distribution, instructions: Sequence[Instruction]) -> dict[str, str]:
        """The outputs to keep, by instruction. Raises CommandFailed."""
        outputs = {}
        for each in instructions:
            if each.name in self._done:
                continue
            printed = await self._one(distribution, words(each))
            if each.saveOutput:
                outputs[each.name] = printed
            if each.name.startswith(_IDEMPOTENT):
                self._done.add(each.name)
        return outputs

    async def _one(self, distribution: Distribution, command: list[str]) -> str:
        member = self.member
        match command:
            case ["systemctl", "stop", _]:
                distribution.booted.discard(member.name)
                distribution.stop(member.name)
            case ["systemctl", "restart", _]:
                distribution.stop(member.name)
                await self.boots()
                try:
                    distribution.start(member)
                except CannotStart as error:
                    raise CommandFailed(str(error)) from None
            case [_, "certificate", "rotate", *_]:
                # A host that has booted in between has started it again: that is what the restart at the end is for.
                if member.up and member.name not in distribution.booted:
                    distribution.violations.append(f"certificates of {member.name} were replaced while it was running")
                distribution.rotated.append(member.name)
                distribution.expired.discard(member.name)
            case [_, "secrets-encrypt", "status", *_]:
                return distribution.keys.status(distribution.servers())
            case [_, "secrets-encrypt", step, *_]:
                self._keys(distribution, step)
            case ["/bin/sh", script, *_] if script.endswith("/rotate_keys.sh"):
                self._keys(distribution, "rotate-keys")
        return ""

    def _keys(self, distribution: Distribution, step: str) -> None:
        if not distribution.answers:
            raise CommandFailed("the API does not answer")
        if not distribution.keys.agree(distribution.servers()):
            raise CommandFailed(f"{step}: hash does not match between servers")
        distribution.keys.step(step, self.member.name)
        if distribution.adopts_keys:
            for server in distribution.servers():
                distribution.keys.adopt(server)


def words(instruction: Instruction) -> list[str]:
    """The command itself, without the script that makes it idempotent."""
    if not instruction.name.startswith(_IDEMPOTENT):
        return [instruction.command, *instruction.args]
    return [instruction.args[_PREFIX - 2], *instruction.args[_PREFIX:]]


def restart_stamp(install: Instruction) -> str:
    return next((each for each in install.env if each.startswith("RESTART_STAMP=")), "")


def config_of(plan: Plan) -> Obj:
    found: Obj = next((json.loads(file.data) for file in plan.files if file.path.endswith(_CONFIG)), {})
    return found


def version_of(image: str) -> str:
    """The version in the tag of an installer's image."""
    return image.rpartition(":")[2].replace("-", "+")


def settings_of(words: Iterable[str]) -> Iterator[tuple[str, str]]:
    """The arguments of a command as the settings that they stand for."""
    for word in words:
        name, equals, value = word.removeprefix("--").partition("=")
        if equals:
            yield name, value


def base64_text(text: str) -> str:
    return base64.b64encode(text.encode()).decode()


def failed(name: str, why: str, before: Result) -> Result:
    return Result(True, False, packed({name: base64_text(why)}), before.periodic, why)
