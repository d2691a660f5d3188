"""Roles on a real kube-apiserver behind `remuda gateway`: our rules as its webhooks, what comes of them in its own RBAC."""

from __future__ import annotations

import asyncio
import contextlib
import json
import subprocess
import threading
from pathlib import Path
from typing import Any

import pytest

from remuda.api.provisioning_cattle_io import CLUSTERS as PROVISIONING_CLUSTERS
from remuda.client.https import HttpsClient
from remuda.kube.clock import SYSTEM_CLOCK, Rng
from remuda.runtime import Informer
from tests.real import need

from .test_door_kubernetes import Place, admin, place  # noqa: F401 - fixtures

pytestmark = [pytest.mark.real, pytest.mark.timeout(600)]

Obj = dict[str, Any]

MANAGEMENT = "/apis/management.cattle.io/v3"
CLUSTERS = "/apis/provisioning.cattle.io/v1/namespaces/fleet-default/clusters"
PATCH = {"Content_Type": "application/merge-patch+json"}


class Somebody:
    """A user with the global role `user`, as whom the administrator asks."""

    def __init__(self, place: Place, admin: str, name: str) -> None:  # noqa: F811
        self._place, self._admin, self.name = place, admin, name
        binding = {"apiVersion": "management.cattle.io/v3", "kind": "GlobalRoleBinding", "metadata": {"name": f"grb-{name}"}}
        binding |= {"globalRoleName": "user", "userName": name}
        # Its role is made by the server itself, one after another, and known to its rules a moment later.
        place.until(lambda: place.ask(f"{MANAGEMENT}/globalroles/user", admin)[0] == 200)
        place.until(lambda: place.ask(f"{MANAGEMENT}/globalrolebindings", admin, "POST", binding)[0] in (201, 409))

    def ask(self, path: str, method: str = "GET", body: Any = None, **headers: str) -> tuple[int, Any]:
        who = {"Impersonate_User": self.name, "Impersonate_Group": "system:authenticated"}
        return self._place.ask(path, self._admin, method, body, **who, **headers)

    def makes(self, name: str, **annotations: str) -> tuple[int, Any]:
        metadata = {"name": name, "namespace": "fleet-default", "annotations": annotations}
        return self.ask(
            CLUSTERS, "POST", {"apiVersion": "provisioning.cattle.io/v1", "kind": "Cluster", "metadata": metadata, "spec": {}}
        )


def test_tenants_on_another_kubernetes(place: Place, admin: str) -> None:  # noqa: F811
    ann, bob = Somebody(place, admin, "u-ann"), Somebody(place, admin, "u-bob")
    ids = {}
    for tenant in (ann, bob):
        place.until(lambda tenant=tenant: tenant.makes(f"of-{tenant.name}")[0] in (201, 409))
        made = place.until(lambda tenant=tenant: _if_found(tenant.ask(f"{CLUSTERS}/of-{tenant.name}")))
        assert made["metadata"]["annotations"]["field.cattle.io/creatorId"] == tenant.name
        ids[tenant.name] = place.until(
            lambda tenant=tenant: (tenant.ask(f"{CLUSTERS}/of-{tenant.name}")[1].get("status") or {}).get("clusterName")
        )
        place.until(lambda tenant=tenant: tenant.ask(f"{MANAGEMENT}/clusters/{ids[tenant.name]}")[0] == 200)
    theirs = ids["u-bob"]
    for path in (
        f"{CLUSTERS}/of-u-bob",
        f"{CLUSTERS}/absent",
        f"{MANAGEMENT}/clusters/{theirs}",
        f"{MANAGEMENT}/clusters/c-absent",
    ):
        # As if there were none, since she may create one: `kubectl apply` asks first.
        place.until(lambda path=path: ann.ask(path)[0] == 404)
    for path in (
        f"{MANAGEMENT}/namespaces/{theirs}/clusterregistrationtokens",
        f"/api/v1/namespaces/{theirs}/secrets/crt-token-default-token",
        "/api/v1/namespaces/fleet-default/secrets",
    ):
        assert ann.ask(path)[0] == 403, path
    # A list shows what is theirs, in whatever form, though that Kubernetes would refuse it.
    table = "application/json;as=Table;v=v1;g=meta.k8s.io,application/json"
    for path, name in ((CLUSTERS, "of-u-ann"), (f"{MANAGEMENT}/clusters", ids["u-ann"])):
        # The gateway follows by itself what that Kubernetes has let her do already.
        place.until(lambda path=path: ann.ask(f"{path}?limit=500")[1].get("items"))
        code, answer = ann.ask(f"{path}?limit=500")
        assert (code, [each["metadata"]["name"] for each in answer["items"]]) == (200, [name])
        code, answer = ann.ask(path, Accept=table)
        assert (code, [row["object"]["metadata"]["name"] for row in answer["rows"]]) == (200, [name])
        assert len(place.ask(path, admin)[1]["items"]) >= 2
    assert ann.ask("/apis/provisioning.cattle.io/v1/namespaces/fleet-local/clusters")[0] == 403
    assert ann.ask(f"{MANAGEMENT}/users")[0] == 403
    own = f"{MANAGEMENT}/clusters/{ids['u-ann']}"
    code, answer = ann.ask(own, "PATCH", {"status": {"apiEndpoint": "https://192.0.2.66"}}, **PATCH)
    assert (code, (answer.get("status") or {}).get("apiEndpoint")) == (200, None)
    assert ann.ask(own, "PATCH", {"spec": {"internal": True}}, **PATCH)[0] == 422
    assert ann.makes("forged", **{"field.cattle.io/creatorId": "u-bob"})[0] == 422
    assert ann.makes("stolen", **{"provisioning.cattle.io/management-cluster-name": theirs})[0] == 422


def test_a_tenant_watches_there_what_is_theirs(place: Place, admin: str, tmp_path: Path) -> None:  # noqa: F811
    """As kubectl and as an informer do: what comes, changes and goes of theirs, and nothing of anybody else's."""
    cleo, dan = Somebody(place, admin, "u-cleo"), Somebody(place, admin, "u-dan")
    place.until(lambda: cleo.ask(CLUSTERS)[0] == 200)
    config = tmp_path / "cleo.yaml"
    user = {"token": admin, "as": "u-cleo", "as-groups": ["system:authenticated"]}
    config.write_text(
        json.dumps(
            {
                "apiVersion": "v1",
                "kind": "Config",
                "clusters": [{"name": "c", "cluster": {"server": place.url, "insecure-skip-tls-verify": True}}],
                "users": [{"name": "u", "user": user}],
                "contexts": [{"name": "x", "context": {"cluster": "c", "user": "u"}}],
                "current-context": "x",
            }
        )
    )
    program = str(need.programs("kubernetes")["kubectl"])
    command = [program, "--kubeconfig", str(config), "-n", "fleet-default", "get", "clusters.provisioning.cattle.io", "-w"]
    informer = Following(config)
    with (tmp_path / "told").open("wb") as told:
        watching = subprocess.Popen([*command, "--output-watch-events"], stdout=told, stderr=subprocess.STDOUT)
    try:

        def said() -> str:
            return (tmp_path / "told").read_text()

        place.until(lambda: informer.synced)
        place.until(lambda: dan.makes("of-dan")[0] in (201, 409))
        place.until(lambda: cleo.makes("of-cleo")[0] in (201, 409))
        place.until(lambda: "ADDED" in said() and "of-cleo" in said())
        place.until(lambda: informer.names() == {"of-cleo"})
        place.until(lambda: cleo.ask(f"{CLUSTERS}/of-cleo", "DELETE")[0] in (200, 404))
        place.until(lambda: "DELETED" in said())
        place.until(lambda: informer.names() == set())
        assert "of-dan" not in said()
        assert watching.poll() is None
    finally:
        watching.terminate()
        watching.wait(60)
        informer.stop()


class Following:
    """An informer of somebody's clusters, in a thread of its own."""

    def __init__(self, config: Path) -> None:
        self._config = config
        self._loop = asyncio.new_event_loop()
        self._informer: Informer | None = None
        self._thread = threading.Thread(target=self._loop.run_until_complete, args=(self._run(),))
        self._thread.start()

    async def _run(self) -> None:
        self._task = asyncio.current_task()
        async with HttpsClient.from_kubeconfig(self._config) as client:
            self._informer = Informer(client, PROVISIONING_CLUSTERS, SYSTEM_CLOCK, Rng(5), namespace="fleet-default")
            with contextlib.suppress(asyncio.CancelledError):
                await self._informer.run()

    @property
    def synced(self) -> bool:
        return self._informer is not None and self._informer.synced.is_set()

    def names(self) -> set[str]:
        return set() if self._informer is None else {key.name for key in list(self._informer.keys())}

    def stop(self) -> None:
        if self._task is not None:
            self._loop.call_soon_threadsafe(self._task.cancel)
        self._thread.join(60)
        self._loop.close()


def test_permissions_that_the_writer_lacks_can_not_be_granted_there(place: Place, admin: str) -> None:  # noqa: F811
    rules = [{"verbs": ["create"], "apiGroups": ["management.cattle.io"], "resources": ["globalroles", "globalrolebindings"]}]
    role = {"apiVersion": "management.cattle.io/v3", "kind": "GlobalRole", "metadata": {"name": "keeper"}, "rules": rules}
    # Its rules don't know at once who holds what.
    place.until(lambda: place.ask(f"{MANAGEMENT}/globalroles", admin, "POST", role)[0] in (201, 409))
    keeper = Somebody(place, admin, "u-keeper")
    binding = {"apiVersion": "management.cattle.io/v3", "kind": "GlobalRoleBinding", "metadata": {"name": "keeps"}}
    binding |= {"globalRoleName": "keeper", "userName": "u-keeper"}
    place.until(lambda: place.ask(f"{MANAGEMENT}/globalrolebindings", admin, "POST", binding)[0] in (201, 409))
    grab = {**binding, "metadata": {"name": "grab"}, "globalRoleName": "admin"}

    def judged() -> Any:
        code, answer = keeper.ask(f"{MANAGEMENT}/globalrolebindings", "POST", grab)
        return answer["message"] if code == 403 and "cannot create" not in answer["message"] else ""

    assert "not currently held" in place.until(judged)
    assert place.ask(f"{MANAGEMENT}/globalroles/admin", admin, "DELETE")[0] == 403
    assert place.ask(f"{MANAGEMENT}/globalroles/keeper", admin, "DELETE")[0] == 200
    # Its own garbage collection takes what came of it.
    place.until(lambda: place.ask(f"{MANAGEMENT}/globalrolebindings/keeps", admin)[0] == 404)
    place.until(lambda: place.ask("/apis/rbac.authorization.k8s.io/v1/clusterroles/cattle-globalrole-keeper", admin)[0] == 404)


def _if_found(answer: tuple[int, Any]) -> Obj | None:
    return answer[1] if answer[0] == 200 else None
