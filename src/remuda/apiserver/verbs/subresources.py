"""Subresources other than `status` (scale, binding, eviction, token, finalize), and kinds that are only answered (reviews).

`status` is not here: it is an ordinary update that may only change the status. The pod actions are in :mod:`.pod_subresources`.

The bodies (Scale, Binding, Eviction, TokenRequest) are each a :class:`~remuda.apiserver.registry.resources.Version`, so that
decoding, patching and field ownership work on them as on any object; they are never stored. A write of a scale turns the live
object into its Scale, makes the new Scale like any update or patch, and puts the number back. Admission sees the Scale;
validation and the store see the object.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass, replace
from typing import Any

from remuda.kube import errors
from remuda.kube.admission_attributes import Attributes
from remuda.kube.clock import Clock
from remuda.kube.encoding import jsonio
from remuda.kube.errors import go_quote, invalid_value
from remuda.kube.objects import GroupVersionKind, dig, with_path
from remuda.kube.selectors import from_structure

from ..apply.managed_fields import ScalePaths
from ..auth.reviews import Services, handlers
from ..auth.token_issuer import TokenIssuer
from ..builtin import registration
from ..builtin.reviews import TOKEN_REQUEST as _TOKEN_STRATEGY
from ..cache.entries import Parsed
from ..cache.resource_cache import Bucket
from ..registry.object_meta import subdomain_name, validate_object_meta
from ..registry.resources import Resource, Version
from ..registry.strategy import AGE, Column, Strategy, at, column
from ..scheme import builtin_types
from . import bodies, create, metadata, patch, update
from .context import Api, Call
from .pod_subresources import PodActions

Obj = dict[str, Any]

SCALE = GroupVersionKind("autoscaling", "v1", "Scale")
BINDING = GroupVersionKind("", "v1", "Binding")
EVICTION = GroupVersionKind("policy", "v1", "Eviction")
TOKEN_REQUEST = GroupVersionKind("authentication.k8s.io", "v1", "TokenRequest")

_SCALE_STRATEGY = Strategy(
    columns=(
        Column("Name", "string", "The resource of the scale.", at("metadata", "name")),
        column("Desired", at("spec", "replicas", default=0), "Pods there should be.", "integer"),
        column("Available", at("status", "replicas", default=0), "Pods there are.", "integer"),
        AGE,
    )
)
_STRATEGIES = {SCALE: _SCALE_STRATEGY, TOKEN_REQUEST: _TOKEN_STRATEGY}


class SubresourceKinds:
    """The versions, made when first needed; a Scale may belong to a namespaced kind or to one that is not."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._made: dict[tuple[GroupVersionKind, bool], Version] = {}

    def call(self, call: Call, kind: GroupVersionKind) -> Call:
        """`call` as a call on the body: same caller and options, another kind. Warnings are shared."""
        return replace(call, version=self._version(kind, call.version.resource.namespaced))

    def _version(self, kind: GroupVersionKind, namespaced: bool) -> Version:
        key = (kind, namespaced)
        if key not in self._made:
            self._made[key] = _make(kind, namespaced, self._clock)
        return self._made[key]


def _make(kind: GroupVersionKind, namespaced: bool, clock: Clock) -> Version:
    definition = builtin_types.type_of(*kind)
    assert definition is not None, f"{kind.kind} has no definition"
    resource = Resource(
        group=kind.group,
        name=f"{kind.kind.lower()}s",
        kind=kind.kind,
        list_kind="",
        singular="",
        namespaced=namespaced,
        bucket=Bucket("", 0, Parsed()),
        storage_version=kind.version,
        virtual=True,
    )
    version = Version(
        resource=resource,
        name=kind.version,
        kind=kind.kind,
        strategy=_STRATEGIES.get(kind, Strategy()),
        decode=registration.decoder(definition, kind.kind, kind.version),
        schema_name=definition,
        resolve=builtin_types.definition,
    )
    version.make_field_manager = lambda: registration.field_manager(version, clock)
    resource.versions[kind.version] = version
    return version


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


# From the current Scale to the wanted one.
Change = Callable[[Obj], Awaitable[Obj]]

_RETRIES = 5


class ScaleSubresource:
    def __init__(self, api: Api, kinds: SubresourceKinds) -> None:
        self._api = api
        self._kinds = kinds

    async def get(self, call: Call) -> Obj:
        await self._api.cache.consistent()
        entry = self._api.entry(call.version.resource, call.namespace, call.name)
        if entry is None:
            raise call.version.resource.not_found(call.name)
        obj = await call.version.load(entry)
        given = call.version.scale_paths
        if given is not None and dig(obj, *paths_of(call)[0]) is None:
            raise errors.internal(f"the spec replicas field {go_quote(given[0])} does not exist")
        return scale_of(call, obj)

    async def put(self, call: Call, raw: Any, duplicates: list[str] | None) -> Obj:
        inner = self._kinds.call(call, SCALE)
        wanted = bodies.decode(inner, raw, duplicates)
        meta = metadata.own_metadata(wanted)
        metadata.settle_namespace(inner, meta)
        update.check_name(inner, meta)

        async def change(current: Obj) -> Obj:
            fresh = {**wanted, "metadata": dict(meta)}
            return inner.version.field_manager.on_update(current, fresh, call.manager, "scale")

        return await self._write(call, change, uid=meta.get("uid") or "")

    async def patch(self, call: Call, body: Any, patch_type: str, duplicates: list[str] | None) -> Obj:
        inner = self._kinds.call(call, SCALE)
        fields = inner.version.field_manager
        if patch_type == patch.APPLY_PATCH:
            patch.check_config(inner, body)

        async def change(current: Obj) -> Obj:
            if patch_type == patch.APPLY_PATCH:
                merged = fields.on_apply(current, body, call.manager, bool(call.force), "scale")
                return patch.read_applied(inner, current, merged, duplicates or [])
            wanted = patch.read_patched(inner, current, body, patch_type, duplicates)
            return fields.on_update(current, wanted, call.manager, "scale")

        return await self._write(call, change, retries=_RETRIES)

    async def _write(self, call: Call, change: Change, *, uid: str = "", retries: int = 1_000_000) -> Obj:
        parent = replace(call, subresource="")
        spec_path = paths_of(call)[0]
        owners = _owners(call, spec_path)
        door = update.SubresourceView("Scale", "scale", lambda obj: scale_of(call, obj))

        async def compute(live: Obj | None) -> Obj:
            assert live is not None
            current = scale_of(call, live)
            current["metadata"]["managedFields"] = owners.to_scale(live["metadata"].get("managedFields"))
            attributes = update.attributes_through(door, parent, await change(current), current)
            await self._api.admission.admit(attributes)
            assert attributes.obj is not None
            wanted = attributes.obj
            self._check(call, wanted, live)
            obj: Obj = jsonio.copy(live)
            meta = obj["metadata"]
            meta["resourceVersion"] = wanted["metadata"].get("resourceVersion") or ""
            entries = owners.to_parent(live["metadata"].get("managedFields"), wanted["metadata"].get("managedFields"))
            if entries:
                meta["managedFields"] = entries
            else:
                meta.pop("managedFields", None)
            return with_path(obj, spec_path, dig(wanted, "spec", "replicas", default=0) or 0)

        outcome = await update.guaranteed_update(self._api, parent, compute, uid=uid, retries=retries, door=door)
        return scale_of(call, await call.version.load(outcome.entry))

    @staticmethod
    def _check(call: Call, wanted: Obj, live: Obj) -> None:
        meta = wanted["metadata"]
        found = validate_object_meta(meta, call.version.resource.namespaced, subdomain_name)
        replicas = dig(wanted, "spec", "replicas", default=0) or 0
        # The values allowed for a custom resource are checked by its own validation.
        if replicas < 0 and call.version.resource.builtin:
            found.append(invalid_value("spec.replicas", replicas, "must be greater than or equal to 0"))
        if found:
            raise errors.invalid(SCALE.group, SCALE.kind, call.name, found)
        uid, current = meta.get("uid") or "", live["metadata"].get("uid") or ""
        if uid and uid != current:
            resource = call.version.resource
            why = f"Precondition failed: UID in precondition: {uid}, UID in object meta: {current}"
            raise errors.conflict(resource.group, f"{resource.name}/scale", call.name, why)


def paths_of(call: Call) -> tuple[list[str], list[str], list[str]]:
    """The paths of the wanted number, the actual number and (for custom resources) the selector."""
    given = call.version.scale_paths
    if given is None:
        return ["spec", "replicas"], ["status", "replicas"], []
    spec, status, selector = given
    return spec.strip(".").split("."), status.strip(".").split("."), selector.strip(".").split(".") if selector else []


def _owners(call: Call, spec_path: list[str]) -> ScalePaths:
    known: dict[str, list[str] | None] = {}
    for version in call.version.resource.versions.values():
        inner = replace(call, version=version)
        known[version.api_version] = paths_of(inner)[0] if "scale" in version.subresources else None
    known[call.version.api_version] = spec_path
    return ScalePaths(call.version.api_version, known)


def scale_of(call: Call, obj: Obj) -> Obj:
    """The Scale of `obj`."""
    spec_path, status_path, selector_path = paths_of(call)
    meta = obj["metadata"]
    shown = ("name", "namespace", "uid", "resourceVersion", "creationTimestamp")
    status: Obj = {"replicas": dig(obj, *status_path, default=0) or 0}
    selector = dig(obj, *selector_path, default="") if selector_path else _selector_text(dig(obj, "spec", "selector"))
    if selector:
        status["selector"] = selector
    replicas = dig(obj, *spec_path)
    return {
        "kind": "Scale",
        "apiVersion": SCALE.api_version,
        "metadata": {name: meta[name] for name in shown if meta.get(name)},
        "spec": {"replicas": replicas} if replicas else {},
        "status": status,
    }


def _selector_text(selector: Any) -> str:
    if not isinstance(selector, dict):
        return ""
    if "matchLabels" in selector or "matchExpressions" in selector:
        return ",".join(
            str(requirement)
            if len(requirement.values) != 1 or requirement.operator != "in"
            else f"{requirement.key}={requirement.values[0]}"
            for requirement in sorted(from_structure(selector).requirements, key=lambda requirement: requirement.key)
        )
    return ",".join(f"{key}={value}" for key, value in sorted(selector.items()))
