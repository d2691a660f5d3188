"""A cluster through the gateway's proxy, with real processes and the real kubectl: as if it were in front of you."""

from __future__ import annotations

import http.client
import json
import os
import subprocess
import threading
import time
from pathlib import Path

import pytest

from tests.real import need

from .harness import Gateway, Imported, Person, kubectl, until

pytestmark = [pytest.mark.story, pytest.mark.real, pytest.mark.timeout(300)]

CONFIGMAPS = "/api/v1/namespaces/default/configmaps"


@pytest.fixture(scope="module")
def admin(gateway: Gateway, imported: Imported) -> Person:
    person = gateway.administrator()
    imported.lets_in(person)
    return person


@pytest.fixture(scope="module")
def config(admin: Person, imported: Imported, place: Path) -> Path:
    return admin.kubeconfig(place, imported.id)


def manifest(name: str, value: str) -> str:
    metadata = {"name": name, "namespace": "default"}
    return json.dumps({"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata, "data": {"key": value}})


def test_kubectl_makes_changes_and_removes_things(config: Path) -> None:
    assert "created" in kubectl(config, "apply", "-f", "-", input=manifest("a", "1"))
    assert "configured" in kubectl(config, "apply", "-f", "-", input=manifest("a", "2"))
    assert "serverside-applied" in kubectl(
        config, "apply", "--server-side", "--force-conflicts", "--field-manager=me", "-f", "-", input=manifest("a", "3")
    )
    assert kubectl(config, "get", "configmap", "a", "-o", "jsonpath={.data.key}") == "3"
    assert "NAME" in kubectl(config, "get", "configmaps")
    assert "patched" in kubectl(config, "patch", "configmap", "a", "--type=json", "-p", '[{"op":"remove","path":"/data/key"}]')
    assert "deleted" in kubectl(config, "delete", "configmap", "a")
    assert "NotFound" in kubectl(config, "get", "configmap", "a", check=False)
    assert "yes" in kubectl(config, "auth", "can-i", "*", "*")


def test_kubectl_knows_what_the_cluster_has(config: Path) -> None:
    assert "configmaps" in kubectl(config, "api-resources")
    assert "KIND" in kubectl(config, "explain", "configmap")
    assert "Server Version" in kubectl(config, "version")
    assert "is running at" in kubectl(config, "cluster-info")


def test_a_watch_follows_and_ends_with_its_client(config: Path, imported: Imported) -> None:
    program = need.programs("kubernetes")["kubectl"]
    watching = subprocess.Popen(
        [str(program), f"--kubeconfig={config}", "get", "configmaps", "--watch-only", "-o", "name"],
        stdout=subprocess.PIPE,
        text=True,
        env={**os.environ, "HOME": str(config.parent)},
    )
    seen: list[str] = []
    assert watching.stdout is not None
    reading = threading.Thread(target=lambda out=watching.stdout: seen.extend(iter(out.readline, "")))
    reading.start()
    try:
        # Until the watch stands, what is made is not seen.
        number = 0
        end = time.monotonic() + 120
        while not seen and time.monotonic() < end:
            number += 1
            kubectl(config, "create", "configmap", f"watched-{number}")
            time.sleep(0.2)
        assert seen and seen[0].startswith("configmap/watched-")
    finally:
        watching.kill()
        watching.wait()
        reading.join(10)


def test_many_objects_are_listed_whole(config: Path, admin: Person, imported: Imported) -> None:
    items = [json.loads(manifest(f"many-{number}", "x" * 20_000)) for number in range(120)]
    listed = json.dumps({"apiVersion": "v1", "kind": "List", "items": items})
    kubectl(config, "create", "-f", "-", input=listed)
    answer = admin.request("GET", imported.path(CONFIGMAPS))
    assert answer.status == 200
    assert sum(item["metadata"]["name"].startswith("many-") for item in answer.json["items"]) == 120
    names = kubectl(config, "get", "configmaps", "--chunk-size=50", "-o", "name").split()
    assert sum(name.startswith("configmap/many-") for name in names) == 120


def test_users_see_only_what_their_permissions_allow(gateway: Gateway, imported: Imported, place: Path) -> None:
    person = gateway.user("rita")
    assert person.request("GET", imported.path("/api/v1/namespaces")).status == 403
    gateway.bind(imported.id, person, "cluster-member")
    until(lambda: person.request("GET", imported.path("/version")).status == 200)
    config = person.kubeconfig(place, imported.id)
    assert gateway.user_id(person) in kubectl(config, "auth", "whoami")
    assert "forbidden" in kubectl(config, "get", "secrets", "-n", "kube-system", check=False)
    assert "forbidden" in kubectl(config, "get", "configmaps", "--as=system:admin", check=False)
    assert "forbidden" in kubectl(config, "get", "configmaps", "--as=x", "--as-group=system:masters", check=False)


def test_the_local_cluster_is_the_management_api_itself(gateway: Gateway, admin: Person) -> None:
    direct = admin.request("GET", "/api/v1/namespaces/default")
    through = admin.request("GET", "/k8s/clusters/local/api/v1/namespaces/default")
    assert through.status == direct.status == 200 and through.json == direct.json
    assert through.headers["content-security-policy"] == "sandbox"


def test_what_is_done_is_in_the_audit_log(gateway: Gateway, admin: Person, imported: Imported) -> None:
    path = imported.path("/api/v1/namespaces/default/secrets/unheard-of")
    admin.request("GET", path, X_Remote_User="root")

    def told() -> bool:
        return any(
            line.get("path") == path and line.get("cluster") == imported.id and "x-remote-user" in line.get("forged", ())
            for line in gateway.audit()
        )

    until(told)


def test_an_agent_that_goes_and_comes_back(admin: Person, imported: Imported) -> None:
    with admin.stream(imported.path(f"{CONFIGMAPS}?watch=true")) as watch:
        imported.agent.kill()
        # The watch is cut, not ended: its client must not think that there is nothing more to come.
        with pytest.raises((http.client.HTTPException, OSError)):
            while watch.read(1):
                pass
    answer = admin.request("GET", imported.path("/api"))
    assert answer.status == 503 and answer.json["message"] == "cluster agent disconnected"
    assert int(answer.headers["retry-after"]) > 0
    imported.agent.start()
    until(lambda: admin.request("GET", imported.path("/api")).status == 200)
