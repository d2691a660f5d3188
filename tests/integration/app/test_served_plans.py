"""`/v1-remuda/plan` and `/v1-remuda/apply` over HTTP: the same answers as the command's, with the caller's rights."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import aiohttp
import pytest

from remuda.app.changeplan.limits import Limits
from remuda.app.changeplan.served import PROGRAM, ServedPlans
from remuda.gateway.server.change_plans import LINES
from remuda.kube.authorization.users import SYSTEM
from remuda.kube.builtin_resources import CLUSTER_ROLE_BINDINGS, CLUSTER_ROLES
from remuda.kube.errors import ApiError
from tests.integration.cli.commands.served_world import ServedWorld, served, user_token
from tests.scenarios.provisioned import DEMO, FROM, TO, build
from tests.waiting import until

Obj = dict[str, Any]

CLUSTER = {"apiVersion": "provisioning.cattle.io/v1", "kind": "Cluster", "name": DEMO}
NEWER = {"patches": [{**CLUSTER, "patch": {"spec": {"kubernetesVersion": TO}}}]}
_SECRET = "correct-horse-battery"


async def post(found: ServedWorld, path: str, body: object, token: str = "", accept: str = "") -> tuple[int, str]:
    headers = {"Authorization": f"Bearer {token or found.token}", **({"Accept": accept} if accept else {})}
    async with aiohttp.ClientSession() as http, http.post(found.url + path, json=body, headers=headers) as answer:
        return answer.status, await answer.text()


async def test_the_answer_is_that_of_the_command_and_nothing_is_changed(tmp_path: Path) -> None:
    async with served(tmp_path) as found:
        await build(found.world, ["ec", "w"])
        await found.world.settle(2400)
        status, text = await post(found, "/v1-remuda/plan", NEWER)
        plan = json.loads(text)
        assert status == 200, text
        assert [each["outcome"] for each in plan["machines"]] == ["restarted", "restarted"]
        patch = json.dumps(NEWER["patches"][0]["patch"])
        told = await found.run(f"plan --patch clusters.provisioning.cattle.io/{DEMO} '{patch}' -o json")
        by_command = json.loads(told.out)
        for field in ("id", "verdict", "exitCode", "clusters", "waves", "objects"):
            assert plan[field] == by_command[field], field
        assert (await found.world.cluster(DEMO))["spec"]["kubernetesVersion"] == FROM


async def test_the_steps_come_line_by_line(tmp_path: Path) -> None:
    async with served(tmp_path) as found:
        await build(found.world, ["ecw"])
        status, text = await post(found, "/v1-remuda/plan", NEWER, accept=LINES)
        lines = [json.loads(line) for line in text.splitlines()]
        steps = [line["step"] for line in lines if "step" in line]
        assert status == 200 and lines[-1]["plan"]["verdict"] == "changes"
        assert {"reading the clusters", "rehearsing the change"} <= set(steps), steps
        invalid = {"patches": [{**CLUSTER, "patch": {"spec": {"kubernetesVersion": 7}}}]}
        _, text = await post(found, "/v1-remuda/plan", invalid, accept=LINES)
        refused = json.loads(text.splitlines()[-1])["error"]
        assert refused["code"] == 422 and "spec.kubernetesVersion" in refused["message"]


async def test_a_plan_is_applied_once(tmp_path: Path) -> None:
    async with served(tmp_path) as found:
        await build(found.world, ["ec", "w"])
        await found.world.settle(2400)
        _, text = await post(found, "/v1-remuda/plan", NEWER)
        plan = json.loads(text)["id"]
        status, text = await post(found, "/v1-remuda/apply", {**NEWER, "plan": "plan-of-another"})
        assert status == 409 and "does not hold any more" in text
        status, text = await post(found, "/v1-remuda/apply", {**NEWER, "plan": plan})
        applied = {"resource": "clusters.provisioning.cattle.io", "namespace": "fleet-default", "name": DEMO}
        assert (status, json.loads(text)) == (200, {"plan": plan, "applied": [applied]})
        assert (await found.world.cluster(DEMO))["spec"]["kubernetesVersion"] == TO
        status, _ = await post(found, "/v1-remuda/apply", {**NEWER, "plan": plan})
        assert status == 409, "the cluster is another one now"


async def test_a_caller_needs_the_rights_to_write_the_change_and_to_read_its_clusters(tmp_path: Path) -> None:
    async with served(tmp_path) as found:
        await build(found.world, ["ecw"])
        token = await user_token(found.world, "u-ann")
        status, text = await post(found, "/v1-remuda/plan", NEWER, token)
        assert status == 403 and "cannot patch resource" in text, text
        rules = [{"apiGroups": ["provisioning.cattle.io"], "resources": ["clusters"], "verbs": ["*"]}]
        await found.world.client.create(CLUSTER_ROLES, {"metadata": {"name": "clusters"}, "rules": rules})
        role = {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "clusters"}
        user = {"apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": "u-ann"}
        await found.world.client.create(
            CLUSTER_ROLE_BINDINGS, {"metadata": {"name": "clusters"}, "roleRef": role, "subjects": [user]}
        )
        await found.world.settle(5)
        for path in ("/v1-remuda/plan", "/v1-remuda/apply"):
            status, text = await post(found, path, {**NEWER, "plan": "plan-0"}, token)
            assert status == 403 and "cannot list resource" in text, text
        assert (await post(found, "/v1-remuda/plan", NEWER, "token-none:secret"))[0] == 401


async def test_no_answer_shows_the_content_of_a_secret(tmp_path: Path) -> None:
    async with served(tmp_path) as found:
        await build(found.world, ["ecw"])
        login = {"type": "kubernetes.io/basic-auth", "stringData": {"username": "ann", "password": _SECRET}}
        secret = {"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "registry"}, **login}
        registries = {"configs": {"r.example": {"authConfigSecretName": "registry"}}}
        patch = {**CLUSTER, "patch": {"spec": {"rkeConfig": {"registries": registries}}}}
        status, text = await post(found, "/v1-remuda/plan", {"objects": [secret], "patches": [patch]})
        assert status == 200 and _SECRET not in text
        assert [each["outcome"] for each in json.loads(text)["machines"]] == ["restarted"], text
        wrong = {**secret, "data": {"password": _SECRET}}
        _, text = await post(found, "/v1-remuda/plan", {"objects": [wrong], "patches": [patch]})
        assert _SECRET not in text


@pytest.mark.parametrize(
    ("body", "why"),
    [
        ({}, "there is no change"),
        ({"patches": [{"kind": "Cluster", "name": DEMO, "patch": {}}]}, "apiVersion"),
        ({"deletions": [{**CLUSTER, "kind": "Clutter"}]}, "deletions[0]: the server has no Clutter"),
        ({"deletions": [{**CLUSTER, "apiVersion": "../../v1"}]}, "deletions[0]: apiVersion"),
        ({"objects": [{"apiVersion": "v1", "kind": "Secret"}]}, "objects[0]: metadata.name"),
        ({"change": []}, "unknown field"),
    ],
)
async def test_a_change_that_can_not_be_read(tmp_path: Path, body: Obj, why: str) -> None:
    async with served(tmp_path) as found:
        status, text = await post(found, "/v1-remuda/plan", body)
        assert status == 400 and why in text, text


async def test_a_plan_ends_with_its_caller(tmp_path: Path) -> None:
    async with served(tmp_path) as found:
        await build(found.world, ["ec", "w"])
        async with aiohttp.ClientSession() as http:
            headers = {"Authorization": f"Bearer {found.token}", "Accept": LINES}
            async with http.post(f"{found.url}/v1-remuda/plan", json=NEWER, headers=headers) as answer:
                async for line in answer.content:
                    if b"rehearsing" in line:
                        break
                assert _children(), "the rehearsal is another process"
                answer.close()
        await until(lambda: not _children(), "the process is gone", seen=_children)


async def test_a_rehearsal_that_uses_too_much_is_ended(tmp_path: Path) -> None:
    async with served(tmp_path) as found:
        await build(found.world, ["ecw"])
        services, client = found.world.gateway.services, found.world.client
        steps: list[str] = []
        plans = ServedPlans(services, Limits(1 << 30, 1))
        with pytest.raises(ApiError, match="more memory or processor time") as failure:
            await plans.plan(client, SYSTEM, json.dumps(NEWER).encode(), steps.append)
        assert failure.value.code == 500
        assert "reading the clusters" in steps and not _children()


def _children() -> list[str]:
    """The processes of rehearsals below this one."""
    found = []
    for each in Path("/proc").iterdir():
        try:
            line = (each / "cmdline").read_text()
            parent = (each / "stat").read_text().rpartition(")")[2].split()[1]
        except (OSError, IndexError):
            continue
        if PROGRAM[-1] in line and parent == str(os.getpid()):
            found.append(each.name)
    return found
