"""What each request of Rancher's clients needs: the caller's own client, their permissions, and the kinds that there are.

:mod:`.steve` and :mod:`.norman.routes` share one :class:`Facade`, so that kinds are discovered, and states computed, once.
"""

from __future__ import annotations

from dataclasses import dataclass

from remuda.apiserver.limits.flow_control import Gate
from remuda.client.interface import Client
from remuda.kube.errors import unavailable

from ..server import norman
from ..server.dependencies import Services
from ..server.routing import RequestContext
from .discovery import Discovery
from .kinds import Kinds
from .resources import States
from .schemas import Permissions


@dataclass(frozen=True, slots=True)
class CallerRequest:
    """One request of a caller; `base` is the URL of the API."""

    asked: RequestContext
    base: str
    client: Client
    permissions: Permissions
    kinds: Kinds


class Facade:
    def __init__(self, services: Services) -> None:
        self.services = services
        self.discovery = Discovery(services.client, services.informers, services.clock)
        self.states = States()
        # A list takes memory for all its objects: few are made at a time, by turns of the users.
        self.gate = Gate("lists of Rancher's clients", seats=4, queue=200)

    async def begin(self, asked: RequestContext, root: str) -> CallerRequest:
        acting = self.services.acting
        rbac = acting.rbac if acting is not None else None
        if acting is None or rbac is None:
            raise unavailable("the server has just started and does not know its roles yet: try again", 1)
        base = norman.base_url(asked, self.services) + root
        kinds = await self.discovery.kinds()
        return CallerRequest(asked, base, acting.client(asked.user), Permissions(rbac, asked.user), kinds)
