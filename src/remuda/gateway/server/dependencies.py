"""Services shared by all parts of the gateway: one client, its caches, clock and randomness, and access to other packages.

Made once by the code that starts a gateway (:mod:`remuda.app.embedded` in process, `remuda gateway` on another Kubernetes). Each
part gets all of it, and adds its routes to `routes`, its caches to `informers`, and its background tasks to `beside`.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Coroutine, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

from remuda.access.roles.holdings import Holdings
from remuda.access.settings.settings import Features, Settings
from remuda.api.management_cattle_io import FEATURES, SETTINGS
from remuda.client.interface import Client
from remuda.kube.authorization.actions import Action
from remuda.kube.authorization.rbac import Rbac
from remuda.kube.authorization.users import User
from remuda.kube.clock import Clock, Entropy, Rng
from remuda.kube.encoding import jsonio
from remuda.kube.errors import ApiError
from remuda.runtime import Informers
from remuda.tunnel import StreamError, TunnelServer

from .routing import Routes

# For the answers of other servers; one that takes longer is left out.
ASK_SECONDS = 2.0


class Access(Protocol):
    """Authorization on the management API: its own authorizer, or a SubjectAccessReview."""

    async def allowed(self, action: Action) -> bool: ...


class Acting(Protocol):
    """Access to the management API on behalf of users."""

    @property
    def rbac(self) -> Rbac | None:
        """The roles and bindings that decide there; None until all are known. What a user may do is decided by the API itself:
        this tells what to offer, and which requests to make."""
        ...

    def client(self, user: User) -> Client:
        """A client with the permissions of `user`, and no others. It needs no closing."""
        ...


class Authority(Protocol):
    """The certificate authority that issued this gateway's certificate."""

    @property
    def ca(self) -> str:
        """PEM, the default of the setting `cacerts`; empty for a publicly trusted certificate."""
        ...


# Answers a question of another server: JSON of what this server has in memory about the argument.
LocalAnswer = Callable[[str], Awaitable[Any]]


class OtherServers:
    """The other servers of this state, for what each has in its own memory. A single server has none.

    Callers are authorized by the server that they ask; the servers tell each other everything.
    """

    def __init__(self, tunnels: TunnelServer) -> None:
        self._tunnels = tunnels
        self._answers: dict[str, LocalAnswer] = {}

    def tell(self, about: str, answer: LocalAnswer) -> None:
        """Answer the questions of other servers about this."""
        self._answers[about] = answer

    async def ask(self, about: str, argument: str) -> list[Any]:
        """What the other servers know, of those that answer soon."""
        return [jsonio.loads(each) for each in await self._tunnels.ask_servers(about, argument, ASK_SECONDS)]

    async def answer(self, about: str, argument: str) -> bytes:
        """This server's answer. Raises StreamError."""
        found = self._answers.get(about)
        if found is None:
            raise StreamError(f"nothing is known about {about[:40]}")
        try:
            return jsonio.dumps(await found(argument))
        except ApiError as error:
            raise StreamError(error.message) from None


@dataclass
class Services:
    client: Client
    informers: Informers
    clock: Clock
    rng: Rng
    entropy: Entropy
    access: Access
    authority: Authority
    tunnels: TunnelServer
    environment: Mapping[str, str]
    acting: Acting | None = None
    routes: Routes = field(default_factory=Routes)
    beside: list[Callable[[], Coroutine[Any, Any, None]]] = field(default_factory=list)
    # Permissions of users on the management API; without it, users can only change themselves.
    holdings: Holdings | None = None
    # The bundles of CAs that `authority` has replaced, for agents that know the checksum of one of those only.
    former: Callable[[], Sequence[str]] = tuple
    # This server's own storage; None for a server without any.
    data_dir: Path | None = None
    others: OtherServers = field(init=False)
    # Handlers to call when `authority` has changed.
    trusting: list[Callable[[], None]] = field(default_factory=list)
    # Print a message for the user who starts this server. It is not logged.
    say: Callable[[str], None] = field(default=lambda text: None)
    # Their current values: read them again for each request, never keep one.
    settings: Callable[[], Settings] = field(default=lambda: Settings())
    features: Callable[[], Features] = field(default=lambda: Features())

    def __post_init__(self) -> None:
        self.others = OtherServers(self.tunnels)

    def on_trust(self, handler: Callable[[], None]) -> Callable[[], None]:
        """Call `handler` when the CA has changed, until the result is called."""
        self.trusting.append(handler)
        return lambda: self.trusting.remove(handler)

    def trust_changed(self) -> None:
        for handler in list(self.trusting):
            handler()


# --- settings cache -------------------------------------------------------------------------------------------------------
#
# Current settings and features, computed once for each change of their objects.

Obj = dict[str, Any]


class Live:
    """`settings` and `features` are those of :class:`Services`."""

    def __init__(self, informers: Informers, environment: Mapping[str, str]) -> None:
        self._environment = environment
        self._settings_objects = informers.of(SETTINGS)
        self._features_objects = informers.of(FEATURES)
        self._settings: Settings | None = None
        self._features: Features | None = None
        self._settings_objects.on_change(self._settings_changed)
        self._features_objects.on_change(self._features_changed)

    def settings(self) -> Settings:
        if self._settings is None:
            self._settings = Settings(self._settings_objects.objects(), self._environment)
        return self._settings

    def features(self) -> Features:
        if self._features is None:
            self._features = Features(self._features_objects.objects(), self._environment)
        return self._features

    def _settings_changed(self, new: Obj | None, old: Obj | None) -> None:
        self._settings = None

    def _features_changed(self, new: Obj | None, old: Obj | None) -> None:
        self._features = None
