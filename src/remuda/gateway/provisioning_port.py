"""The gateway's services for provisioning: the manifest of a cluster's agent, the install script of a machine, our own images.

Implements the ports of :mod:`remuda.app.parts`. The plans of control planes contain the manifest as a file,
and the distribution applies it; its inputs are those of :mod:`.registration.import_manifest` for imported clusters.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import cache
from typing import Any

from remuda.access.clusters.well_known import DEFAULT_TOKEN
from remuda.access.settings.settings import registry_at
from remuda.agent.install import ARCHIVE
from remuda.api.management_cattle_io import CLUSTERS, SETTINGS
from remuda.api.rke_cattle_io import RKE_CONTROL_PLANES
from remuda.kube.objects import dig, is_being_deleted, name_of, namespace_of
from remuda.provisioning.admission.provider_objects import AGENT_DIRECTORY
from remuda.provisioning.planner.render import AgentManifest, BuiltInRegistry, Taint
from remuda.provisioning.releases.distributions import REMUDA, Runtime
from remuda.runtime import Informers, synced

from .gateway import Gateway
from .registration.agent_downloads import assets, script
from .registration.agent_manifest import ManifestInputs, agent_image, render
from .registration.import_manifest import wanted
from .server.serving_certificate import ca_checksum, ca_text

Obj = dict[str, Any]

# The inputs of a manifest besides its cluster and the settings.
_SAID = ("server", "token", "ca_checksum", "pull_secrets")


class ProvisioningPort:
    def __init__(self, gateway: Gateway, informers: Informers) -> None:
        """`informers` are those of the controllers."""
        self._services = gateway.services
        self._registrations = gateway.registrations
        self._progress = gateway.progress.rings
        self._clusters = informers.of(CLUSTERS)
        self._planes = informers.of(RKE_CONTROL_PLANES)
        # By cluster: the manifest's inputs, and the manifest.
        self._manifests: dict[str, tuple[tuple[Any, ...], AgentManifest]] = {}

    # --- clusters ---------------------------------------------------------------------------------------------------------

    async def agent_manifest(self, cluster: str) -> AgentManifest | None:
        """The manifest; None while this server's address, the cluster or its token is missing."""
        await synced(self._clusters, self._registrations.informer, self._services.informers.of(SETTINGS))
        found = self._clusters.get("", cluster)
        token = self._registrations.token_of(cluster, DEFAULT_TOKEN)
        if found is None or is_being_deleted(found) or not token or not self._server():
            self._manifests.pop(cluster, None)
            return None
        made = await wanted(self._services, found, token, "")
        # Requested at every reconciliation of a cluster, and rarely changed.
        made_of = (found.get("spec"), made.settings, *(getattr(made, name) for name in _SAID))
        known = self._manifests.get(cluster)
        if known is None or known[0] != made_of:
            known = self._manifests[cluster] = (made_of, cache(lambda taints: render(_tolerating(made, taints))))
        return known[1]

    def registry(self, cluster: str, runtime: Runtime) -> BuiltInRegistry | None:
        server = self._server()
        if not server:
            return None
        ours = BuiltInRegistry(registry_at(server), self._ca())
        image = agent_image(self._clusters.get("", cluster) or {}, self._services.settings(), server)
        return ours if runtime == REMUDA or image.startswith(f"{ours.host}/") else None

    def agent(self) -> bytes:
        return assets()[ARCHIVE].content

    def said_at(self, namespace: str, cluster: str) -> Mapping[str, float]:
        return {name: line.time for name, line in self._progress.of_cluster(namespace, cluster).items()}

    def on_change(self, handler: Callable[[str], None]) -> Callable[[], None]:
        def changed(new: Obj | None, old: Obj | None) -> None:
            if new is not None and (old is None or new.get("spec") != old.get("spec")):
                handler(name_of(new))

        def trusted() -> None:
            for each in self._clusters.objects():
                handler(name_of(each))

        stops = [
            self._registrations.on_change(handler),
            self._clusters.on_change(changed),
            self._services.on_trust(trusted),
        ]

        def stop() -> None:
            for each in stops:
                each()

        return stop

    # --- hosts ------------------------------------------------------------------------------------------------------------

    def script(self, bootstrap: Obj, token: str) -> bytes | None:
        """The first script that a machine's host runs; `token` is its credential. None while this server's address is unknown."""
        server = self._server()
        if not server:
            return None
        plane = self._planes.get(namespace_of(bootstrap), dig(bootstrap, "spec", "clusterName") or "") or {}
        return script(self._services, server, token, _variables(plane)).encode()

    def _server(self) -> str:
        return self._services.settings().text("server-url").rstrip("/")

    def ca_checksum(self) -> str:
        """The checksum of the CA that hosts are to trust."""
        return ca_checksum(self._ca())

    def _ca(self) -> str:
        return ca_text(self._services.settings().text("cacerts") or self._services.authority.ca)


def _variables(plane: Obj) -> list[tuple[str, str]]:
    """Variables for the agent's installer: the user's own, and the directory for the agent's state."""
    listed = dig(plane, "spec", "agentEnvVars") or []
    found = [(str(each.get("name") or ""), str(each.get("value") or "")) for each in listed if isinstance(each, dict)]
    directory = dig(plane, "spec", "dataDirectories", "systemAgent")
    return [*found, (AGENT_DIRECTORY, directory)] if isinstance(directory, str) and directory else found


def _tolerating(made: ManifestInputs, taints: tuple[Taint, ...]) -> ManifestInputs:
    listed = [{"key": each.key, "value": each.value, "effect": each.effect} for each in taints]
    return replace(made, taints=tuple({name: text for name, text in each.items() if text} for each in listed))
