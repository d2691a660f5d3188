"""A client library through the proxy, with nothing but the kubeconfig that the gateway gives out: the official one for Python."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

kubernetes = pytest.importorskip("kubernetes")

from kubernetes import client, config, dynamic, watch  # noqa: E402
from kubernetes.client.rest import ApiException  # noqa: E402

from .harness import Gateway, Imported, until  # noqa: E402

pytestmark = [pytest.mark.filterwarnings("ignore"), pytest.mark.timeout(300)]


@pytest.fixture(scope="module")
def api(gateway: Gateway, imported: Imported, place: Path) -> Iterator[Any]:
    imported.cluster.until("Ready", "True")
    owner = gateway.user("library")
    gateway.bind(imported.id, owner)
    made = config.new_client_from_config(str(owner.kubeconfig(place, imported.id)))
    core = client.CoreV1Api(made)

    def may() -> bool:
        try:
            core.list_namespaced_config_map("default")
        except ApiException as error:
            if error.status in (403, 503):
                return False
            raise
        return True

    until(may, 120, "the owner may do nothing")
    yield made
    made.close()


def test_it_reads_writes_and_watches(api: Any) -> None:
    core = client.CoreV1Api(api)
    core.create_namespaced_config_map("default", client.V1ConfigMap(metadata=client.V1ObjectMeta(name="lib"), data={"n": "0"}))
    told: list[tuple[str, str]] = []
    begun = threading.Event()

    def follow() -> None:
        fields = "metadata.name=lib"
        for event in watch.Watch().stream(core.list_namespaced_config_map, "default", field_selector=fields, timeout_seconds=240):
            told.append((event["type"], event["object"].data["n"]))
            begun.set()
            if event["type"] == "DELETED":
                return

    thread = threading.Thread(target=follow)
    thread.start()
    assert begun.wait(120)
    core.patch_namespaced_config_map("lib", "default", {"data": {"n": "1"}})
    until(lambda: ("MODIFIED", "1") in told, 120)
    kind = dynamic.DynamicClient(api).resources.get(api_version="v1", kind="ConfigMap")
    body = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "lib", "namespace": "default"}, "data": {"n": "2"}}
    kind.server_side_apply(body, namespace="default", name="lib", field_manager="lib", force_conflicts=True)
    assert core.read_namespaced_config_map("lib", "default").data == {"n": "2"}
    core.delete_namespaced_config_map("lib", "default")
    thread.join(120)
    assert not thread.is_alive()
    assert told == [("ADDED", "0"), ("MODIFIED", "1"), ("MODIFIED", "2"), ("DELETED", "2")]


def test_its_errors_are_the_clusters_own(api: Any) -> None:
    core = client.CoreV1Api(api)
    with pytest.raises(ApiException) as missing:
        core.read_namespaced_config_map("nothing", "default")
    assert (missing.value.status, '"reason":"NotFound"' in missing.value.body.replace(" ", "")) == (404, True)
    with pytest.raises(ApiException) as twice:
        core.create_namespace(client.V1Namespace(metadata=client.V1ObjectMeta(name="default")))
    assert twice.value.status == 409
