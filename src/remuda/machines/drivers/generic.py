"""`generic`: an existing host, reached over SSH. The host is neither created nor deleted, only our software on it.

A file on the host says which machine it is, so that two machines never share one; the second machine fails with a message.
Removing runs the uninstallers that are on the host, so that it can be used again; a host that does not answer any more is
released as it is.
"""

from __future__ import annotations

import asyncio
import contextlib
import ipaddress
import shlex
import shutil
from pathlib import Path
from typing import ClassVar

from remuda.kube.clock import deadline
from remuda.kube.network import outbound

from ..bootstrap_script import as_root, last_line, login_of, reached
from ..driver import Bootstrapping, Driver, DriverError, Flag, FlagKind, Keep, Machine, Reason, State
from ..ssh import HostKeyChanged, SshLogin, SshShell, connect

_KEY = "id_rsa"
_OTHER = 75
# Claim the host if it is free or already claimed for this machine.
_TAKE = """
if ! (set -C; echo {text} >{claim}) 2>/dev/null; then
    grep -q "^{token} " {claim} || {{ cut -d " " -f 2 {claim}; exit 75; }}
fi
"""
_LET_GO = """
[ -e {claim} ] || exit 0
grep -q "^{token} " {claim} || exit 75
for name in rancher-system-agent remuda rke2 k3s k3s-agent; do
    for place in /usr/local/bin /opt/rancher-system-agent/bin /opt/rke2/bin /opt/bin /usr/bin; do
        if [ -x "$place/$name-uninstall.sh" ]; then "$place/$name-uninstall.sh"; fi
    done
done
rm -f {claim}
"""
_DIAL_SECONDS = 15.0
_UNINSTALL_SECONDS = 600.0


class Generic(Driver):
    name = "generic"
    title = "A host that exists, over SSH"
    flags = (
        Flag("generic-engine-port", FlagKind.INT, 2376, "Docker engine port", "GENERIC_ENGINE_PORT"),
        Flag("generic-ip-address", FlagKind.STRING, None, "IP Address of machine", "GENERIC_IP_ADDRESS"),
        Flag("generic-ssh-user", FlagKind.STRING, "root", "SSH user", "GENERIC_SSH_USER"),
        Flag(
            "generic-ssh-key",
            FlagKind.STRING,
            None,
            "SSH private key path (if not provided, default SSH key will be used)",
            "GENERIC_SSH_KEY",
        ),
        Flag("generic-ssh-port", FlagKind.INT, 22, "SSH port", "GENERIC_SSH_PORT"),
    )
    bootstrapping = Bootstrapping.SSH
    userdata = ""
    extra = "ssh"
    file_fields = {"sshKey": "sshKey"}
    # The file on the host that names its machine.
    claim: ClassVar[str] = "/var/lib/remuda-machine"

    async def precreate(self, machine: Machine) -> None:
        """Check that the host exists and accepts the login, before anything is begun."""
        options = machine.options
        address = options.text("ip-address")
        if not address:
            raise DriverError(Reason.INVALID, "generic driver requires the --generic-ip-address option", field="ipAddress")
        key = options.text("ssh-key")
        if key and not await asyncio.to_thread(Path(key).exists):
            raise DriverError(Reason.INVALID, f'SSH key does not exist: "{key}"', field="sshKey")
        # Its key is pinned by `create`, which keeps it.
        with contextlib.ExitStack() as held:
            seen = machine.directory / "precreate.half"
            held.callback(lambda: seen.unlink(missing_ok=True))
            login = SshLogin(address, options.text("ssh-user"), seen, options.number("ssh-port"), Path(key) if key else None)
            async with connect(login, self.around.clock, self.around.outbound) as shell:
                await as_root(shell)

    async def create(self, machine: Machine, keep: Keep) -> None:
        options = machine.options
        address = options.text("ip-address")
        await asyncio.to_thread(_import_key, options.text("ssh-key"), machine.directory)
        fields = {
            _address_field(address): address,
            "SSHUser": options.text("ssh-user"),
            "SSHPort": options.number("ssh-port"),
            "SSHKey": options.text("ssh-key"),
            "SSHKeyPath": str(machine.directory / _KEY) if options.text("ssh-key") else "",
            "EnginePort": options.number("engine-port"),
        }
        await keep(fields)
        async with reached(machine, keep, self.around) as shell:
            text = shlex.quote(f"{machine.token} {machine.name} {machine.owner}")
            code, said = await _as_root(shell, _TAKE.format(claim=self.claim, token=machine.token, text=text))
        if code == _OTHER:
            raise DriverError(Reason.CONFLICT, f"{address} is the machine {last_line(said)} already", field="ipAddress")
        if code != 0:
            raise DriverError(Reason.FAILED, f"{self.claim} can't be written on {address}: {last_line(said)}")

    async def remove(self, machine: Machine, keep: Keep) -> None:
        if not machine.address:
            return
        try:
            async with deadline(self.around.clock, _UNINSTALL_SECONDS), reached(machine, keep, self.around, tries=3) as shell:
                code, said = await _as_root(shell, _LET_GO.format(claim=self.claim, token=machine.token or "-"))
        except HostKeyChanged as error:
            self.around.say(f"it is released unchanged: {error.message}")
            return
        except (DriverError, TimeoutError) as error:
            # The host belongs to its owner: nothing is left that costs anything.
            self.around.say(f"the host does not answer, it is released unchanged: {error}")
            return
        if code == _OTHER:
            self.around.say("the host is another machine's by now: it stays as it is")
        elif code != 0:
            self.around.say(f"not everything was uninstalled: {last_line(said)}")

    async def state(self, machine: Machine) -> State:
        login = login_of(machine)
        try:
            async with deadline(self.around.clock, _DIAL_SECONDS):
                made = await outbound.connected(self.around.outbound, login.address, login.port)
        except OSError:
            return State.STOPPED
        made.close()
        return State.RUNNING


async def _as_root(shell: SshShell, script: str) -> tuple[int, str]:
    return await shell.run(f"{await as_root(shell)} {shlex.quote(script)}")


def _address_field(address: str) -> str:
    try:
        return "IPv6Address" if ipaddress.ip_address(address).version == 6 else "IPAddress"
    except ValueError:
        return "IPAddress"  # a name


def _import_key(source: str, directory: Path) -> None:
    """Copy the key into the machine's directory, and so into its state: the Job's files are deleted afterwards."""
    if not source:
        return
    try:
        for path, name in ((Path(source), _KEY), (Path(f"{source}.pub"), f"{_KEY}.pub")):
            if path.exists():
                shutil.copyfile(path, directory / name)
                (directory / name).chmod(0o600)
    except OSError as error:
        raise DriverError(Reason.INVALID, f"the SSH key can't be read: {error.strerror}", field="sshKey") from None
