"""Users, logins and tokens at the door, put together: one line for whoever assembles a gateway.

The first user is made beside (:mod:`remuda.access.users.first_user`), by every server: it is made once however many there are.
"""

from __future__ import annotations

from remuda.access.users.first_user import FirstUser
from remuda.access.users.passwords import STRONG, Cost, Hashing

from ..server.dependencies import Services
from .kubeconfigs import Kubeconfigs
from .local_provider import LocalProvider
from .login import Login
from .login_providers import Providers
from .login_throttle import LoginThrottle
from .tokens import Sessions
from .tokens_api import TokenApi
from .users_api import UserApi


class Identity:
    """`cost` is that of a password's hash."""

    def __init__(self, services: Services, cost: Cost = STRONG) -> None:
        hashing = Hashing(services.entropy, cost)
        self.first = FirstUser(
            services.client,
            services.clock,
            services.entropy,
            services.environment,
            hashing.hashed,
            services.say,
            services.data_dir,
        )
        self.sessions = Sessions(services)
        self.local = LocalProvider(services, hashing, LoginThrottle(services.clock))
        self.providers = Providers(self.local)
        self.login = Login(services, self.sessions, self.providers)
        self.tokens = TokenApi(services, self.sessions)
        self.users = UserApi(services, self.sessions, self.local, hashing, self.first)
        self.kubeconfigs = Kubeconfigs(services, self.tokens, self.sessions)
        services.beside.append(self.first.run)
