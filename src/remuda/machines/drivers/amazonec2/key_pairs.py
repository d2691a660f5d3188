"""The key pair of a machine: its own, under a name that is kept before it is sent to EC2; or one that the user named."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

from ...driver import DriverContext, Keep, Machine
from ...errors import DriverError, Reason
from ...ssh import PRIVATE, ensure_key
from . import client
from .client import Ec2

_TRIES = 5


async def ensure_key_pair(ec2: Ec2, machine: Machine, keep: Keep, around: DriverContext) -> str:
    """Its name at EC2. Raises DriverError."""
    _take_given(machine)
    named = machine.options.text("keypair-name")
    path = str(machine.directory / PRIVATE)
    if named:
        await keep({"KeyName": named, "ExistingKey": True, "SSHKeyPath": path})
        return named
    public = ensure_key(machine.directory)
    name = str(machine.state.get("KeyName") or "")
    for _ in range(_TRIES):
        if not name:
            name = f"{machine.name}-{around.rng.name_suffix(5)}"
            await keep({"KeyName": name, "ExistingKey": False, "SSHKeyPath": path})
        if await _import(ec2, machine, name, public):
            return name
        name = ""
    raise DriverError(Reason.CONFLICT, f"key pairs of others have the names of {machine.name}'s")


async def remove_key_pairs(ec2: Ec2, machine: Machine) -> None:
    """Remove the key pair of the kept name, unless it is not ours, and all others with the machine's token."""
    names = {str(pair["KeyName"]) for pair in await key_pairs(ec2, client.having(client.TOKEN, [machine.token]))}
    kept = str(machine.state.get("KeyName") or "")
    if kept and not machine.state.get("ExistingKey") and kept not in names:
        seen = await key_pairs(ec2, {"Name": "key-name", "Values": [kept]})
        # One that can't be seen may be too new for that. rancher-machine's have no tags, and no token.
        if not seen or not machine.token:
            names.add(kept)
    for name in sorted(names):
        await ec2.unless(("InvalidKeyPair.NotFound",), "delete_key_pair", f"removing the key pair {name}", KeyName=name)


async def key_pairs(ec2: Ec2, wanted: dict[str, Any]) -> list[dict[str, Any]]:
    """Those that pass a filter."""
    if not any(wanted["Values"]):
        return []
    answer = await ec2("describe_key_pairs", "looking for our key pairs", Filters=[wanted])
    return list(answer.get("KeyPairs") or ())


async def _import(ec2: Ec2, machine: Machine, name: str, public: str) -> bool:
    """False when the name belongs to another key pair."""
    made = await ec2.unless(
        ("InvalidKeyPair.Duplicate",),
        "import_key_pair",
        f"importing the key pair {name}",
        KeyName=name,
        PublicKeyMaterial=public.encode(),
        TagSpecifications=[client.specification("key-pair", client.ours(machine))],
    )
    if made is not None:
        return True
    seen = await key_pairs(ec2, {"Name": "key-name", "Values": [name]})
    return any(client.read(pair).get(client.TOKEN) == machine.token for pair in seen)


def _take_given(machine: Machine) -> None:
    given, own = machine.options.text("ssh-keypath"), machine.directory / PRIVATE
    if not given or own.exists():
        return
    try:
        half = own.with_name(f".{own.name}.given")
        half.unlink(missing_ok=True)
        half.touch(0o600)
        shutil.copyfile(Path(given), half)
        half.replace(own)
    except OSError as error:
        raise DriverError(
            Reason.INVALID, f"the SSH key in {given} can't be read: {error.strerror}", field="sshKeyContents"
        ) from None
