"""Users, logins and tokens at the door, put together: one line for whoever assembles a gateway.

The first user is made beside (:mod:`remuda.management.users.first`), by every server: it is made once however many there are.
"""

from __future__ import annotations

from remuda.management.users.first import FirstUser
from remuda.management.users.passwords import STRONG, Cost, Hashing

from .kubeconfigs import Kubeconfigs
from .localprovider import LocalProvider
from .login import Login
from .providers import Providers
from .services import Services
from .sessions import Sessions
from .throttle import LoginThrottle
from .tokenapi import TokenApi
from .userapi import UserApi


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
