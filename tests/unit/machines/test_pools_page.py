"""docs/machine-pools.md names every field of a pool, and its example is a right one."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

from remuda import api
from remuda.api import provisioning_cattle_io as provisioning
from remuda.kube.encoding import yamlio
from remuda.kube.objects import dig
from remuda.machines.nodedrivers.machine_crds import kind_names
from remuda.provisioning.admission.machine_pools import pool_errors
from remuda.provisioning.graph.machine_pools import has_config, pools_of

PAGE = (Path(__file__).parents[3] / "docs" / "machine-pools.md").read_text()
# Of no meaning.
UNUSED = {"displayName", "hostnamePrefix"}


def fields() -> set[str]:
    (crd,) = [each for each in api.crds([provisioning.GROUP]) if dig(each, "spec", "names", "kind") == "Cluster"]
    spec: Any = crd["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["properties"]["spec"]
    return set(spec["properties"]["rkeConfig"]["properties"]["machinePools"]["items"]["properties"])


def test_every_field_is_named() -> None:
    named = set(re.findall(r"`([A-Za-z.]+)`", PAGE))
    assert fields() - UNUSED <= named | {name.partition(".")[0] for name in named}


def test_the_example_is_a_cluster_with_pools() -> None:
    (example,) = re.findall(r"```yaml\n(.*?)```", PAGE, re.DOTALL)
    config, cluster = yamlio.loads_all(example)
    assert config["kind"] == kind_names("local")[0]
    pools = pools_of(cluster)
    assert [(each["name"], each["quantity"]) for each in pools] == [("servers", 3), ("workers", 2)]
    for each in pools:
        assert has_config(each) and each["machineConfigRef"]["name"] == config["metadata"]["name"]
        assert pool_errors(each, "pool") == []
