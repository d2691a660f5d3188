"""Subresources with a life of their own (scale, binding, eviction, token, finalize) and the kinds that are only asked (reviews).

`status` is not here: it is an ordinary update that may only touch the status.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any

from aiohttp import web

from remuda.kube import errors, jsonio
from remuda.kube.clock import rfc3339
from remuda.kube.errors import go_quote, invalid_value
from remuda.kube.jsonpatch import apply_patch as apply_json_patch
from remuda.kube.mergepatch import apply_merge_patch
from remuda.kube.objects import dig, with_path
from remuda.kube.selectors import from_structure

from .api import Api
from .apply import FieldManager, empty_builtin
from .authn.issuer import DEFAULT_SECONDS, TokenIssuer
from .builtin import codec, types
from .calls import Call, DeleteOptions
from .reviews import Services, handlers
from .verbs import bodies, create, delete, metadata, update
from .verbs import patch as patching

if TYPE_CHECKING:
    from .http import paths
    from .http.handler import Handler

Obj = dict[str, Any]

_TOKEN_REQUEST = "io.k8s.api.authentication.v1.TokenRequest"


@dataclass(slots=True)
class Answer:
    body: Obj
    status: int = 200


@dataclass(slots=True)
class Ask:
    """What was sent: an object, or a patch of one."""

    body: Any = None
    duplicates: list[str] | None = None
    patch_type: str = ""


class Subresources:
    def __init__(self, api: Api, services: Services, issuer: TokenIssuer) -> None:
        self._api = api
        self._services = services
        self._issuer = issuer
        self._reviews = handlers()
        self._handlers: dict[str, Callable[[Call, Ask], Awaitable[Answer]]] = {
            "scale": self._scale,
            "binding": self._binding,
            "eviction": self._eviction,
            "token": self._token,
            "finalize": self._finalize,
        }

    async def run(self, call: Call, ask: Ask) -> Answer:
        """The answer to a call on a subresource, whichever door it came through."""
        handler = self._handlers.get(call.subresource)
        if handler is None:
            raise errors.no_such_path()
        return await handler(call, ask)

    async def serve(self, http: Handler, request: web.BaseRequest, target: paths.Target, call: Call) -> web.StreamResponse:
        from .http import negotiation, reading, responses

        output = negotiation.negotiate(request.headers.get("Accept", ""), False)
        ask = Ask()
        if call.verb in ("create", "update"):
            http._write_options(request, target, call, "CreateOptions" if call.verb == "create" else "UpdateOptions")
            ask.body, ask.duplicates = await reading.read_object(request, call)
        elif call.verb == "patch":
            http._write_options(request, target, call, "PatchOptions")
            ask.patch_type = request.headers.get("Content-Type", "").partition(";")[0].strip().lower()
            accepted = patching.patch_types(call)
            if ask.patch_type not in accepted:
                listed = ", ".join(accepted)
                raise errors.unsupported_media_type(
                    f"the body of the request was in an unknown format - accepted media types include: {listed}"
                )
            ask.body, ask.duplicates = reading.parse_patch(await reading.read_limited(request), ask.patch_type)
        answer = await self.run(call, ask)
        return await responses.body(request, jsonio.dumps(answer.body) + b"\n", answer.status, output.media_type)

    # --- reviews -------------------------------------------------------------------------------------------------------

    async def review(self, call: Call, ask: Ask) -> Answer:
        """A kind that is asked and answered, never stored."""
        version = call.version
        if version.resource.name == "bindings":
            body = bodies.decode(call, ask.body, ask.duplicates)
            call = replace(call, name=dig(body, "metadata", "name", default="") or "")
            return await self._bind(call, body)
        body = bodies.decode(call, ask.body, ask.duplicates)
        meta = metadata.own_metadata(body)
        metadata.wipe_system_fields(meta)
        metadata.settle_namespace(call, meta)
        body = version.field_manager.on_create(body, call.manager, "")
        handler = self._reviews[version.group, version.resource.name]
        return Answer(await handler(body, call.user, self._services, call.namespace), 201)

    # --- scale ---------------------------------------------------------------------------------------------------------

    async def _scale(self, call: Call, ask: Ask) -> Answer:
        parent = replace(call, subresource="")
        if call.verb == "get":
            entry = self._api.entry(call.version.resource, call.namespace, call.name)
            if entry is None:
                raise call.version.resource.not_found(call.name)
            return Answer(self._scale_of(call, await call.version.load(entry)))
        created_from = await self._change_scale(parent, ask)
        return Answer(created_from)

    def _paths(self, call: Call) -> tuple[list[str], list[str], list[str]]:
        given = call.version.scale_paths
        if given is not None:
            spec, status, selector = given
            return (
                spec.strip(".").split("."),
                status.strip(".").split("."),
                selector.strip(".").split(".") if selector else [],
            )
        return ["spec", "replicas"], ["status", "replicas"], []

    def _scale_of(self, call: Call, obj: Obj) -> Obj:
        spec_path, status_path, selector_path = self._paths(call)
        meta = obj["metadata"]
        kept = {
            name: meta[name] for name in ("name", "namespace", "uid", "resourceVersion", "creationTimestamp") if meta.get(name)
        }
        status: Obj = {"replicas": dig(obj, *status_path, default=0) or 0}
        if selector_path:
            selector = dig(obj, *selector_path, default="") or ""
        else:
            selector = _selector_text(dig(obj, "spec", "selector"))
        if selector:
            status["selector"] = selector
        spec: Obj = {}
        replicas = dig(obj, *spec_path)
        if replicas:
            spec["replicas"] = replicas
        return {"kind": "Scale", "apiVersion": "autoscaling/v1", "metadata": kept, "spec": spec, "status": status}

    async def _change_scale(self, call: Call, ask: Ask) -> Obj:
        spec_path, _, _ = self._paths(call)
        decode = codec.decoder_for("io.k8s.api.autoscaling.v1.Scale")

        async def compute(live: Obj | None) -> Obj:
            assert live is not None
            current = self._scale_of(call, live)
            wanted = ask.body if not ask.patch_type else _patched_scale(current, ask)
            if not isinstance(wanted, dict):
                raise errors.bad_request("a Scale object is expected")
            try:
                wanted, unknown = decode(wanted)
            except codec.DecodeError as error:
                raise errors.bad_request(f'Scale in version "v1" cannot be handled as a Scale: {error}') from None
            bodies.report_strict(replace(call), unknown, ask.duplicates or [])
            _check_scale(call, wanted, current)
            obj: Obj = jsonio.copy(live)
            obj["metadata"]["resourceVersion"] = dig(wanted, "metadata", "resourceVersion", default="") or ""
            obj = with_path(obj, spec_path, dig(wanted, "spec", "replicas", default=0) or 0)
            return await call.version.managed(lambda fields: fields.on_update(live, obj, call.manager, "scale"))

        outcome = await update.guaranteed_update(self._api, call, compute)
        return self._scale_of(call, await call.version.load(outcome.entry))

    # --- pods ----------------------------------------------------------------------------------------------------------

    async def _binding(self, call: Call, ask: Ask) -> Answer:
        body = _decode_as("io.k8s.api.core.v1.Binding", "Binding", ask, call)
        return await self._bind(call, body)

    async def _bind(self, call: Call, body: Obj) -> Answer:
        target = body.get("target") or {}
        if target.get("kind") not in (None, "", "Node") or not target.get("name"):
            field = "target.kind" if target.get("kind") not in (None, "", "Node") else "target.name"
            problem = (
                errors.not_supported(field, target.get("kind"), ("Node", ""))
                if field == "target.kind"
                else errors.required(field)
            )
            raise errors.invalid("", "Binding", call.name, [problem])
        pods = self._api.registry.find("", "v1", "pods")
        assert pods is not None
        pod_call = replace(call, version=pods, subresource="")
        uid = dig(body, "metadata", "uid", default="") or ""

        async def compute(live: Obj | None) -> Obj:
            assert live is not None
            if live["metadata"].get("deletionTimestamp"):
                raise errors.conflict(
                    "", "pods/binding", call.name, f"pod {call.name} is being deleted, cannot be assigned to a host"
                )
            if (live.get("spec") or {}).get("nodeName"):
                node = live["spec"]["nodeName"]
                raise errors.conflict(
                    "", "pods/binding", call.name, f"pod {call.name} is already assigned to node {go_quote(node)}"
                )
            obj: Obj = jsonio.copy(live)
            obj["spec"]["nodeName"] = target["name"]
            annotations = dig(body, "metadata", "annotations") or {}
            if annotations:
                obj["metadata"]["annotations"] = {**(obj["metadata"].get("annotations") or {}), **annotations}
            status = obj.setdefault("status", {})
            conditions = [c for c in status.get("conditions") or [] if c.get("type") != "PodScheduled"]
            conditions.append(
                {
                    "type": "PodScheduled",
                    "status": "True",
                    "lastProbeTime": None,
                    "lastTransitionTime": rfc3339(self._api.clock.time()),
                }
            )
            status["conditions"] = conditions
            return obj

        await update.guaranteed_update(self._api, replace(pod_call, subresource="binding"), compute, uid=uid)
        return Answer({"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Success", "code": 201}, 201)

    async def _eviction(self, call: Call, ask: Ask) -> Answer:
        body = _decode_as("io.k8s.api.policy.v1.Eviction", "Eviction", ask, call)
        name = dig(body, "metadata", "name", default="") or ""
        if name != call.name:
            raise errors.bad_request("name in URL does not match name in Eviction object")
        entry = self._api.entry(call.version.resource, call.namespace, call.name)
        if entry is None:
            raise call.version.resource.not_found(call.name)
        pod = entry.object()
        if not _ignores_budgets(pod):
            await self._spend_budget(call, pod)
        asked = body.get("deleteOptions") or {}
        preconditions = asked.get("preconditions") or {}
        options = DeleteOptions(
            grace_seconds=asked.get("gracePeriodSeconds"),
            propagation=asked.get("propagationPolicy") or "",
            uid=preconditions.get("uid") or pod["metadata"]["uid"],
            resource_version=preconditions.get("resourceVersion") or "",
        )
        dry = replace(call, subresource="", dry_run=call.dry_run or asked.get("dryRun") == ["All"])
        await delete.delete(self._api, dry, options)
        return Answer({"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Success", "code": 201}, 201)

    async def _spend_budget(self, call: Call, pod: Obj) -> None:
        """Take one allowed disruption from the budget that covers the pod, or refuse."""
        budgets = [b for b in self._api.source.list("policy", "poddisruptionbudgets", call.namespace) if _covers(b, pod)]
        if not budgets:
            return
        if len(budgets) > 1:
            raise errors.internal(
                "this pod has more than one PodDisruptionBudget, which the eviction subresource does not support."
            )
        version = self._api.registry.find("policy", "v1", "poddisruptionbudgets")
        assert version is not None
        name = budgets[0]["metadata"]["name"]
        budget_call = Call(
            version, "update", call.namespace, name, "status", trusted=True, manager="remuda", dry_run=call.dry_run
        )

        async def compute(live: Obj | None) -> Obj:
            assert live is not None
            status = live.get("status") or {}
            if (status.get("observedGeneration") or 0) < (live["metadata"].get("generation") or 0):
                raise _disruption_refused(f"The disruption budget {name} is still being processed by the server.", 10)
            allowed = status.get("disruptionsAllowed") or 0
            if allowed < 0:
                raise errors.forbidden("policy", "poddisruptionbudgets", name, "pdb disruptions allowed is negative")
            if len(status.get("disruptedPods") or {}) > 2000:
                raise errors.forbidden(
                    "policy",
                    "poddisruptionbudgets",
                    name,
                    "DisruptedPods map too big - too many evictions not confirmed by PDB controller",
                )
            if allowed == 0:
                desired, healthy = status.get("desiredHealthy") or 0, status.get("currentHealthy") or 0
                raise _disruption_refused(
                    "Cannot evict pod as it would violate the pod's disruption budget.",
                    0,
                    f"The disruption budget {name} needs {desired} healthy pods and has {healthy} currently",
                )
            obj: Obj = jsonio.copy(live)
            obj["status"]["disruptionsAllowed"] = allowed - 1
            disrupted = obj["status"].setdefault("disruptedPods", {})
            disrupted[pod["metadata"]["name"]] = rfc3339(self._api.clock.time())
            return obj

        await update.guaranteed_update(self._api, budget_call, compute)

    # --- service accounts and namespaces -------------------------------------------------------------------------------

    async def _token(self, call: Call, ask: Ask) -> Answer:
        body = _decode_as(_TOKEN_REQUEST, "TokenRequest", ask, call)
        metadata.settle_namespace(call, metadata.own_metadata(body))
        spec = body.get("spec") or {}
        if spec.get("expirationSeconds") is None:
            body["spec"] = {**spec, "expirationSeconds": DEFAULT_SECONDS}
        body = self._token_fields.on_create(body, call.manager, "token")
        prepared = self._issuer.prepare(call.namespace, call.name, body)
        attributes = create.attributes_of(call, prepared)
        attributes.kind = "TokenRequest"
        await self._api.admission.admit(attributes)
        await self._api.admission.validate(attributes)
        return Answer(self._issuer.sign(attributes.obj or prepared), 201)

    @cached_property
    def _token_fields(self) -> FieldManager:
        group, version, kind = types.kinds_of(_TOKEN_REQUEST)[0]
        return FieldManager(
            types.definition(_TOKEN_REQUEST),
            types.definition,
            group=group,
            version=version,
            kind=kind,
            reset_fields={},
            clock=self._api.clock,
            empty=empty_builtin(_TOKEN_REQUEST),
        )

    async def _finalize(self, call: Call, ask: Ask) -> Answer:
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
        return Answer(await call.version.load(outcome.entry))


def _decode_as(definition: str, kind: str, ask: Ask, call: Call) -> Obj:
    if not isinstance(ask.body, dict):
        raise errors.bad_request(f"a {kind} object is expected")
    found = ask.body.get("kind")
    if found not in (None, "", kind):
        raise errors.bad_request(f"no kind {go_quote(str(found))} is accepted here, send a {kind}")
    try:
        body, unknown = codec.decoder_for(definition)(ask.body)
    except codec.DecodeError as error:
        raise errors.bad_request(f'{kind} in version "v1" cannot be handled as a {kind}: {error}') from None
    bodies.report_strict(call, unknown, ask.duplicates or [])
    group_version = next(((g, v) for g, v, k in types.kinds_of(definition) if k == kind), ("", "v1"))
    body["kind"], body["apiVersion"] = kind, "/".join(part for part in group_version if part)
    return body


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


def _patched_scale(current: Obj, ask: Ask) -> Any:
    if ask.patch_type == patching.JSON_PATCH:
        return apply_json_patch(current, ask.body)
    return apply_merge_patch(current, ask.body)


def _check_scale(call: Call, wanted: Obj, current: Obj) -> None:
    name = dig(wanted, "metadata", "name", default="") or ""
    if name and name != call.name:
        raise errors.bad_request(f"the name of the object ({name}) does not match the name on the URL ({call.name})")
    replicas = dig(wanted, "spec", "replicas", default=0) or 0
    if replicas < 0:
        problem = invalid_value("spec.replicas", replicas, "must be greater than or equal to 0")
        raise errors.invalid("autoscaling", "Scale", call.name, [problem])


def _ignores_budgets(pod: Obj) -> bool:
    """Pods that are not running, or are going anyway, cost nobody a disruption."""
    if dig(pod, "status", "phase") in ("Succeeded", "Failed", "Pending"):
        return True
    return bool(pod["metadata"].get("deletionTimestamp"))


def _covers(budget: Obj, pod: Obj) -> bool:
    selector = dig(budget, "spec", "selector")
    return from_structure(selector).matches(pod["metadata"].get("labels")) if selector is not None else False


def _disruption_refused(message: str, retry: int, cause: str = "") -> errors.ApiError:
    text = cause or message
    details: Obj = {"causes": [{"reason": "DisruptionBudget", "message": text}]}
    return errors.ApiError(429, "TooManyRequests", message, details, retry)
