"""Clients of the management API that act for users, each with the permissions of one user and no others.

Code that shows objects to users reads and writes through them alone, so that it can't show more than
the API itself would show to that user.
"""

from __future__ import annotations

from dataclasses import dataclass

from remuda.access.roles.holdings import InformerSource
from remuda.apiserver.inprocess import InProcessClient
from remuda.apiserver.server import Server
from remuda.client.https import HttpsClient
from remuda.client.interface import Client
from remuda.kube.authorization.rbac import Rbac
from remuda.kube.authorization.users import User

_MANAGER = "rancher"


@dataclass(frozen=True, slots=True)
class LocalActing:
    """On the API server of this process."""

    server: Server

    @property
    def rbac(self) -> Rbac:
        return self.server.rbac

    def client(self, user: User) -> Client:
        return InProcessClient(self.server, manager=_MANAGER, user=user)


@dataclass(frozen=True, slots=True)
class ImpersonatingActing:
    """On another Kubernetes, by impersonation. `source` feeds `roles`."""

    gateway: HttpsClient
    source: InformerSource
    roles: Rbac

    @property
    def rbac(self) -> Rbac | None:
        return self.roles if self.source.is_complete() else None

    def client(self, user: User) -> Client:
        return self.gateway.impersonating(user)
