"""What the demo asks for: `demo.yaml`, and the same with more workers or another version. Pure.

Changes are made to the text, so that what is applied is what is shown, comments and all.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from importlib import resources
from typing import Any

from remuda.api import provisioning_cattle_io as provisioning
from remuda.kube.encoding import yamlio
from remuda.kube.objects import GroupVersionResource, dig
from remuda.provisioning.releases import catalog, distributions

Obj = dict[str, Any]

NAME = "demo"
SERVERS, WORKERS = "servers", "workers"
CONFIGS = GroupVersionResource("rke-machine-config.cattle.io", "v1", "localconfigs")
# Configs first: a cluster that names some that are not there would have to wait for them.
_RESOURCES = {"LocalConfig": CONFIGS, "Cluster": provisioning.CLUSTERS}


@dataclass(frozen=True, slots=True)
class Declared:
    text: str

    def documents(self) -> list[tuple[GroupVersionResource, Obj]]:
        """In the order in which they are best applied."""
        found: list[Obj] = [each for each in yamlio.loads_all(self.text) if each]
        return [(resource, each) for kind, resource in _RESOURCES.items() for each in found if each["kind"] == kind]

    @property
    def spec(self) -> Obj:
        found: Obj = next(each["spec"] for resource, each in self.documents() if resource == provisioning.CLUSTERS)
        return found

    @property
    def version(self) -> str:
        return str(self.spec["kubernetesVersion"])

    def quantity(self, pool: str = "") -> int:
        """Of one pool, or of all."""
        pools: Iterable[Obj] = self.spec["rkeConfig"]["machinePools"]
        return sum(int(each["quantity"]) for each in pools if pool in ("", each["name"]))

    def with_quantity(self, pool: str, quantity: int) -> Declared:
        return Declared(re.sub(rf"(- name: {pool}\n\s+quantity: )\d+", rf"\g<1>{quantity}", self.text))

    def with_version(self, version: str) -> Declared:
        return Declared(re.sub(r"(kubernetesVersion: )\S+", rf"\g<1>{version}", self.text))

    def with_timeout(self, timeout: str) -> Declared:
        """How long a node may be unhealthy before its machine is replaced."""
        return Declared(re.sub(r"(unhealthyNodeTimeout: )\S+", rf"\g<1>{timeout}", self.text))

    @property
    def timeout(self) -> str:
        return self.timers()["unhealthyNodeTimeout"]

    def timers(self) -> dict[str, str]:
        """What it takes until a machine that has died is replaced, by name."""
        config = dig(self.spec, "rkeConfig", "machineGlobalConfig") or {}
        said = dict(argument.split("=", 1) for listed in config.values() for argument in listed)
        pools: Iterable[Obj] = self.spec["rkeConfig"]["machinePools"]
        return {**said, **{name: str(each[name]) for each in pools for name in each if name.endswith("Timeout")}}


def packaged() -> Declared:
    return Declared((resources.files(__package__) / "demo.yaml").read_text())


def next_minor(version: str) -> str:
    """The newest release of the minor version after this one, or this one when there is none."""
    now = catalog.parsed(version)
    known = (catalog.parsed(each) for each in catalog.built_in().versions(distributions.REMUDA))
    after = [each for each in known if (each.major, each.minor) == (now.major, now.minor + 1)]
    return f"v{max(after, key=lambda each: each.patch)}" if after else version
