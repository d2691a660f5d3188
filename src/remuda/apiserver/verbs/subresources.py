"""Subresources with a life of their own (scale, binding, eviction, token, finalize) and kinds that are only answered (reviews).

`status` is not here: it is an ordinary update that may only touch the status. Scale and the pod actions are in
:mod:`.scale` and :mod:`.pod_subresources`.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass, replace
from typing import Any

from remuda.kube import errors
from remuda.kube.admission_attributes import Attributes
from remuda.kube.encoding import jsonio

from ..auth.reviews import Services, handlers
from ..auth.token_issuer import TokenIssuer
from . import bodies, create, metadata, update
from .context import Api, Call
from .pod_subresources import PodActions
from .scale import ScaleSubresource
from .subresource_types import BINDING, EVICTION, SCALE, TOKEN_REQUEST, SubresourceKinds

Obj = dict[str, Any]


@dataclass(slots=True)
class SubresourceResponse:
    body: Obj
    status: int = 200


@dataclass(slots=True)
class SubresourceRequest:
    """The request: an object, or a patch of one."""

    body: Any = None
    duplicates: list[str] | None = None
    patch_type: str = ""


class Subresources:
    def __init__(self, api: Api, services: Services, issuer: TokenIssuer) -> None:
        self._api = api
        self._services = services
        self._issuer = issuer
        self._reviews = handlers()
        self._kinds = SubresourceKinds(api.clock)
        self._pods = PodActions(api)
        self._scaling = ScaleSubresource(api, self._kinds)
        self._handlers: dict[str, Callable[[Call, SubresourceRequest], Awaitable[SubresourceResponse]]] = {
            "scale": self._scale,
            "binding": self._binding,
            "eviction": self._eviction,
            "token": self._token,
            "finalize": self._finalize,
        }

    async def run(self, call: Call, ask: SubresourceRequest) -> SubresourceResponse:
        """The answer to a call on a subresource, over HTTP or in process."""
        handler = self._handlers.get(call.subresource)
        if handler is None:
            raise errors.no_such_path()
        return await handler(call, ask)

    def on_scale(self, call: Call) -> Call:
        """The call with the Scale as its object."""
        return self._kinds.call(call, SCALE)

    # --- reviews -------------------------------------------------------------------------------------------------------

    async def review(self, call: Call, ask: SubresourceRequest) -> SubresourceResponse:
        """A kind that is answered, never stored."""
        version = call.version
        body = self._received(call, ask, keep_identity=version.resource.name == "bindings")
        if version.resource.name == "bindings":
            # The old form of a binding, posted to its own collection.
            named = replace(call, name=body["metadata"].get("name") or "")
            return await self._bound(named, await self._admitted(named, body, "Binding"))
        handler = self._reviews[version.group, version.resource.name]
        return SubresourceResponse(await handler(body, call.user, self._services, call.namespace), 201)

    def _received(self, call: Call, ask: SubresourceRequest, *, keep_identity: bool = False) -> Obj:
        """The body of a create, as an object of the call's version."""
        body = bodies.decode(call, ask.body, ask.duplicates)
        meta = metadata.own_metadata(body)
        if not keep_identity:
            metadata.wipe_system_fields(meta)
        metadata.settle_namespace(call, meta)
        return call.version.field_manager.on_create(body, call.manager, call.subresource)

    async def _admitted(self, call: Call, body: Obj, kind: str) -> Attributes:
        """The body of a create after mutating admission."""
        attributes = create.attributes_of(call, body)
        attributes.kind = kind
        await self._api.admission.admit(attributes)
        return attributes

    # --- scale ---------------------------------------------------------------------------------------------------------

    async def _scale(self, call: Call, ask: SubresourceRequest) -> SubresourceResponse:
        if call.verb == "get":
            return SubresourceResponse(await self._scaling.get(call))
        if ask.patch_type:
            return SubresourceResponse(await self._scaling.patch(call, ask.body, ask.patch_type, ask.duplicates))
        return SubresourceResponse(await self._scaling.put(call, ask.body, ask.duplicates))

    # --- pods ----------------------------------------------------------------------------------------------------------

    async def _binding(self, call: Call, ask: SubresourceRequest) -> SubresourceResponse:
        body = self._received(self._kinds.call(call, BINDING), ask, keep_identity=True)
        return await self._bound(call, await self._admitted(call, body, "Binding"))

    async def _bound(self, call: Call, attributes: Attributes) -> SubresourceResponse:
        await self._pods.bind(call, attributes)
        return SubresourceResponse(_success(), 201)

    async def _eviction(self, call: Call, ask: SubresourceRequest) -> SubresourceResponse:
        if isinstance(ask.body, dict) and ask.body.get("apiVersion") == "policy/v1beta1":
            # Older clients use this form; the kind is the same.
            ask = replace(ask, body={**ask.body, "apiVersion": EVICTION.api_version})
        body = self._received(self._kinds.call(call, EVICTION), ask)
        refusal = await self._pods.evict(call, await self._admitted(call, body, "Eviction"))
        return SubresourceResponse(_success(), 201) if refusal is None else SubresourceResponse(refusal.status(), refusal.code)

    # --- service accounts and namespaces -------------------------------------------------------------------------------

    async def _token(self, call: Call, ask: SubresourceRequest) -> SubresourceResponse:
        body = self._received(self._kinds.call(call, TOKEN_REQUEST), ask, keep_identity=True)
        # The token will contain the uids of the account and of its bound object.
        await self._api.cache.consistent()
        attributes = await self._admitted(call, body, "TokenRequest")
        prepared = self._issuer.prepare(call.namespace, call.name, attributes.obj or body)
        attributes.obj = prepared
        await self._api.admission.validate(attributes)
        return SubresourceResponse(self._issuer.sign(prepared), 201)

    async def _finalize(self, call: Call, ask: SubresourceRequest) -> SubresourceResponse:
        raw = bodies.decode(call, ask.body, ask.duplicates)
        meta = metadata.own_metadata(raw)
        update.check_name(call, meta)

        async def compute(live: Obj | None) -> Obj:
            assert live is not None
            obj: Obj = jsonio.copy(live)
            obj["spec"] = raw.get("spec") or {}
            obj["metadata"]["resourceVersion"] = meta.get("resourceVersion") or ""
            return await call.version.managed(lambda fields: fields.on_update(live, obj, call.manager, "finalize"))

        outcome = await update.guaranteed_update(self._api, call, compute, uid=meta.get("uid") or "")
        return SubresourceResponse(await call.version.load(outcome.entry))


def _success() -> Obj:
    return {"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Success", "code": 201}
