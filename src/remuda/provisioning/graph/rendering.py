"""The whole graph of one cluster (capr.md §3)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from remuda.kube.objects import Key, dig

from . import podsecurity
from .cluster_objects import beacon, capi_cluster, control_plane, infrastructure_of, rke_cluster
from .generated import Generated, Unrenderable
from .machine_pools import pool_objects

Obj = dict[str, Any]


def graph_of(wanted: Obj, managed: str, configs: Mapping[str, Obj] | None = None, template: Obj | None = None) -> list[Generated]:
    """All objects, in the order in which they are written: what refers to others comes after them.

    `managed` is the id of the cluster; `configs` are the machine configs of those pools that have one
    (:func:`.machine_pools.has_config`), by pool name; `template` is the one for pod security that it names
    (:func:`.podsecurity.template_of`). Raises :class:`Unrenderable`.
    """
    if not dig(wanted, "spec", "kubernetesVersion"):
        raise Unrenderable(f"spec.kubernetesVersion: must be set for cluster {Key.of(wanted)}, since its machines are to be made")
    infrastructure = infrastructure_of(wanted)
    own = rke_cluster(wanted)
    admission = None if template is None else podsecurity.content(template, wanted["spec"]["kubernetesVersion"])
    secrets = [] if admission is None else [podsecurity.secret(wanted, admission)]
    every = [*secrets, control_plane(wanted, managed, admission), capi_cluster(wanted), beacon(wanted)]
    return [*([own] if own is not None else []), *every, *pool_objects(wanted, infrastructure, configs or {})]
