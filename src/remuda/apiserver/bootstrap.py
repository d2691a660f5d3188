"""Bootstrap objects of every Kubernetes: system namespaces, default roles, priority classes, its own service.

Several servers of one store may do this at the same moment. One that was slower reads again, and goes on.
"""

from __future__ import annotations

import asyncio
import ipaddress
from collections.abc import Awaitable, Callable
from typing import Any

from remuda.kube.encoding import jsonio
from remuda.kube.errors import ApiError
from remuda.kube.objects import GroupVersionKind, name_of, namespace_of

from .auth import bootstrap_policy as roles
from .builtin.core.service_addresses import SERVICE_RANGE
from .verbs import create, delete, update
from .verbs.context import MANAGER, Api, Call, DeleteOptions

Obj = dict[str, Any]

# The first address of the range, which kube-apiserver also takes for itself.
_OWN_ADDRESS = str(next(ipaddress.ip_network(SERVICE_RANGE).hosts()))
_TRIES = 8
NAMESPACES = ("default", "kube-node-lease", "kube-public", "kube-system")
_CRITICAL = (
    (
        "system-cluster-critical",
        2_000_000_000,
        "For pods that the cluster can't do without, but that may move between nodes.",
    ),
    ("system-node-critical", 2_000_001_000, "For pods that their node can't do without; nothing is more important."),
)


async def ensure(api: Api, port: int, *, with_roles: bool = True) -> None:
    """Create missing objects. Roles also get back removed rules, unless they opt out. `port` is the server's."""
    for name in NAMESPACES:
        await _ensure(api, {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}})
    for name, value, words in _CRITICAL:
        await _ensure(
            api,
            {
                "apiVersion": "scheduling.k8s.io/v1",
                "kind": "PriorityClass",
                "metadata": {"name": name},
                "value": value,
                "description": words,
            },
        )
    await _ensure_own_service(api, port)
    if not with_roles:
        return
    # All concurrently: they share a few commits instead of one each.
    await asyncio.gather(*(_reconcile_role(api, expected) for expected in roles.desired()))


async def _ensure_own_service(api: Api, port: int) -> None:
    """`kubernetes` in `default`. It has no endpoints: no client could reach a server on loopback through a service address."""
    ports = [{"name": "https", "protocol": "TCP", "port": 443, "targetPort": port}]
    service = {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": {
            "name": "kubernetes",
            "namespace": "default",
            "labels": {"component": "apiserver", "provider": "kubernetes"},
        },
        "spec": {"type": "ClusterIP", "clusterIP": _OWN_ADDRESS, "sessionAffinity": "None", "ports": ports},
    }
    await _ensure(api, service)
    if api.cache.shared:
        # Each server may listen on its own port, and all are equally right.
        return
    entry = api.entry(_call(api, service, "create").version.resource, "default", "kubernetes")
    if entry is not None and entry.object()["spec"].get("ports") != ports:
        changed = jsonio.copy(entry.object())
        changed["spec"]["ports"] = ports
        await update.update(api, _call(api, service, "update"), changed)


def _call(api: Api, obj: Obj, verb: str) -> Call:
    version = api.registry.by_kind(*GroupVersionKind.of(obj))
    assert version is not None
    return Call(version, verb, namespace_of(obj), name_of(obj) if verb == "update" else "", manager=MANAGER, trusted=True)


async def _ensure(api: Api, obj: Obj) -> None:
    call = _call(api, obj, "create")
    resource, namespace, name = call.version.resource, namespace_of(obj), name_of(obj)
    if api.entry(resource, namespace, name) is not None:
        return
    try:
        await create.create(api, call, obj)
    except ApiError:
        # Any error (the name or the address is taken) is harmless if another server has created it.
        await api.cache.consistent()
        if api.entry(resource, namespace, name) is None:
            raise


async def _reconcile_role(api: Api, expected: Obj) -> None:
    await _settled(api, lambda: _reconcile_role_once(api, expected))


async def _reconcile_role_once(api: Api, expected: Obj) -> None:
    resource = _call(api, expected, "create").version.resource
    entry = api.entry(resource, namespace_of(expected), name_of(expected))
    found = roles.reconcile(None if entry is None else entry.object(), expected)
    match found.operation:
        case roles.Operation.CREATE:
            await _ensure(api, found.obj)
        case roles.Operation.UPDATE:
            await update.update(api, _call(api, expected, "update"), jsonio.copy(found.obj))
        case roles.Operation.RECREATE:
            await delete.delete(api, _call(api, expected, "update"), DeleteOptions())
            await _ensure(api, found.obj)


async def _settled(api: Api, attempt: Callable[[], Awaitable[None]]) -> None:
    """Try again when another server has changed or removed the object meanwhile; that ends, since all want the same."""
    for left in reversed(range(_TRIES)):
        try:
            await attempt()
            return
        except ApiError as error:
            if not left or not (error.is_conflict or error.is_not_found or error.is_already_exists):
                raise
        await api.cache.consistent()
