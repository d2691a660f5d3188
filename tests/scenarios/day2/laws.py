"""What must hold at any moment of a cluster's life, whatever is requested and whatever fails."""

from __future__ import annotations

import base64
from dataclasses import dataclass, field
from typing import Any

from remuda.apiserver.auth.authenticator import BadCredentials, Credentials
from remuda.client.idempotent import find
from remuda.kube.builtin_resources import SECRETS
from remuda.kube.objects import annotations_of, dig, labels_of, name_of
from remuda.lab.sim.provisioning_world import WORKSPACE, ProvisioningWorld
from remuda.provisioning.planner.operations import (
    etcd_snapshot_create,
    etcd_snapshot_restore,
    rotate_certificates,
    rotate_encryption_keys,
    upgrade_snapshot,
)
from remuda.provisioning.planner.operations.steps import is_task_plan
from remuda.provisioning.planner.snapshot import ControlPlane
from remuda.provisioning.planner.snapshot_reader import control_plane
from remuda.provisioning.plans.plan import decode
from remuda.provisioning.well_known import INIT_NODE, TASK, plan_name

from ..provisioned import DEMO

Obj = dict[str, Any]

_OPERATIONS = {
    "etcdSnapshotCreate": etcd_snapshot_create.is_running,
    "etcdSnapshotRestore": etcd_snapshot_restore.is_running,
    "rotateCertificates": rotate_certificates.is_running,
    "rotateEncryptionKeys": rotate_encryption_keys.is_running,
    "upgradeSnapshot": upgrade_snapshot.is_running,
}
# Phases at whose end a whole pass of normal plans runs.
_OPEN_PHASES = ("RestartCluster", "InitialRestartCluster")
# Virtual seconds that a pass may take, also when the controllers die in it.
_PASS = 5.0


class Broken(AssertionError):
    """A law was broken."""


def running(plane: ControlPlane) -> list[str]:
    return [name for name, is_running in _OPERATIONS.items() if is_running(plane)]


@dataclass
class Laws:
    """`check` looks once; what it has seen before is what must not change."""

    world: ProvisioningWorld
    _tokens: dict[str, Any] = field(default_factory=dict)
    # Of the last look: the operation with its phase and request, and the plan of each machine.
    _before: tuple[object, dict[str, bytes]] = ((), {})

    async def check(self) -> None:
        """Raises Broken."""
        self.world.check()
        distribution = self.world.distribution(DEMO)
        if distribution.violations:
            raise Broken("; ".join(distribution.violations))
        await self._same_tokens()
        plane = control_plane(await self.world.control_plane(DEMO))
        if len(found := running(plane)) > 1:
            raise Broken(f"two operations run: {found}")
        await self._plans(plane, found)

    async def _same_tokens(self) -> None:
        """The tokens with which machines and agents join are kept, and never change."""
        state = await find(self.world.client, SECRETS, f"{DEMO}-rke-state", WORKSPACE)
        found = {"the tokens of machines": (state or {}).get("data")}
        managed = await self.world.managed_name(DEMO)
        for each in (await self.world.client.list(SECRETS, managed))["items"]:
            if name_of(each).startswith("default-token"):
                found["the token of the tunnel"] = each.get("data")
        for what, before in self._tokens.items():
            if found.get(what) != before:
                raise Broken(f"{what} changed")
        self._tokens = found

    async def _plans(self, plane: ControlPlane, found: list[str]) -> None:
        plans: dict[str, bytes] = {}
        notes: dict[str, str] = {}
        inits = []
        for machine in await self.world.machines(DEMO):
            name = name_of(machine)
            secret = await find(self.world.client, SECRETS, plan_name(name), WORKSPACE)
            if secret is None:
                continue
            if labels_of(secret).get(INIT_NODE) == "true":
                inits.append(name)
            plans[name] = base64.b64decode(dig(secret, "data", "plan") or "")
            notes[name] = annotations_of(secret).get(TASK, "")
        if len(inits) > 1:
            raise Broken(f"two init nodes: {inits}")
        now = (tuple(found), _state(plane)), plans
        (state, before), self._before = self._before, now
        if not found or state != now[0] or _phase(plane) in _OPEN_PHASES:
            return
        others = [
            name
            for name, text in plans.items()
            if text and text != before.get(name) and not notes[name] and not is_task_plan(decode(text))
        ]
        if not others:
            return
        # The pass that ends an operation writes plans before it writes that.
        await self.world.settle(_PASS)
        plane = control_plane(await self.world.control_plane(DEMO))
        if (tuple(running(plane)), _state(plane)) == state:
            raise Broken(f"{', '.join(others)} got another plan while {found[0]} was running")

    async def check_hosts(self) -> None:
        """Agents still have their accounts. Raises Broken."""
        for host in self.world.hosts.hosts.values():
            if host.access is not None and not host.uninstalled:
                try:
                    await self.world.server.chain.identify(Credentials(bearer=host.access.token))
                except BadCredentials as error:
                    raise Broken(f"the token of {host.name}'s agent was lost: {error}") from None


def _state(plane: ControlPlane) -> object:
    return (
        plane.etcd_snapshot_create_phase,
        str(plane.etcd_snapshot_create),
        plane.etcd_snapshot_restore_phase,
        str(plane.etcd_snapshot_restore),
        plane.certificate_rotation_generation,
        plane.rotate_encryption_keys_phase,
        str(plane.rotate_encryption_keys),
        str(plane.upgrade_snapshot),
        plane.recover_phase,
    )


def _phase(plane: ControlPlane) -> str:
    if etcd_snapshot_restore.is_running(plane):
        return plane.etcd_snapshot_restore_phase
    return plane.etcd_snapshot_create_phase if etcd_snapshot_create.is_running(plane) else ""
