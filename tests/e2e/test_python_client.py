"""The official `kubernetes` client for Python against Remuda: reads and writes, watches, patches, apply, leader election."""

from __future__ import annotations

import threading
import time
import uuid
from collections.abc import Callable, Iterator
from typing import Any

import pytest

kubernetes = pytest.importorskip("kubernetes")

from kubernetes import client, config, dynamic, watch  # noqa: E402
from kubernetes.client.rest import ApiException  # noqa: E402
from kubernetes.leaderelection import electionconfig, leaderelection  # noqa: E402
from kubernetes.leaderelection.resourcelock.configmaplock import ConfigMapLock  # noqa: E402

from .serving import Served, eventually  # noqa: E402

pytestmark = pytest.mark.filterwarnings("ignore")


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    started = Served(tmp_path_factory.mktemp("python-client") / "data")
    started.start()
    try:
        yield started
        assert started.stop() == 0, started.told()
        assert started.tracebacks() == [], started.told()
    finally:
        started.end()


@pytest.fixture
def api(served: Served) -> Iterator[Any]:
    made = config.new_client_from_config(str(served.kubeconfig))
    yield made
    made.close()


@pytest.fixture
def core(api: Any) -> Any:
    return client.CoreV1Api(api)


@pytest.fixture
def ns(core: Any) -> str:
    name = f"py-{uuid.uuid4().hex[:8]}"
    core.create_namespace(client.V1Namespace(metadata=client.V1ObjectMeta(name=name)))
    eventually(lambda: any(each.metadata.name == "kube-root-ca.crt" for each in core.list_namespaced_config_map(name).items))
    return name


def config_map(name: str, **data: str) -> Any:
    return client.V1ConfigMap(metadata=client.V1ObjectMeta(name=name), data=data)


def deployment(name: str) -> dict[str, Any]:
    labels = {"app": name}
    containers = [{"name": "main", "image": "example/image:1"}]
    return {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {"name": name},
        "spec": {
            "replicas": 1,
            "selector": {"matchLabels": labels},
            "template": {"metadata": {"labels": labels}, "spec": {"containers": containers}},
        },
    }


@pytest.mark.story
def test_typed_reads_and_writes(core: Any, ns: str) -> None:
    made = core.create_namespaced_config_map(ns, config_map("one", a="1"))
    made.data["b"] = "2"
    assert core.replace_namespaced_config_map("one", ns, made).data == {"a": "1", "b": "2"}
    with pytest.raises(ApiException) as caught:
        core.replace_namespaced_config_map("one", ns, made)
    assert (caught.value.status, "the object has been modified" in caught.value.body) == (409, True)
    with pytest.raises(ApiException) as caught:
        core.create_namespaced_config_map(ns, config_map("one"))
    assert caught.value.status == 409
    core.delete_namespaced_config_map("one", ns, propagation_policy="Background")
    with pytest.raises(ApiException) as caught:
        core.read_namespaced_config_map("one", ns)
    assert caught.value.status == 404


def test_typed_answers_of_the_other_groups(api: Any, ns: str) -> None:
    apps = client.AppsV1Api(api)
    apps.create_namespaced_deployment(ns, deployment("app"))
    scale = apps.read_namespaced_deployment_scale("app", ns)
    scale.spec.replicas = 3
    assert apps.replace_namespaced_deployment_scale("app", ns, scale).spec.replicas == 3
    assert client.VersionApi(api).get_code().minor == "36"
    assert "apps" in [group.name for group in client.ApisApi(api).get_api_versions().groups]
    review = client.V1SelfSubjectAccessReview(
        spec=client.V1SelfSubjectAccessReviewSpec(resource_attributes=client.V1ResourceAttributes(verb="get", resource="pods"))
    )
    assert client.AuthorizationV1Api(api).create_self_subject_access_review(review).status.allowed
    secret = client.V1Secret(metadata=client.V1ObjectMeta(name="s"), string_data={"a": "b"})
    assert client.CoreV1Api(api).create_namespaced_secret(ns, secret).data == {"a": "Yg=="}


def test_lists_in_pages(core: Any, ns: str) -> None:
    for number in range(5):
        core.create_namespaced_config_map(ns, config_map(f"m{number}"))
    seen, token = [], None
    while True:
        page = core.list_namespaced_config_map(ns, limit=2, _continue=token)
        seen += [item.metadata.name for item in page.items]
        token = page.metadata._continue
        if not token:
            break
    assert seen == ["kube-root-ca.crt", *(f"m{number}" for number in range(5))]


def test_a_watch_sees_everything_and_resumes_where_it_stopped(core: Any, ns: str) -> None:
    start = core.list_namespaced_config_map(ns).metadata.resource_version
    core.create_namespaced_config_map(ns, config_map("one", a="1"))
    core.patch_namespaced_config_map("one", ns, {"data": {"a": "2"}})
    watching = watch.Watch()
    seen = []
    for event in watching.stream(core.list_namespaced_config_map, ns, resource_version=start, timeout_seconds=60):
        seen.append((event["type"], event["object"].data))
        if len(seen) == 2:
            watching.stop()
    assert seen == [("ADDED", {"a": "1"}), ("MODIFIED", {"a": "2"})]
    core.delete_namespaced_config_map("one", ns)
    core.create_namespaced_config_map(ns, config_map("two"))
    again = watch.Watch()
    resumed = []
    stream = again.stream(core.list_namespaced_config_map, ns, resource_version=watching.resource_version, timeout_seconds=60)
    for event in stream:
        resumed.append((event["type"], event["object"].metadata.name))
        if len(resumed) == 2:
            again.stop()
    assert resumed == [("DELETED", "one"), ("ADDED", "two")]


def test_a_watch_survives_its_own_end(core: Any, ns: str) -> None:
    """Without timeout_seconds the client asks again when the server ends a watch; with bookmarks it goes on from there."""
    seen: list[str] = []
    watching = watch.Watch()
    ready = threading.Event()

    def follow() -> None:
        for event in watching.stream(core.list_namespaced_config_map, ns, allow_watch_bookmarks=True, _request_timeout=90):
            if event["type"] != "BOOKMARK":
                seen.append(event["object"].metadata.name)
            ready.set()
            if "last" in seen:
                watching.stop()

    thread = threading.Thread(target=follow, daemon=True)
    thread.start()
    assert ready.wait(90)
    core.create_namespaced_config_map(ns, config_map("last"))
    thread.join(90)
    assert not thread.is_alive()
    assert seen == ["kube-root-ca.crt", "last"]


def test_the_merging_patches(core: Any, api: Any, ns: str) -> None:
    core.create_namespaced_config_map(ns, config_map("one", a="1", b="2"))
    merge = {"data": {"a": None, "c": "3"}}
    patched = core.patch_namespaced_config_map("one", ns, merge, _content_type="application/merge-patch+json")
    assert patched.data == {"b": "2", "c": "3"}
    steps = [{"op": "test", "path": "/data/b", "value": "2"}, {"op": "remove", "path": "/data/b"}]
    patched = core.patch_namespaced_config_map("one", ns, steps, _content_type="application/json-patch+json")
    assert patched.data == {"c": "3"}
    apps = client.AppsV1Api(api)
    apps.create_namespaced_deployment(ns, deployment("app"))
    side = {"spec": {"template": {"spec": {"containers": [{"name": "side", "image": "example/side:1"}]}}}}
    strategic = "application/strategic-merge-patch+json"
    found = apps.patch_namespaced_deployment("app", ns, side, _content_type=strategic)
    assert sorted(each.name for each in found.spec.template.spec.containers) == ["main", "side"]


def test_server_side_apply_and_its_conflicts(core: Any, ns: str) -> None:
    def apply(manager: str, force: bool = False, **data: str) -> Any:
        body = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "applied"}, "data": data}
        kind = "application/apply-patch+yaml"
        return core.patch_namespaced_config_map("applied", ns, body, field_manager=manager, force=force, _content_type=kind)

    assert apply("alice", a="1").data == {"a": "1"}
    with pytest.raises(ApiException) as caught:
        apply("bob", a="2")
    assert caught.value.status == 409
    assert 'conflict with \\"alice\\"' in caught.value.body
    assert apply("bob", force=True, a="2").data == {"a": "2"}
    assert apply("alice", b="3").data == {"a": "2", "b": "3"}


@pytest.mark.story
def test_custom_resources_and_the_dynamic_client(api: Any, ns: str) -> None:
    plural = f"things{uuid.uuid4().hex[:6]}"
    schema = {"type": "object", "properties": {"spec": {"type": "object", "properties": {"size": {"type": "integer"}}}}}
    definition = {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": f"{plural}.example.com"},
        "spec": {
            "group": "example.com",
            "scope": "Namespaced",
            "names": {"plural": plural, "kind": plural.capitalize()},
            "versions": [{"name": "v1", "served": True, "storage": True, "schema": {"openAPIV3Schema": schema}}],
        },
    }
    client.ApiextensionsV1Api(api).create_custom_resource_definition(definition)
    custom = client.CustomObjectsApi(api)
    thing = {"apiVersion": "example.com/v1", "kind": plural.capitalize(), "metadata": {"name": "one"}, "spec": {"size": 1}}

    def made() -> bool:
        try:
            custom.create_namespaced_custom_object("example.com", "v1", ns, plural, thing)
        except ApiException as error:
            assert error.status == 404
            return False
        return True

    eventually(made)
    found = dynamic.DynamicClient(api).resources.get(api_version="example.com/v1", kind=plural.capitalize())
    assert found.get(name="one", namespace=ns).spec.size == 1
    applied = {**thing, "spec": {"size": 2}}
    assert found.server_side_apply(body=applied, namespace=ns, field_manager="dyn", force_conflicts=True).spec.size == 2
    events = found.watch(namespace=ns, timeout=60)
    assert next(iter(events))["raw_object"]["spec"] == {"size": 2}


class Candidate:
    """Somebody who wants to lead, with a client of their own."""

    def __init__(self, served: Served, ns: str, name: str, led: list[str]) -> None:
        config.load_kube_config(str(served.kubeconfig))
        self.name = name
        self.leading = threading.Event()
        self._let_go = threading.Event()
        self._led = led
        settings = electionconfig.Config(
            ConfigMapLock("the-lock", ns, name),
            # Long enough for who has to wait for a processor, too.
            lease_duration=12,
            renew_deadline=11,
            retry_period=1,
            onstarted_leading=self._lead,
            onstopped_leading=None,
        )
        self.thread = threading.Thread(target=self._run, args=(settings,), daemon=True)
        self.thread.start()

    def _run(self, settings: Any) -> None:
        election = leaderelection.LeaderElection(settings)
        renew = election.try_acquire_or_renew
        # The client has no way to resign: it stops to lead when it can't renew its lease.
        election.try_acquire_or_renew = lambda: False if self._let_go.is_set() else renew()
        election.run()

    def _lead(self) -> None:
        self._led.append(self.name)
        self.leading.set()

    def resign(self) -> None:
        self._let_go.set()


def _within(seconds: float, true: Callable[[], bool]) -> bool:
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        if true():
            return True
        time.sleep(0.05)
    return False


def test_leader_election(served: Served, ns: str) -> None:
    led: list[str] = []
    first = Candidate(served, ns, "first", led)
    assert first.leading.wait(90)
    second = Candidate(served, ns, "second", led)
    # Longer than a lease: the first renews, so the second waits.
    assert not second.leading.wait(13)
    assert led == ["first"]
    first.resign()
    assert _within(90, second.leading.is_set)
    assert led == ["first", "second"]
    first.thread.join(90)
    second.resign()
    second.thread.join(90)
    assert not first.thread.is_alive() and not second.thread.is_alive()
