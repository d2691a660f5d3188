"""A node over HTTPS, as `system:node:NAME` with what the distribution lets nodes do: nothing it does needs more."""

from __future__ import annotations

import asyncio
import base64
import sys
from pathlib import Path

import pytest

from remuda.apiserver.keys.pki import Pki, kubeconfig
from remuda.kube.builtin_resources import PODS
from remuda.kube.clock import SYSTEM_CLOCK, Entropy, Rng
from remuda.kube.encoding import yamlio
from remuda.kube.objects import dig
from remuda.lab.distro.cluster.apiserver import restrict_nodes
from remuda.lab.distro.nodes import BuiltinProgram, NodeConfig, PodDelays, run_node
from tests.unit.certificates import issue_client
from tests.unit.lab.distro.nodes.simulated_cluster import NAMESPACE, template, village

_SLEEPER = BuiltinProgram("test/sleeper", (sys.executable, "-I", "-c", "import time; time.sleep(600)"))


@pytest.fixture(scope="module")
def pki(tmp_path_factory: pytest.TempPathFactory) -> Pki:
    return Pki.ensure(tmp_path_factory.mktemp("pki"), ["127.0.0.1"], SYSTEM_CLOCK, Entropy())


async def test_a_node_needs_no_more_than_what_is_its_own(pki: Pki, tmp_path: Path) -> None:
    async with village(clock=SYSTEM_CLOCK, pki=pki) as place:
        await place.server.listen()
        assert place.server is not None
        await restrict_nodes(place.server)
        issued = issue_client(pki, "system:node:a", ["system:nodes"])
        user = {
            "client-certificate-data": base64.b64encode(issued.certificate).decode(),
            "client-key-data": base64.b64encode(issued.key).decode(),
        }
        path = tmp_path / "kubeconfig"
        path.write_text(yamlio.dumps(kubeconfig(place.server.url, pki.ca_pem, "node", user)))
        pace = PodDelays(0.0, 0.0, 0.1)
        config = NodeConfig(name="a", kubeconfig=path, root=tmp_path, programs=(_SLEEPER,), pace=pace)
        node = asyncio.create_task(run_node(config, SYSTEM_CLOCK, Rng(1)))
        try:
            await place.until("the node is ready", lambda: place.node_is_ready("a"))
            await place.deploy("web", 2)
            await place.deploy("sleeper", 1, pod={"containers": [{"name": "main", "image": "test/sleeper"}]})
            (pod,) = await place.pods("sleeper")
            assert not dig(pod, "status", "message")
            for each in (*await place.pods("web"), pod):
                await place.evict(each)

            async def replaced() -> bool:
                left = {each["metadata"]["uid"] for each in await place.pods()}
                return pod["metadata"]["uid"] not in left and len(left) == 3

            await place.until("pods that were evicted are replaced", replaced)
            task = {"apiVersion": "v1", "kind": "Pod", **template("task", restartPolicy="Never")}
            task["metadata"] = {"name": "task", "namespace": NAMESPACE}
            await place.make(PODS, task)

            async def done() -> bool:
                return bool(dig(await place.get(PODS, "task"), "status", "phase") == "Succeeded")

            await place.until("the task is done", done)
            assert not node.done()
        finally:
            node.cancel()
            await asyncio.gather(node, return_exceptions=True)
