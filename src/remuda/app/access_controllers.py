"""The controllers of access, and their needs of the gateway."""

from __future__ import annotations

from collections.abc import Collection

from remuda.access import CONTROLLERS, clusters
from remuda.access.clusters import ManagedClusters, RegistrationTokens, Server
from remuda.access.clusters.cluster_auth import ClusterAuth
from remuda.access.downstreams import Agents, Downstreams, while_working
from remuda.access.settings.controller import Choices
from remuda.access.users.controllers import TokenController, UserController
from remuda.fleet.fleetworkspace import FleetWorkspaces
from remuda.fleet.fleetworkspace import standing as workspaces
from remuda.gateway.agents.agent_deployment import AgentDeployment
from remuda.gateway.gateway import Gateway
from remuda.provisioning.cluster import ManagementMirror, WantedClusters
from remuda.runtime import Manager, Reconciler

from . import health_controllers as health
from . import role_controllers as roles
from .readiness import all_there, first_objects


class AccessControllers:
    """The controllers, or `only` some of them, added to a manager that has not begun to run.

    `machines`: whether Cluster API's kinds are on this server; `provisions`: whether our own providers' are. `downstreams` and
    `agents` are the ways to clusters, where those are others than the gateway's tunnels.
    """

    def __init__(
        self,
        manager: Manager,
        gateway: Gateway,
        only: Collection[str] = CONTROLLERS,
        *,
        machines: bool = True,
        provisions: bool = False,
        downstreams: Downstreams | None = None,
        agents: Agents | None = None,
    ) -> None:
        ground = gateway.ground
        downstreams, agents = downstreams or gateway.downstreams, agents or gateway.agents
        informers = manager.informers
        manager.beside(gateway.tunnels.own)
        while_working(manager, lambda: gateway.waits.follow(manager.waits))
        server = Server(informers, ground.environment, lambda: ground.authority.ca)
        self._informers = informers
        self._first_user = gateway.identity.first
        self._first_objects = first_objects(server, only)
        if "settings" in only:
            manager.beside(Choices(manager.client, informers, manager.clock, ground.environment).run)
        made: list[Reconciler] = [
            UserController(manager.client, informers),
            TokenController(manager.client, informers, manager.clock),
            *roles.controllers(manager, downstreams, machines=machines, provisions=provisions),
            ManagedClusters(manager, server),
            RegistrationTokens(manager, server, ground.entropy),
            *clusters.standing(manager),
            *health.controllers(manager, downstreams, agents),
            AgentDeployment(manager, gateway.services, gateway.registrations, downstreams),
            ClusterAuth(manager, downstreams),
            WantedClusters(manager, server, ground.entropy),
            ManagementMirror(manager),
            FleetWorkspaces(manager),
            workspaces(manager, server),
        ]
        for each in made:
            if each.controller.name in only:
                manager.add(each)

    async def furnished(self) -> None:
        """Until all is there that a new server has, also its first user, which is made beside by the gateway."""
        await all_there(self._informers, self._first_objects)
        await self._first_user.made.wait()
