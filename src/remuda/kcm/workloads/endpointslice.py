"""EndpointSlices: the addresses of the pods behind a Service. One slice per Service and family is enough for simulated pods."""

from __future__ import annotations

import ipaddress
from typing import Any, Final

from remuda.kube.builtin_resources import ENDPOINT_SLICES, PODS, SERVICES
from remuda.kube.errors import ApiError
from remuda.kube.objects import Key, dig, is_being_deleted, labels_of, name_of, namespace_of, uid_of
from remuda.kube.owners import reference
from remuda.kube.selectors import LabelSelector, Requirement
from remuda.runtime import DONE, Controller, Manager, Result, Watch, changed, label

from ..disruption_counts import is_ready
from .pods import MANAGER, has_ended

Obj = dict[str, Any]

SERVICE: Final = "kubernetes.io/service-name"
MANAGED_BY: Final = "endpointslice.kubernetes.io/managed-by"
US: Final = "endpointslice-controller.k8s.io"
# The limit of one slice.
_MOST: Final = 1000
_BY_NAMESPACE: Final = "namespace"
_LINK_LOCAL_MULTICAST: Final = ipaddress.ip_network("224.0.0.0/24")


class EndpointSlices:
    def __init__(self, manager: Manager) -> None:
        self._services = manager.informers.of(SERVICES)
        self._pods = manager.informers.of(PODS)
        for informer in (self._services, self._pods):
            informer.add_index(_BY_NAMESPACE, lambda obj: (namespace_of(obj),))
        self._slices = manager.informers.of(ENDPOINT_SLICES, labels=f"{MANAGED_BY}={US}")
        self._client = manager.client
        self._freshness = manager.freshness
        self.controller = Controller(
            "endpointslice",
            SERVICES,
            watches=(
                Watch(PODS, self._of_pod, _visible),
                Watch(ENDPOINT_SLICES, label(SERVICE), labels=f"{MANAGED_BY}={US}"),
            ),
            concurrency=5,
        )

    def _of_pod(self, pod: Obj) -> list[Key]:
        here = self._services.indexed(_BY_NAMESPACE, namespace_of(pod))
        labels = labels_of(pod)
        return [Key.of(each) for each in here if _selects(each, labels)]

    async def reconcile(self, key: Key) -> Result:
        await self._freshness.caught_up(("endpointslice", key))
        service = self._services.get(*key)
        if service is None or is_being_deleted(service) or not dig(service, "spec", "selector"):
            # Slices are owned by their Service and are deleted with it.
            return DONE
        pods = [pod for pod in self._pods.indexed(_BY_NAMESPACE, key.namespace) if _selects(service, labels_of(pod))]
        wanted = _slice(service, sorted(pods, key=Key.of))
        present = [
            each
            for each in self._slices.select(_named(key.name), key.namespace)
            if any(owner.get("uid") == uid_of(service) for owner in each["metadata"].get("ownerReferences") or ())
        ]
        if not present:
            made = await self._client.create(ENDPOINT_SLICES, wanted, key.namespace, field_manager=MANAGER)
            self._freshness.wrote(("endpointslice", key), self._slices, made)
            return DONE
        if all((present[0].get(part) or []) == wanted[part] for part in ("endpoints", "ports")):
            return DONE
        changed = {**present[0], "endpoints": wanted["endpoints"], "ports": wanted["ports"]}
        try:
            made = await self._client.update(ENDPOINT_SLICES, changed, field_manager=MANAGER)
        except ApiError as error:
            if not error.is_not_found:
                raise
            return DONE
        self._freshness.wrote(("endpointslice", key), self._slices, made)
        return DONE


def _named(service: str) -> LabelSelector:
    return LabelSelector((Requirement(SERVICE, "=", (service,)),))


def _selects(service: Obj, labels: dict[str, str]) -> bool:
    selector: dict[str, str] = dig(service, "spec", "selector") or {}
    return bool(selector) and selector.items() <= labels.items()


_visible = changed(labels_of, "status.podIP", is_ready, is_being_deleted, has_ended)


def _slice(service: Obj, pods: list[Obj]) -> Obj:
    name = name_of(service)
    headless = {"service.kubernetes.io/headless": ""} if dig(service, "spec", "clusterIP") == "None" else {}
    return {
        "apiVersion": "discovery.k8s.io/v1",
        "kind": "EndpointSlice",
        "metadata": {
            "generateName": f"{name}-",
            "namespace": namespace_of(service),
            "labels": {**labels_of(service), SERVICE: name, MANAGED_BY: US, **headless},
            "ownerReferences": [reference(service, controller=True)],
        },
        "addressType": "IPv4",
        "endpoints": [_endpoint(pod, service) for pod in pods if _can_be_reached(pod) and not has_ended(pod)][:_MOST],
        "ports": [_port(each, pods) for each in dig(service, "spec", "ports") or ()],
    }


def _can_be_reached(pod: Obj) -> bool:
    """False for pods that only their own host reaches. Simulated hosts have loopback addresses, and pods that are processes, or
    use the host's network, have those of their hosts: no Service can reach them, and the API refuses such endpoints."""
    try:
        address = ipaddress.ip_address(dig(pod, "status", "podIP") or "")
    except ValueError:
        return False
    if address.version != 4 or address.is_unspecified or address.is_loopback:
        return False
    return not (address.is_link_local or address in _LINK_LOCAL_MULTICAST)


def _endpoint(pod: Obj, service: Obj) -> Obj:
    ready, going = is_ready(pod), is_being_deleted(pod)
    open_ = bool(dig(service, "spec", "publishNotReadyAddresses"))
    found: Obj = {
        "addresses": [dig(pod, "status", "podIP")],
        "conditions": {"ready": (ready and not going) or open_, "serving": ready, "terminating": going},
        "targetRef": {"kind": "Pod", "namespace": namespace_of(pod), "name": name_of(pod), "uid": uid_of(pod)},
        "nodeName": dig(pod, "spec", "nodeName"),
    }
    return found


def _port(port: Obj, pods: list[Obj]) -> Obj:
    target = port.get("targetPort") or port["port"]
    number = target if isinstance(target, int) else _named_port(target, pods) or port["port"]
    return {"name": port.get("name") or "", "port": number, "protocol": port.get("protocol") or "TCP"}


def _named_port(name: str, pods: list[Obj]) -> int:
    for pod in pods:
        for container in dig(pod, "spec", "containers") or ():
            for each in container.get("ports") or ():
                if each.get("name") == name:
                    return int(each["containerPort"])
    return 0
