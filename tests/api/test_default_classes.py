"""Classes that objects get when they name none, and what classes allow: storage, ingress, runtime."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from . import recording
from .builders import PODS, pod, with_meta
from .harness import Pair
from .test_storage_protection import CLAIMS, claim

Obj = dict[str, Any]

STORAGE_CLASSES = "/apis/storage.k8s.io/v1/storageclasses"
INGRESS_CLASSES = "/apis/networking.k8s.io/v1/ingressclasses"
INGRESSES = "/apis/networking.k8s.io/v1/namespaces/{ns}/ingresses"
DEFAULT_STORAGE, DEFAULT_INGRESS = "storageclass.kubernetes.io/is-default-class", "ingressclass.kubernetes.io/is-default-class"


def storage_class(name: str, *, default: str = DEFAULT_STORAGE, **fields: Any) -> Obj:
    meta = {"name": name, "annotations": {default: "true"} if default else {}}
    return {"apiVersion": "storage.k8s.io/v1", "kind": "StorageClass", "metadata": meta, "provisioner": "example.com/p", **fields}


def ingress_class(name: str) -> Obj:
    meta = {"name": name, "annotations": {DEFAULT_INGRESS: "true"}}
    spec = {"controller": "example.com/c"}
    return {"apiVersion": "networking.k8s.io/v1", "kind": "IngressClass", "metadata": meta, "spec": spec}


def ingress(name: str, **spec: Any) -> Obj:
    backend = {"service": {"name": "s", "port": {"number": 80}}}
    meta = {"name": name}
    return {
        "apiVersion": "networking.k8s.io/v1",
        "kind": "Ingress",
        "metadata": meta,
        "spec": {"defaultBackend": backend, **spec},
    }


def classless(name: str) -> Obj:
    body = claim(name)
    del body["spec"]["storageClassName"]
    return body


@contextmanager
def existing(pair: Pair, path: str, *bodies: Obj) -> Iterator[None]:
    """Classes are of a whole cluster, so no test may leave a default one behind."""
    for body in bodies:
        assert pair.post(path, body).status == 201
    try:
        yield
    finally:
        for body in bodies:
            pair.delete(f"{path}/{body['metadata']['name']}", compare=False)


def assigned(pair: Pair, path: str, body: Obj, field: str, name: str) -> None:
    """The real server assigns classes out of a cache that follows."""
    for attempt in recording.attempts(f"{name} is assigned"):
        found = pair.post(f"{path}?dryRun=All", body, compare=False)
        values = [side.json["spec"].get(field) for side in (found.ours, found.real)]
        attempt.saw(values)
        if values == [name, name]:
            return


def test_a_claim_gets_the_default_class(pair: Pair) -> None:
    pair.post(f"{CLAIMS}?dryRun=All", classless("before"))
    with existing(pair, STORAGE_CLASSES, storage_class(f"{pair.ns}-a"), storage_class(f"{pair.ns}-no", default="")):
        assigned(pair, CLAIMS, classless("c"), "storageClassName", f"{pair.ns}-a")
        pair.post(CLAIMS, classless("c"))
        pair.post(CLAIMS, claim("named"))
        pair.post(CLAIMS, {**claim("none"), "spec": {**claim("none")["spec"], "storageClassName": ""}})
        pair.post(CLAIMS, with_meta(classless("old"), annotations={"volume.beta.kubernetes.io/storage-class": "x"}))
        for name in ("c", "named", "none", "old"):
            pair.delete(f"{CLAIMS}/{name}", compare=False)


def test_the_older_mark_of_a_default_class(pair: Pair) -> None:
    mark = "storageclass.beta.kubernetes.io/is-default-class"
    with existing(pair, STORAGE_CLASSES, storage_class(f"{pair.ns}-b", default=mark)):
        assigned(pair, CLAIMS, classless("c"), "storageClassName", f"{pair.ns}-b")
        pair.post(f"{CLAIMS}?dryRun=All", classless("c"))


def test_an_ingress_gets_the_default_class(pair: Pair) -> None:
    pair.post(f"{INGRESSES}?dryRun=All", ingress("before"))
    with existing(pair, INGRESS_CLASSES, ingress_class(f"{pair.ns}-a")):
        assigned(pair, INGRESSES, ingress("i"), "ingressClassName", f"{pair.ns}-a")
        pair.post(INGRESSES, ingress("i"))
        pair.post(INGRESSES, ingress("named", ingressClassName="other"))
        pair.post(INGRESSES, with_meta(ingress("old"), annotations={"kubernetes.io/ingress.class": "x"}))


@pytest.mark.parametrize("growing", [True, False, None])
def test_a_claim_grows_only_when_its_class_allows_it(pair: Pair, growing: bool | None) -> None:
    fields = {} if growing is None else {"allowVolumeExpansion": growing}
    name = f"{pair.ns}-g"
    with existing(pair, STORAGE_CLASSES, storage_class(name, default="", **fields)):
        body = claim("c")
        body["spec"] |= {"storageClassName": name, "volumeName": f"{pair.ns}-v"}
        pair.post(CLAIMS, body)
        larger = {"spec": {"resources": {"requests": {"storage": "2Gi"}}}}
        pair.patch(f"{CLAIMS}/c", larger)
        # The real controller finds no volume of this name: the claim stays as it is until then.
        status = {"status": {"phase": "Bound", "capacity": {"storage": "1Gi"}, "accessModes": ["ReadWriteOnce"]}}
        pair.patch(f"{CLAIMS}/c/status", status)
        pair.patch(f"{CLAIMS}/c?dryRun=All", larger)
        pair.patch(f"{CLAIMS}/c?dryRun=All", {"metadata": {"labels": {"a": "b"}}})
        pair.delete(f"{CLAIMS}/c", compare=False)


def test_runtime_classes_that_do_not_exist(pair: Pair) -> None:
    pair.post(PODS, pod("p", runtimeClassName="gvisor"))
    pair.post(PODS, pod("p", overhead={"cpu": "1"}))
