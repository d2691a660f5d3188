"""docs/roles.md: its example works, and it names every built-in role."""

from __future__ import annotations

import re
from pathlib import Path

import yaml

from remuda.access.roles.builtin_roles import BUILTIN
from remuda.api.management_cattle_io import CLUSTER_ROLE_TEMPLATE_BINDINGS, CLUSTERS

from .management_house import house

DOC = (Path(__file__).parents[4] / "docs" / "roles.md").read_text()


def test_every_built_in_role_is_named() -> None:
    assert [name for _, name in BUILTIN if f"`{name}`" not in DOC] == []


async def test_the_example_gives_access() -> None:
    (example,) = re.findall(r"```yaml\n(.*?)```", DOC, re.DOTALL)
    binding = yaml.safe_load(example)
    async with house() as here:
        await here.cluster(binding["clusterName"])
        await here.create(CLUSTER_ROLE_TEMPLATE_BINDINGS, binding)
        await here.settle()
        assert await here.as_(binding["userName"]).get(CLUSTERS, binding["clusterName"])
