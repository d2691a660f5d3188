"""The bootstrap script over SSH, for machines that take no user data (protocols.md §5.2): the host's name first, then it."""

from __future__ import annotations

import shlex
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

from .. import ssh
from ..driver import Keep, Machine, Surroundings
from ..errors import DriverError, Reason

_TRIES, _PAUSE = 60, 3.0
# What the script itself calls and a bare system may lack.
_CURL = (
    "command -v curl >/dev/null 2>&1 || { "
    "if command -v apt-get >/dev/null; then apt-get update -q && "
    "DEBIAN_FRONTEND=noninteractive apt-get install -yq curl ca-certificates; "
    "elif command -v zypper >/dev/null; then zypper -n install curl; "
    "elif command -v dnf >/dev/null; then dnf install -yq curl; "
    "elif command -v yum >/dev/null; then yum install -yq curl; "
    "fi; }"
)
_NAME = (
    '[ "$(hostname)" = {name} ] || {{ hostnamectl set-hostname {name} 2>/dev/null || '
    "{{ echo {name} >/etc/hostname && hostname {name}; }}; "
    "grep -q {name} /etc/hosts || echo 127.0.1.1 {name} >>/etc/hosts; }}"
)


def login_of(machine: Machine) -> ssh.Login:
    """How a machine is reached, by what its driver has kept."""
    key = str(machine.state.get("SSHKeyPath") or "") or str(machine.directory / "id_rsa")
    return ssh.Login(
        machine.address,
        str(machine.state.get("SSHUser") or "root"),
        machine.directory / ssh.KNOWN_HOSTS,
        int(machine.state.get("SSHPort") or 22),
        Path(key) if Path(key).exists() else None,
    )


@asynccontextmanager
async def reached(machine: Machine, keep: Keep, around: Surroundings, tries: int = _TRIES) -> AsyncIterator[ssh.Shell]:
    """A shell on a machine that may still be coming up. Raises DriverError."""
    login = login_of(machine)
    for attempt in range(1, tries + 1):
        opened = ssh.connect(login, around.clock, around.outbound, lambda: keep({}))
        try:
            shell = await opened.__aenter__()
        except DriverError as error:
            # A user's key may come to a new machine later than its SSH server does.
            waits = error.retryable or error.reason is Reason.AUTH_FAILED
            if not waits or attempt == tries:
                raise
            if attempt == 1:
                around.say(f"waiting for SSH: {error.message}")
            await around.clock.sleep(_PAUSE)
            continue
        try:
            yield shell
        finally:
            await opened.__aexit__(None, None, None)
        return


async def over_ssh(machine: Machine, script: str, keep: Keep, around: Surroundings) -> None:
    """Run the script; again from the start when the connection breaks. Raises DriverError."""
    for attempt in (1, 2, 3):
        try:
            async with reached(machine, keep, around) as shell:
                await run_script(shell, script, machine.hostname, around)
                return
        except DriverError as error:
            if not error.retryable or attempt == 3:
                raise
            around.say(f"once more: {error.message}")


async def run_script(shell: ssh.Shell, script: str, hostname: str, around: Surroundings) -> None:
    root = await as_root(shell)
    name = shlex.quote(hostname)
    for command, what in ((_NAME.format(name=name), "the host's name can't be set"), (_CURL, "curl can't be installed")):
        code, said = await shell.run(f"{root} {shlex.quote(command)}")
        if code != 0:
            raise DriverError(Reason.BOOTSTRAP_FAILED, f"{what}: {last_line(said)}")
    # Through the standard input, since it has a token in it.
    place = 'f=$(mktemp /tmp/install_script.XXXXXX) && chmod 600 "$f" && cat >"$f" && { sh "$f"; c=$?; rm -f "$f"; exit $c; }'
    code, said = await shell.run(f"{root} {shlex.quote(place)}", stdin=script, on_line=around.say)
    if code != 0:
        raise DriverError(Reason.BOOTSTRAP_FAILED, f"the bootstrap script failed ({code}): {last_line(said)}")


async def as_root(shell: ssh.Shell) -> str:
    """What makes a shell's words root's: nothing special if we are root, else sudo, which must not ask."""
    code, said = await shell.run('[ "$(id -u)" = 0 ] && echo root || sudo -n true')
    if code != 0:
        raise DriverError(
            Reason.PERMISSION_DENIED, f"the SSH user is not root and may not become it: {last_line(said)}", field="sshUser"
        )
    return "sh -c" if said.strip().endswith("root") else "sudo -n sh -c"


def last_line(said: str) -> str:
    lines = [line.strip() for line in said.splitlines() if line.strip()]
    return lines[-1] if lines else "it said nothing"
