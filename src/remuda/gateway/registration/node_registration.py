"""`/v3/connect/agent`: hosts register and get access to their plan; and two small queries for hosts
(docs/reference/registration.md).

Two kinds of tokens are accepted. The one in a machine's install script is for that machine and one host. A cluster's `node-token`
is for new hosts, which become machines of that cluster. Both give the same answer again until the host has used it; from then on
the host must also send the token of its plan (:mod:`remuda.provisioning.nodes.host_identity` judges). The result gives access to
the host's own plan and nothing else; a token that opens a tunnel (:mod:`..agents.tunnels`) registers no host.
:mod:`remuda.provisioning.nodes.host_registration` does the work, here is its HTTP.
"""

from __future__ import annotations

import base64
import re
from typing import Any, Final

from aiohttp import web

from remuda.api import rke_cattle_io as rke
from remuda.apiserver.limits.caller_caps import ConnectionCaps, network_of
from remuda.client.idempotent import find
from remuda.kube.builtin_resources import SECRETS
from remuda.kube.clock import Clock, deadline
from remuda.kube.encoding import gojson
from remuda.kube.errors import ApiError, bad_request, forbidden, not_found, too_many_requests, unauthorized, unavailable
from remuda.kube.names import label_value_problems
from remuda.kube.objects import dig, labels_of, name_of, namespace_of
from remuda.provisioning import host_layout as layouts
from remuda.provisioning.cluster.mirror_caches import MirrorCaches as Clusters
from remuda.provisioning.host_layout import Layout
from remuda.provisioning.nodes.host_registration import (
    HostRegistrations,
    PlanAccess,
    RegistrationBusy,
    RegistrationQueue,
    RegistrationRefused,
    UnknownToken,
)
from remuda.provisioning.plans import machine_plan_secret
from remuda.provisioning.plans.plan import PlanError
from remuda.provisioning.well_known import MACHINE_ID, plan_name

from ..auth.authenticator import NotLetIn
from ..server import norman
from ..server.dependencies import Services
from ..server.rate_limit import Buckets
from ..server.routing import Access, RequestContext
from ..server.serving_certificate import ca_text
from .registration_tokens import Registrations

Obj = dict[str, Any]

WAIT_SECONDS: Final = 120.0
AGAIN_SECONDS: Final = 5
# The fields that are stored of a host's request; its plan token is not.
SAID: Final = (
    "id",
    "role-etcd",
    "role-control-plane",
    "role-worker",
    "node-name",
    "address",
    "internal-address",
    "labels",
    "taints",
    "layout",
)
PLAN_TOKEN: Final = "X-Cattle-Plan-Token"
_LARGEST = 64 << 10
_LOOK_SECONDS = 0.25
_TRIES = 5
# Hosts that wait at the same time, by cluster and in all; new ones in a row.
_WAITING_EACH, _WAITING = 256, 4096
_BURST, _PER_SECOND = 500, 5.0
_CONFIG = "/config.yaml.d/50-rancher.yaml"


class Joining:
    def __init__(self, services: Services, registrations: Registrations, hosts: HostRegistrations, wrong: WrongTokens) -> None:
        self._services = services
        self._clock = services.clock
        self._registrations = registrations
        self._hosts = hosts
        self._wrong = wrong
        self._newcomers = RegistrationQueue(services.client, services.informers)
        self._clusters = Clusters(services.informers)
        self._waiting = ConnectionCaps(_WAITING_EACH, _WAITING)
        self._paces = Buckets(services.clock, _BURST, _PER_SECOND)
        add = services.routes.add
        add("GET", "/v3/connect/agent", self.agent, Access.PUBLIC, largest=0)
        add("GET", "/v3/connect/config-yaml", self.config_yaml, Access.PUBLIC, largest=0)
        add("GET", "/v3/connect/cluster-info", self.cluster_info, Access.PUBLIC, largest=0)

    # --- registration ----------------------------------------------------------------------------------------------------

    async def agent(self, asked: RequestContext) -> web.StreamResponse:
        machine_id, token = machine_id_of(asked), bearer_of(asked)
        self._wrong.check(asked)
        if not self._registrations.informer.synced.is_set():
            raise unavailable("not ready yet, please try again", AGAIN_SECONDS)
        try:
            async with deadline(self._clock, WAIT_SECONDS):
                machine = await self._machine(asked, token, machine_id)
                access = await self._plan_access(machine)
        except TimeoutError:
            raise unavailable("the machine of this host is not created yet: try again", AGAIN_SECONDS) from None
        except RegistrationBusy as error:
            raise unavailable(str(error), AGAIN_SECONDS) from None
        return self._connection(asked, access)

    async def _machine(self, asked: RequestContext, token: str, machine_id: str) -> Obj:
        registration = self._registrations.cluster_of(token)
        if registration is None:
            return await self._awaited(asked, token, machine_id)
        asked.cluster = registration.cluster
        if not registration.is_node_token:
            asked.why = "a token that opens a tunnel can't register a host"
            raise unauthorized("this is the cluster's own token: hosts register with that of node-token")
        return await self._newcomer(asked, registration.cluster, machine_id)

    async def _awaited(self, asked: RequestContext, token: str, machine_id: str) -> Obj:
        """Registers a host for an existing machine, by the token in its install script."""
        layout = _layout_of(asked)
        known_as = await self._known_as(asked, machine_id)
        for attempt in range(_TRIES):
            try:
                machine = await self._hosts.by_bootstrap_token(token, machine_id, known_as)
                if layout is not None:
                    await self._hosts.settle(machine, layout)
                return machine
            except UnknownToken:
                raise self._wrong.refuse(asked, "this server did not issue this token") from None
            except RegistrationRefused as error:
                raise unauthorized(str(error)) from None
            except ApiError as error:
                # There was a concurrent write; decide again on its result.
                if not error.is_conflict or attempt == _TRIES - 1:
                    raise
        raise AssertionError("unreachable")

    async def _newcomer(self, asked: RequestContext, cluster: str, machine_id: str) -> Obj:
        said = _said(asked)
        known_as = await self._known_as(asked, machine_id)
        seat = self._waiting.enter(cluster)
        if seat is None or not self._paces.take(cluster):
            if seat is not None:
                seat.leave()
            raise too_many_requests("too many hosts register with this cluster at once: try again", AGAIN_SECONDS)
        with seat:
            try:
                return await self._newcomers.admitted(cluster, said, known_as)
            except RegistrationRefused as error:
                raise forbidden("", "", "", str(error)) from None

    async def _known_as(self, asked: RequestContext, machine_id: str) -> Obj | None:
        """The Machine whose plan token the host sent, if it is the host's own."""
        shown = asked.request.headers.getall(PLAN_TOKEN, [])
        if len(shown) != 1:
            return None
        machine = await self._hosts.of_plan_token(shown[0])
        return machine if machine is not None and labels_of(machine).get(MACHINE_ID) == machine_id else None

    async def _plan_access(self, machine: Obj) -> PlanAccess:
        """Waits until there is access to the plan: account and token are being made."""
        while True:
            try:
                access = await self._hosts.plan_access(machine)
            except RegistrationRefused as error:
                raise forbidden("", "", "", str(error)) from None
            except ApiError as error:
                if not error.is_conflict:
                    raise
                access = None
            if access is not None:
                return access
            await self._clock.sleep(_LOOK_SECONDS)

    def _connection(self, asked: RequestContext, access: PlanAccess) -> web.Response:
        settings = self._services.settings()
        ca = ca_text(settings.text("cacerts") or self._services.authority.ca)
        told = {
            "kubeConfig": kubeconfig(norman.base_url(asked, self._services), ca, access.token),
            "namespace": access.namespace,
            "secretName": access.secret_name,
        }
        return _answer(gojson.dumps_indented(told))

    # --- queries ---------------------------------------------------------------------------------------------------------

    async def config_yaml(self, asked: RequestContext) -> web.StreamResponse:
        """The distribution's configuration in a host's plan, for callers with the plan's token: the plan contains it anyway."""
        machine_id, token = machine_id_of(asked), bearer_of(asked)
        self._wrong.check(asked)
        machine = await self._hosts.of_plan_token(token)
        if machine is None or labels_of(machine).get(MACHINE_ID) != machine_id:
            raise self._wrong.refuse(asked, "this token does not belong to the plan of this host")
        name = plan_name(dig(machine, "spec", "bootstrap", "configRef", "name") or "")
        secret = await find(self._services.client, SECRETS, name, namespace_of(machine))
        content = _config_in(secret) if secret is not None else None
        if content is None:
            raise not_found("", "secrets", name)
        return _answer(content)

    async def cluster_info(self, asked: RequestContext) -> web.StreamResponse:
        """The Kubernetes version of a cluster, for its hosts."""
        machine_id_of(asked)
        token = bearer_of(asked)
        self._wrong.check(asked)
        fields = {value.strip().lower() for value in asked.request.headers.getall(f"{PREFIX}Field", [])}
        version = await self._version(asked, token)
        if fields != {"kubernetesversion"}:
            raise bad_request("X-Cattle-Field must be kubernetesversion")
        return _answer(gojson.dumps({"kubernetesversion": version}))

    async def _version(self, asked: RequestContext, token: str) -> str:
        registration = self._registrations.cluster_of(token)
        if registration is not None:
            asked.cluster = registration.cluster
            managed = self._clusters.managed.get("", registration.cluster)
            found = self._clusters.wanted_of(managed) if managed is not None else []
            return str(dig(found[0], "spec", "kubernetesVersion") or "") if found else ""
        machine = await self._hosts.of_plan_token(token)
        if machine is None:
            raise self._wrong.refuse(asked, "this server did not issue this token")
        name = dig(machine, "spec", "clusterName") or name_of(machine)
        plane = await find(self._services.client, rke.RKE_CONTROL_PLANES, name, namespace_of(machine))
        return str(dig(plane or {}, "spec", "kubernetesVersion") or "")


def kubeconfig(server: str, ca: str, token: str) -> str:
    """Formatted as by Go: hosts may parse it with a few patterns only."""
    authority = f"    certificate-authority-data: {base64.b64encode(ca.encode()).decode()}\n" if ca else ""
    return (
        "apiVersion: v1\n"
        "clusters:\n"
        f"- cluster:\n{authority}    server: {server}\n  name: agent\n"
        "contexts:\n"
        "- context:\n    cluster: agent\n    user: agent\n  name: agent\n"
        "current-context: agent\n"
        "kind: Config\n"
        "users:\n"
        f"- name: agent\n  user:\n    token: {token}\n"
    )


def _said(asked: RequestContext) -> dict[str, list[str]]:
    """The fields of a host's request that are stored. Raises 400 for invalid ones."""
    headers = asked.request.headers
    found = {key: headers.getall(f"{PREFIX}{key}") for key in SAID if f"{PREFIX}{key}" in headers}
    if sum(len(value) for values in found.values() for value in values) > _LARGEST:
        raise bad_request("the host sends too much")
    if any(not value.isprintable() for values in found.values() for value in values):
        raise bad_request("the host's data is not printable")
    return found


def _layout_of(asked: RequestContext) -> Layout | None:
    """Parsed before its token is checked: a host with an invalid layout must not become the machine."""
    said = asked.request.headers.get(f"{PREFIX}Layout")
    try:
        return layouts.parse(said) if said else None
    except layouts.LayoutError as error:
        raise bad_request(str(error)) from None


def _config_in(secret: Obj) -> bytes | None:
    try:
        delivered = machine_plan_secret.decode(secret)
        files = [] if delivered is None else [each for each in delivered.plan().files if each.path.endswith(_CONFIG)]
        return files[0].data if files else None
    except (machine_plan_secret.PlanSecretError, PlanError):
        return None


def _answer(body: bytes) -> web.Response:
    return web.Response(body=body, headers={"Content-Type": "application/json", "Cache-Control": "no-store"})


# --- credentials of hosts ---------------------------------------------------------------------------------------------------
#
# One bearer token and an id, with a limit on wrong ones. All of these tokens are too long to be guessed; the limit is on what
# attempts cost us. Hosts behind one address share their attempts, so there are many, and only wrong ones count.

PREFIX: Final = "X-Cattle-"
# A service account's token has about a kilobyte.
_BEARER = re.compile(r"Bearer +([!-~]{1,4096})", re.IGNORECASE | re.ASCII)
_WRONG_TOKENS_BURST, _WRONG_TOKENS_PER_SECOND = 100, 5.0


class WrongTokens:
    """Call `check` before a token is checked, `refuse` when it was wrong."""

    def __init__(self, clock: Clock) -> None:
        self._tries = Buckets(clock, _WRONG_TOKENS_BURST, _WRONG_TOKENS_PER_SECOND)

    def check(self, asked: RequestContext) -> None:
        if not self._tries.has(network_of(asked.address)):
            raise too_many_requests("too many wrong tokens came from this address: try again later", 5)

    def refuse(self, asked: RequestContext, why: str) -> ApiError:
        """The error to raise; the caller does not get the reason."""
        self._tries.take(network_of(asked.address))
        return NotLetIn(why)


def bearer_of(asked: RequestContext) -> str:
    """The request's only bearer token. Raises NotLetIn."""
    values = asked.request.headers.getall("Authorization", [])
    matched = _BEARER.fullmatch(values[0].strip()) if len(values) == 1 else None
    if matched is None:
        raise NotLetIn("no bearer token was sent, or more than one")
    return matched[1]


def machine_id_of(asked: RequestContext) -> str:
    """Raises NotLetIn for a missing id, as hosts expect it, and 400 for an invalid one."""
    values = asked.request.headers.getall(f"{PREFIX}Id", [])
    if not values or not values[0].strip():
        raise NotLetIn("the host does not send its id")
    found = values[0].strip()
    if len(values) > 1 or label_value_problems(found):
        raise bad_request("the host's id must be 1 to 63 letters, digits, '-', '_' or '.'")
    return found
