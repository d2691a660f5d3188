"""What is behind the door at `/`: the Kubernetes API that Remuda is managed through.

Here it is in the same process (:class:`InProcess`); on somebody else's Kubernetes it is reached over the network as the caller
(:mod:`..proxy.kubernetes_backend`). Either way :mod:`.handler` hands over what is none of the gateway's own paths.
"""

from __future__ import annotations

from typing import Protocol

from aiohttp import web

from remuda.apiserver.http.handler import WHO
from remuda.apiserver.http.listener import Handler
from remuda.kube.authorization.users import NOBODY, User

from .request_context import Asked, Caller


class Behind(Protocol):
    async def answer(self, asked: Asked) -> web.StreamResponse:
        """Say in `asked` who it was, as far as that is found out here."""
        ...


class InProcess:
    """The API server's own handler. It asks for credentials itself: certificates, service accounts, and our tokens by
    :class:`~..auth.authenticator.TokenAuthenticator`."""

    def __init__(self, handler: Handler) -> None:
        self._handler = handler

    async def answer(self, asked: Asked) -> web.StreamResponse:
        try:
            return await self._handler(asked.request)
        finally:
            found: tuple[User, User] | None = asked.request.get(WHO)
            if found is not None:
                asker, acting = found
                if asked.caller is None and asker is not NOBODY:
                    asked.caller = Caller(asker)
                if acting is not asker:
                    asked.impersonated = acting.name
