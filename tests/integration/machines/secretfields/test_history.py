"""What is shown of the time before fields were sealed."""

from __future__ import annotations

import json
from pathlib import Path

from remuda.apiserver.admission.chain import install
from remuda.apiserver.inprocess import InProcessClient
from remuda.lab.sim import machine_jobs
from remuda.machines.secretfields.admission import admitted, sealing_of
from remuda.machines.secretfields.machinesecrets import move
from remuda.machines.secretfields.markers import LAST_APPLIED, PREFIX
from remuda.machines.secretfields.vault import Vault
from tests.integration.apiserver.history.test_history import Asking, give, revision_of
from tests.unit.apiserver.serving import establish, served

KEY = "-----BEGIN OPENSSH PRIVATE KEY-----\nbm90IGEga2V5IGF0IGFsbA==\n-----END OPENSSH PRIVATE KEY-----\n"
PAST = "/history/apis/rke-machine-config.cattle.io/v1/namespaces/default/paperconfigs"


async def test_the_past_shows_values_only_to_users_who_may_read_secrets(tmp_path: Path) -> None:
    async with served(data_dir=tmp_path / "data", port=0, default_roles=False) as server:
        await server.listen()
        client = InProcessClient(server, manager="remuda")
        for each in machine_jobs.crds(*machine_jobs.FIELDS):
            await establish(client, each)
        reading = {"verbs": ["get", "list"], "apiGroups": ["rke-machine-config.cattle.io"], "resources": ["paperconfigs"]}
        await give(client, "reads", "reader", reading)
        await give(client, "reads-too", "keeper", reading)
        await give(client, "secrets", "keeper", {"verbs": ["get"], "apiGroups": [""], "resources": ["secrets"]})
        # As an older version stored it.
        old = machine_jobs.config("mine", "default", sshKey=KEY, size="s")
        old["metadata"]["annotations"] = {LAST_APPLIED: json.dumps(old)}
        then = revision_of(await client.create(machine_jobs.CONFIGS, old, "default"))
        vault = Vault(client, server.config.clock, server.config.entropy)
        install(admitted(server.source, server.rbac, vault), server.hooks, server.converters)
        server.past.veils |= sealing_of(server.source, server.rbac, vault).veils()
        for definition in machine_jobs.crds(*machine_jobs.FIELDS):
            await move(client, definition)
        assert "PRIVATE KEY" not in json.dumps(await client.get(machine_jobs.CONFIGS, "mine", "default"))
        reader, keeper = Asking(server, "reader"), Asking(server, "keeper")
        for path, query in (
            (f"{PAST}/mine", {"at": then}),
            (PAST, {"at": then}),
            (f"{PAST}/mine", {"objects": "true"}),
        ):
            shown = json.dumps(await reader.get(path, **query))
            assert "PRIVATE KEY" not in shown and PREFIX in shown and '"s"' in shown, path
            assert "PRIVATE KEY" in json.dumps(await keeper.get(path, **query)), path
