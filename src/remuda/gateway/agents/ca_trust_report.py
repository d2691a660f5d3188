"""The known clients that have to trust the server's CA: hosts and cluster agents (the port `Followers` of
:mod:`remuda.apiserver.keys.ca_followers`).

Read from the API on request, at any server: a host reports the CAs that it trusts in its plan's Secret, a cluster agent when it
connects (:mod:`.tunnels` stores that). Clients that are told of another CA than ours need not trust ours.
"""

from __future__ import annotations

import base64
import binascii
from collections.abc import AsyncIterator, Mapping
from typing import Any, Final, NamedTuple

from remuda.access.health.cluster_conditions import CONNECTED
from remuda.access.rancher_conditions import condition_of
from remuda.access.settings.settings import Settings
from remuda.api import cluster_x_k8s_io as capi
from remuda.api import rke_cattle_io as rke
from remuda.api.management_cattle_io import CLUSTERS, SETTINGS
from remuda.apiserver.keys.ca_followers import NO_REPORT, Follower
from remuda.client.idempotent import find
from remuda.client.interface import Client
from remuda.kube.builtin_resources import SECRETS
from remuda.kube.conditions import get
from remuda.kube.errors import ApiError
from remuda.kube.objects import GroupVersionResource, Key, dig, is_being_deleted, name_of, namespace_of
from remuda.provisioning.machine_caches import PLAN_FIELDS
from remuda.provisioning.plans import agent_report, machine_plan_secret
from remuda.provisioning.well_known import plan_name

from .credential_store import CREDENTIALS_NAMESPACE, trusts_in

Obj = dict[str, Any]

HOST: Final = "host"
CLUSTER_AGENT: Final = "cluster agent"
NOT_REGISTERED: Final = "has not registered yet, and its install script may know only the old CA"
_PAGE = 200


class KnownClients:
    """`is_given`: the server's certificate is signed by others. `environment` may contain settings."""

    def __init__(self, client: Client, is_given: bool = False, environment: Mapping[str, str] | None = None) -> None:
        self._client = client
        self._is_given = is_given
        self._environment = environment or {}

    async def all(self) -> list[Follower]:
        if self._is_given or await self._is_set():
            return []
        return [*await self._hosts(), *await self._cluster_agents()]

    async def _is_set(self) -> bool:
        """Tells whether an administrator has set the CA that clients are to trust."""
        found = await find(self._client, SETTINGS, "cacerts")
        return bool(Settings([found] if found is not None else [], self._environment).text("cacerts"))

    async def _hosts(self) -> list[Follower]:
        machines = {_bootstrap_of(each): each async for each in self._all(capi.MACHINES)}
        reports = {Key.of(each): _report(each) async for each in self._all(SECRETS, fields=PLAN_FIELDS)}
        found = []
        async for bootstrap in self._all(rke.RKE_BOOTSTRAPS):
            machine = machines.get(Key.of(bootstrap)) or {}
            if is_being_deleted(bootstrap) or is_being_deleted(machine):
                continue
            report = reports.get(Key(namespace_of(bootstrap), plan_name(name_of(bootstrap)))) or _Report()
            found.append(_host(bootstrap, machine, report))
        return found

    async def _cluster_agents(self) -> list[Follower]:
        said = {name_of(each): trusts_in(each) async for each in self._all(SECRETS, CREDENTIALS_NAMESPACE)}
        clusters = [each async for each in self._all(CLUSTERS) if not dig(each, "spec", "internal")]
        return [
            Follower(
                kind=CLUSTER_AGENT,
                name=name_of(each),
                cluster=name_of(each),
                trusts=said.get(secret),
                silent_since=_since(condition_of(each, CONNECTED)),
            )
            for each in clusters
            # A cluster without any agent connection so far has no agent to lose.
            if not is_being_deleted(each) and (secret := str(dig(each, "status", "serviceAccountTokenSecret") or ""))
        ]

    async def _all(self, resource: GroupVersionResource, namespace: str = "", fields: str = "") -> AsyncIterator[Obj]:
        """Lists page by page, since plans are large. Empty where the kind is not served."""
        more = ""
        while True:
            try:
                page = await self._client.list(resource, namespace, fields=fields, limit=_PAGE, continue_=more)
            except ApiError as error:
                if error.code == 404:
                    return
                raise
            for each in page["items"]:
                yield each
            more = str(dig(page, "metadata", "continue") or "")
            if not more:
                return


class _Report(NamedTuple):
    """A host's report in its plan's Secret, without the plan."""

    trusts: tuple[str, ...] | None = None
    answered: bool = False


def _report(secret: Obj) -> _Report:
    try:
        said = base64.b64decode(dig(secret, "data", "agent") or "", validate=True)
    except (binascii.Error, ValueError, TypeError):
        said = b""
    return _Report(agent_report.trusts(said), machine_plan_secret.is_in_use(secret))


def _host(bootstrap: Obj, machine: Obj, report: _Report) -> Follower:
    return Follower(
        kind=HOST,
        name=f"{namespace_of(bootstrap)}/{dig(machine, 'metadata', 'name') or name_of(bootstrap)}",
        cluster=str(dig(bootstrap, "spec", "clusterName") or dig(machine, "spec", "clusterName") or ""),
        trusts=report.trusts,
        why=NO_REPORT if report.answered else NOT_REGISTERED,
        silent_since=_since(get(machine, "NodeHealthy")),
    )


def _bootstrap_of(machine: Obj) -> Key:
    return Key(namespace_of(machine), str(dig(machine, "spec", "bootstrap", "configRef", "name") or ""))


def _since(condition: Obj | None) -> str:
    """The time since which a condition is not true; empty while it is true, and when the time is unknown."""
    if condition is None or condition.get("status") == "True":
        return ""
    return str(condition.get("lastTransitionTime") or "")
