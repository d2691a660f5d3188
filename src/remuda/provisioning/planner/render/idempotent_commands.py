"""Commands that must run only once for one value: a script on the host records the value of each run.

An agent may run a plan again (after a crash, or an older agent after every restart). So an operation's command is wrapped:
the script records the agent's attempt once the command has succeeded, and does nothing for the same command, value and
attempt again (docs/reference/node-plan.md#idempotent-commands). It records nothing before: a command that was killed half-way
must be repeated, and a failed plan is written anew with its attempts counted from one.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable

from ...plans.plan import File, Instruction
from ...releases.distributions import Directories, Runtime

_SCRIPT = """\
#!/bin/sh
# usage: idempotent.sh ID VALUE-HASH COMMAND-HASH COMMAND STATE-DIRECTORY [ARGUMENT...]
# Runs COMMAND unless it already went through in this attempt of the agent for the same value.
id="$1"
value="$2"
hash="$3"
command="$4"
directory="$5"
shift 5

noted="$directory/idempotence/$id/$hash/$value/last-attempt"
attempt="${CATTLE_AGENT_ATTEMPT_NUMBER:-}"

if [ -n "$attempt" ] && [ -f "$noted" ] && [ "$(cat "$noted")" = "$attempt" ]; then
    echo "$id has already run in attempt $attempt"
    exit 0
fi

"$command" "$@" || exit $?

mkdir -p "$(dirname "$noted")" || exit $?
printf '%s' "$attempt" > "$noted.new" && mv "$noted.new" "$noted"
"""


def script_path(directories: Directories) -> str:
    return f"{directories.provisioning}/idempotence/idempotent.sh"


def file(directories: Directories) -> File:
    return File.of(script_path(directories), _SCRIPT, dynamic=True, minor=True)


def instruction(
    directories: Directories, identifier: str, value: str, command: str, args: Iterable[str] = (), env: Iterable[str] = ()
) -> Instruction:
    """Run a command once for a value, such as an operation's generation."""
    words = tuple(args)
    value_hash, command_hash = _hash(value), _hash(command)
    state = (identifier.lower(), value_hash, command_hash, command, directories.provisioning)
    return Instruction(
        name=f"idempotent-{identifier}-{value_hash}-{command_hash}",
        env=tuple(env),
        args=("-x", script_path(directories), *state, *words),
        command="/bin/sh",
    )


def stop(directories: Directories, identifier: str, value: str, unit: str) -> Instruction:
    """Stop a unit once for a value."""
    return instruction(directories, f"{identifier}-stop", value, "systemctl", ("stop", unit))


def restart(directories: Directories, identifier: str, value: str, unit: str) -> tuple[Instruction, Instruction]:
    """Restart a unit once for a value, also if systemd has given it up."""
    reset = f"if [ $(systemctl is-failed {unit}) = failed ]; then systemctl reset-failed {unit}; fi"
    return (
        instruction(directories, f"{identifier}-reset-failed", value, "/bin/sh", ("-c", reset)),
        instruction(directories, f"{identifier}-restart", value, "systemctl", ("restart", unit)),
    )


def remove_manifests(directories: Directories, identifier: str, value: str, runtime: Runtime) -> Instruction:
    """Remove the distribution's own manifests once for a value: its next start writes those of its version."""
    words = ("-c", f"rm -rf {directories.distro}/server/manifests/{runtime.name}-*.yaml")
    return instruction(directories, identifier, value, "/bin/sh", words)


def _hash(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()
