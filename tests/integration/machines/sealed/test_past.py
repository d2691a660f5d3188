"""What is shown of the time before fields were sealed."""

from __future__ import annotations

import json
from pathlib import Path

from remuda.client.inprocess import InProcessClient
from remuda.machines.sealed.admission import admitted, hide_the_past, sealing_of
from remuda.machines.sealed.controller import move
from remuda.machines.sealed.markers import LAST_APPLIED, PREFIX
from remuda.machines.sealed.vault import Vault
from remuda.runtime.admission import install
from remuda.sim import jobs
from tests.integration.apiserver.test_history import Asking, give, revision_of
from tests.unit.apiserver.serving import establish, served

KEY = "-----BEGIN OPENSSH PRIVATE KEY-----\nbm90IGEga2V5IGF0IGFsbA==\n-----END OPENSSH PRIVATE KEY-----\n"
PAST = "/history/apis/rke-machine-config.cattle.io/v1/namespaces/default/paperconfigs"


async def test_the_past_shows_values_only_to_who_may_read_secrets(tmp_path: Path) -> None:
    async with served(data_dir=tmp_path / "data", port=0, default_roles=False) as server:
        await server.listen()
        client = InProcessClient(server, manager="remuda")
        for each in jobs.crds(*jobs.FIELDS):
            await establish(client, each)
        reading = {"verbs": ["get", "list"], "apiGroups": ["rke-machine-config.cattle.io"], "resources": ["paperconfigs"]}
        await give(client, "reads", "reader", reading)
        await give(client, "reads-too", "keeper", reading)
        await give(client, "secrets", "keeper", {"verbs": ["get"], "apiGroups": [""], "resources": ["secrets"]})
        # As an older version stored it.
        old = jobs.config("mine", "default", sshKey=KEY, size="s")
        old["metadata"]["annotations"] = {LAST_APPLIED: json.dumps(old)}
        then = revision_of(await client.create(jobs.CONFIGS, old, "default"))
        vault = Vault(client, server.config.clock, server.config.entropy)
        install(admitted(server.source, server.rbac, vault), server.hooks, server.converters)
        hide_the_past(server.past, sealing_of(server.source, server.rbac, vault))
        for definition in jobs.crds(*jobs.FIELDS):
            await move(client, definition)
        assert "PRIVATE KEY" not in json.dumps(await client.get(jobs.CONFIGS, "mine", "default"))
        reader, keeper = Asking(server, "reader"), Asking(server, "keeper")
        for path, query in (
            (f"{PAST}/mine", {"at": then}),
            (PAST, {"at": then}),
            (f"{PAST}/mine", {"objects": "true"}),
        ):
            shown = json.dumps(await reader.get(path, **query))
            assert "PRIVATE KEY" not in shown and PREFIX in shown and '"s"' in shown, path
            assert "PRIVATE KEY" in json.dumps(await keeper.get(path, **query)), path
