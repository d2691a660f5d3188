"""docs/node-drivers.md: what it shows works."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import yaml

from remuda.access.rancher_conditions import condition_of
from remuda.api.management_cattle_io import API_VERSION, GLOBAL_ROLES, NODE_DRIVERS
from remuda.kube.objects import GroupVersionResource
from tests.unit.access.roles.management_house import SECRETS, WORKSPACE

from .test_permissions import LOCAL_CONFIGS, local_config, office

Obj = dict[str, Any]
PAGE = (Path(__file__).parents[4] / "docs" / "node-drivers.md").read_text()
EXAMPLES = [list(yaml.safe_load_all(text)) for text in re.findall(r"```yaml\n(.*?)```", PAGE, re.DOTALL)]
CONFIGS = GroupVersionResource("rke-machine-config.cattle.io", "v1", "exoscaleconfigs")


async def test_the_examples_work() -> None:
    (credential, config), (driver,), (role,) = EXAMPLES
    async with office() as here:
        (said,) = re.findall(r"patch nodedriver (\w+) --type merge -p '(.*)'", PAGE)
        await here.as_("u-admin").patch(NODE_DRIVERS, said[0], yaml.safe_load(said[1]))
        await here.settle(2.0)
        await here.as_("u-one").create(SECRETS, credential, "cattle-global-data")
        made = await here.as_("u-one").create(CONFIGS, config, WORKSPACE)
        assert (made["instanceProfile"], made["availabilityZone"]) == ("Medium", "CH-DK-2")
        # There is no rancher-machine.
        await here.as_("u-admin").create(NODE_DRIVERS, driver)
        await here.settle(2.0)
        shown = condition_of(await here.client.get(NODE_DRIVERS, "shelf"), "Active") or {}
        assert (shown["status"], "install rancher-machine" in shown["message"]) == ("False", True)
        named: Obj = {"apiVersion": API_VERSION, "kind": "GlobalRole", "metadata": {"name": "use-local"}, "displayName": "l"}
        await here.create(GLOBAL_ROLES, {**named, **role})
        await here.settle()
        await here.grant("use-local", "u-one")
        await here.as_("u-one").create(LOCAL_CONFIGS, local_config(), WORKSPACE)
