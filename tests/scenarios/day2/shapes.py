"""The clusters of random stories: distribution, roles, pools or registered hosts, and where snapshots go."""

from __future__ import annotations

import base64
import random
from collections import Counter
from dataclasses import dataclass
from typing import Any

from remuda.kube.builtin_resources import SECRETS
from remuda.lab.sim import machine_jobs
from remuda.lab.sim.machine_jobs import config, pool
from remuda.lab.sim.provisioning_world import WORKSPACE, ProvisioningWorld

from ..provisioned import DEMO, ready

# The versions of a distribution that follow each other, by one patch or one minor version.
_VERSIONS: dict[str, list[tuple[str, ...]]] = {
    "remuda": [("v1.33.5+remuda1", "v1.34.0+remuda1", "v1.34.1+remuda1", "v1.35.0+remuda1", "v1.36.0+remuda1")],
    # Encryption keys of the second are rotated in stages.
    "k3s": [
        ("v1.32.9+k3s1", "v1.33.5+k3s1", "v1.34.1+k3s1", "v1.34.11+k3s1"),
        ("v1.29.4+k3s1", "v1.29.6+k3s1", "v1.30.2+k3s1"),
    ],
    "rke2": [("v1.32.9+rke2r1", "v1.33.5+rke2r1", "v1.34.1+rke2r1", "v1.34.11+rke2r1")],
}
BUCKET, FOLDER, CREDENTIAL = "backups", "demo", "keys-of-s3"
_S3 = {"bucket": BUCKET, "folder": FOLDER, "cloudCredentialName": f"{WORKSPACE}:{CREDENTIAL}"}


@dataclass(frozen=True, slots=True)
class Shape:
    """`roles` are letters for each host: e, c, w. `versions` begins with the first one."""

    runtime: str
    versions: tuple[str, ...]
    roles: tuple[str, ...]
    pools: bool
    s3: bool
    drains: bool

    @classmethod
    def random(cls, chance: random.Random) -> Shape:
        runtime = chance.choice(["remuda", "remuda", "k3s", "rke2"])
        versions = chance.choice(_VERSIONS[runtime])
        return cls(
            runtime,
            versions[chance.randrange(len(versions) - 1) :],
            tuple(_roles(chance)),
            pools=chance.random() < 0.3,
            s3=chance.random() < 0.6,
            drains=chance.random() < 0.3,
        )

    def __str__(self) -> str:
        where = "pools" if self.pools else "hosts"
        notes = [*(["S3"] if self.s3 else []), *(["drains"] if self.drains else [])]
        return f"{self.versions[0]}, {where} {' '.join(self.roles)} {', '.join(notes)}".strip()

    async def build(self, world: ProvisioningWorld) -> None:
        """Bring the cluster `demo` up."""
        if self.s3:
            keys = {f"s3credentialConfig-{key}": base64.b64encode(b"hidden").decode() for key in ("accessKey", "secretKey")}
            await world.client.create(SECRETS, {"metadata": {"name": CREDENTIAL}, "data": keys}, WORKSPACE)
        if self.pools:
            assert world.jobs is not None
            world.jobs.runtime = self.runtime
            await world.client.create(machine_jobs.CONFIGS, config("small", WORKSPACE, size="s"), WORKSPACE)
        await world.want(DEMO, self.versions[0], **self._config())
        if not self.pools:
            for number, roles in enumerate(self.roles):
                await world.host(DEMO, f"h{number}", roles, runtime=self.runtime)
        await ready(world, 1800)

    def _config(self) -> dict[str, Any]:
        drain = {"enabled": self.drains}
        found: dict[str, Any] = {
            "upgradeStrategy": {"controlPlaneDrainOptions": drain, "workerDrainOptions": drain},
            "machineGlobalConfig": {"secrets-encryption": True} if self.runtime == "k3s" else {},
        }
        if self.s3:
            found["etcd"] = {"s3": _S3}
        if self.pools:
            found["machinePools"] = [pool(roles, roles, number) for roles, number in sorted(Counter(self.roles).items())]
        return found


def _roles(chance: random.Random) -> list[str]:
    members = chance.choice([1, 1, 2, 3, 3, 3, 3, 4, 5])
    match chance.choice(["all", "servers", "servers", "split"]):
        case "all":
            return ["ecw"] * members + ["w"] * chance.randint(0, 1)
        case "servers":
            return ["ec"] * members + ["w"] * chance.randint(1, 2)
        case _:
            return ["e"] * members + ["c"] * chance.randint(1, 2) + ["w"] * chance.randint(1, 2)
