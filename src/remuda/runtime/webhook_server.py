"""Our admission on a real Kubernetes: an HTTPS server for the webhooks, and the upkeep of its registration.

:class:`WebhookServer` serves the types of :mod:`.admitted_types`, with certificates of our own (:mod:`.webhook_certificates`).
It also keeps the webhook configurations and the CRDs' conversion pointing at itself with the current CAs: nothing
else has to be installed, and a broken registration is repaired within a minute.
"""

from __future__ import annotations

import base64
import logging
import tempfile
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from aiohttp import web

from remuda.client.interface import MERGE_PATCH, Client
from remuda.client.server_side_apply import apply_owned
from remuda.kube.admission_attributes import Attributes
from remuda.kube.authorization.users import User
from remuda.kube.builtin_resources import CRDS
from remuda.kube.clock import Clock, Rng
from remuda.kube.encoding import jsonio, jsonpatch
from remuda.kube.errors import ApiError
from remuda.kube.network import tls
from remuda.kube.network.unreadable import Runner
from remuda.kube.objects import GroupVersionKind, GroupVersionResource, dig

from .admitted_types import AdmittedType
from .webhook_certificates import SharedCertificates, WebhookCertificates

log = logging.getLogger(__name__)

Obj = dict[str, Any]
MUTATING = GroupVersionResource("admissionregistration.k8s.io", "v1", "mutatingwebhookconfigurations")
VALIDATING = GroupVersionResource("admissionregistration.k8s.io", "v1", "validatingwebhookconfigurations")

_LARGEST_BODY = 16 * 2**20
_CONVERT = "/convert"


@dataclass(frozen=True, slots=True)
class WebhookAddress:
    """The address at which the API server reaches us: a Service, or a URL (`https://host:port`) when we run beside it."""

    url: str = ""
    namespace: str = ""
    service: str = ""
    port: int = 443

    def client_config(self, path: str, bundle: bytes) -> Obj:
        trusted = {"caBundle": base64.b64encode(bundle).decode()}
        if self.url:
            return {"url": self.url + path, **trusted}
        return {"service": {"namespace": self.namespace, "name": self.service, "port": self.port, "path": path}, **trusted}

    def names(self) -> tuple[str, ...]:
        """The names for which the serving certificate must be valid."""
        if self.url:
            return (self.url.removeprefix("https://").rpartition(":")[0].strip("[]"),)
        return (f"{self.service}.{self.namespace}.svc", f"{self.service}.{self.namespace}.svc.cluster.local")


def path_of(verb: str, of: AdmittedType) -> str:
    """`/mutate-…` or `/validate-…`, spelled as controller-runtime does."""
    return f"/{verb}-{of.group.replace('.', '-')}-{of.version}-{of.kind.lower()}"


def mutating_configuration(name: str, types: Sequence[AdmittedType], address: WebhookAddress, bundle: bytes) -> Obj:
    hooks = [
        _hook(_name("default", each), "mutate", each, ("CREATE", "UPDATE"), address, bundle) for each in types if each.mutates
    ]
    return _configuration("MutatingWebhookConfiguration", name, hooks)


def validating_configuration(name: str, types: Sequence[AdmittedType], address: WebhookAddress, bundle: bytes) -> Obj:
    hooks = [
        _hook(_name("validation", each), "validate", each, each.validated_operations, address, bundle)
        for each in types
        if each.validate is not None
    ]
    return _configuration("ValidatingWebhookConfiguration", name, hooks)


def _name(what: str, of: AdmittedType) -> str:
    return f"{what}.{of.kind.lower()}.{of.group or 'core'}"


def _configuration(kind: str, name: str, hooks: list[Obj]) -> Obj:
    return {"apiVersion": "admissionregistration.k8s.io/v1", "kind": kind, "metadata": {"name": name}, "webhooks": hooks}


def _hook(name: str, verb: str, of: AdmittedType, operations: Sequence[str], address: WebhookAddress, bundle: bytes) -> Obj:
    within = [{"key": "kubernetes.io/metadata.name", "operator": "In", "values": list(of.namespaces)}]
    return {
        "name": name,
        "admissionReviewVersions": ["v1"],
        "sideEffects": "NoneOnDryRun" if verb == "mutate" and of.mutate is not None else "None",
        "failurePolicy": "Fail",
        "matchPolicy": "Equivalent",
        "rules": [
            {
                "apiGroups": [of.group],
                "apiVersions": [of.version],
                "resources": [of.resource],
                "operations": list(operations),
                "scope": "*",
            }
        ],
        "clientConfig": address.client_config(path_of(verb, of), bundle),
        **({"namespaceSelector": {"matchExpressions": within}} if of.namespaces else {}),
        **({"matchConditions": [{"name": "concerned", "expression": of.only_if}]} if of.only_if else {}),
    }


def conversion_of(address: WebhookAddress, bundle: bytes) -> Obj:
    """A CRD's `spec.conversion`."""
    webhook = {"clientConfig": address.client_config(_CONVERT, bundle), "conversionReviewVersions": ["v1"]}
    return {"strategy": "Webhook", "webhook": webhook}


class Registration:
    """The registration of our types' webhooks at the API server."""

    def __init__(self, client: Client, name: str, types: Sequence[AdmittedType], address: WebhookAddress) -> None:
        self._client = client
        self._name = name
        self._types = tuple(types)
        self._address = address

    async def ensure(self, bundle: bytes) -> None:
        """Point all registrations at us; writes only differences."""
        for resource, make in ((MUTATING, mutating_configuration), (VALIDATING, validating_configuration)):
            wanted = make(self._name, self._types, self._address, bundle)
            if wanted["webhooks"]:
                await apply_owned(self._client, resource, wanted, self._name)
        for each in self._types:
            if each.convert is not None:
                await self._ensure_conversion(f"{each.resource}.{each.group}", bundle)

    async def _ensure_conversion(self, crd: str, bundle: bytes) -> None:
        wanted = conversion_of(self._address, bundle)
        try:
            found = await self._client.get(CRDS, crd)
        except ApiError as error:
            if error.is_not_found:
                # Not installed yet; the next check will find it.
                return
            raise
        if not _covers(dig(found, "spec", "conversion"), wanted):
            patch = {"spec": {"conversion": wanted}}
            await self._client.patch(CRDS, crd, patch, patch_type=MERGE_PATCH, field_manager=self._name)


def _covers(found: Any, wanted: Any) -> bool:
    """True if `found` has all that is wanted; a server's defaults don't matter."""
    if isinstance(wanted, dict):
        return isinstance(found, dict) and all(_covers(found.get(key), value) for key, value in wanted.items())
    return bool(found == wanted)


class WebhookServer:
    """Listen with `open`, then `run` until cancelled, then `close`. Every replica serves, not only the leader."""

    def __init__(
        self,
        types: Sequence[AdmittedType],
        certificates: SharedCertificates,
        registration: Registration | None,
        clock: Clock,
        rng: Rng,
        *,
        every: float = 60.0,
    ) -> None:
        """`every`: the interval of checks of certificates and registration."""
        self._types = tuple(types)
        self._certificates = certificates
        self._registration = registration
        self._clock = clock
        self._rng = rng
        self._every = every
        self._context = tls.server_context()
        self._shown: WebhookCertificates | None = None
        self._runner: web.AppRunner | None = None
        self.port = 0

    async def open(self, host: str, port: int) -> None:
        """Prepare certificates, listen, register."""
        self._show(await self._certificates.current())
        app = web.Application(client_max_size=_LARGEST_BODY)
        app.add_routes(self._routes())
        self._runner = Runner(app, access_log=None)
        await self._runner.setup()
        site = web.TCPSite(self._runner, host, port, ssl_context=self._context)
        await site.start()
        self.port = self._runner.addresses[0][1]
        await self._look()

    async def run(self) -> None:
        """Keep certificates and registration up to date until cancelled."""
        while True:
            await self._clock.sleep(self._every * self._rng.uniform(0.9, 1.1))
            try:
                await self._look()
            except (ApiError, OSError) as error:
                log.warning("webhook certificates and registration: %s", error)

    async def close(self) -> None:
        if self._runner is not None:
            await self._runner.cleanup()
            self._runner = None

    async def _look(self) -> None:
        material = await self._certificates.current()
        if self._registration is not None:
            # First clients trust it, then it is served.
            await self._registration.ensure(material.bundle)
        self._show(material)

    def _show(self, material: WebhookCertificates) -> None:
        if self._shown is not None and self._shown.certificate == material.certificate:
            self._shown = material
            return
        # The context accepts only files; new connections get the new certificate, open ones keep theirs.
        with tempfile.TemporaryDirectory(prefix="remuda-webhook-") as directory:
            certificate, key = Path(directory) / "tls.crt", Path(directory) / "tls.key"
            certificate.write_bytes(material.certificate)
            key.touch(mode=0o600)
            key.write_bytes(material.key)
            self._context.load_cert_chain(certificate, key)
        self._shown = material

    # --- requests ------------------------------------------------------------------------------------------------------

    def _routes(self) -> list[web.RouteDef]:
        routes = [web.post(_CONVERT, self._convert), web.get("/healthz", self._healthy)]
        for each in self._types:
            if each.mutates:
                routes.append(web.post(path_of("mutate", each), self._admission(each, True)))
            if each.validate is not None:
                routes.append(web.post(path_of("validate", each), self._admission(each, False)))
        return routes

    def _admission(self, of: AdmittedType, mutating: bool) -> Any:
        async def answer(request: web.Request) -> web.Response:
            return await _answered(request, lambda review: verified_admission(review, of, mutating=mutating))

        return answer

    async def _convert(self, request: web.Request) -> web.Response:
        async def answer(review: Any) -> Obj:
            return conversion(review, self._types)

        return await _answered(request, answer)

    async def _healthy(self, request: web.Request) -> web.Response:
        return web.Response(text="ok")


async def _answered(request: web.Request, answer: Any) -> web.Response:
    try:
        review = jsonio.loads(await request.read())
        body = await answer(review)
    except (jsonio.JsonError, BadReview) as error:
        return web.Response(status=400, text=str(error))
    except ConnectionError:
        # The client does not wait for the answer any more.
        return web.Response(status=400)
    return web.Response(body=jsonio.dumps(body), content_type="application/json")


# --- reviews --------------------------------------------------------------------------------------------------------------
#
# Answers to AdmissionReview and ConversionReview. Pure.


class BadReview(Exception):
    """The request body is no valid review."""


def _request(review: Any, kind: str) -> Obj:
    request = review.get("request") if isinstance(review, dict) else None
    if not isinstance(request, dict) or review.get("kind") != kind or not request.get("uid"):
        raise BadReview(f"the body is no {kind} with a request")
    return request


def _attributes(request: Obj) -> Attributes:
    resource, kind, user = request.get("resource") or {}, request.get("kind") or {}, request.get("userInfo") or {}
    return Attributes(
        operation=request.get("operation") or "",
        group=resource.get("group") or "",
        version=resource.get("version") or "",
        resource=resource.get("resource") or "",
        kind=kind.get("kind") or "",
        namespace=request.get("namespace") or "",
        name=request.get("name") or "",
        user=User(user.get("username") or "", user.get("uid") or "", tuple(user.get("groups") or ()), user.get("extra") or {}),
        subresource=request.get("subResource") or "",
        obj=request.get("object"),
        old=request.get("oldObject"),
        options=request.get("options") or {},
        dry_run=bool(request.get("dryRun")),
    )


def admission(review: Any, of: AdmittedType, *, mutating: bool) -> Obj:
    """The review with its response, as far as the object alone decides it."""
    request = _request(review, "AdmissionReview")
    attributes = _attributes(request)
    response: Obj = {"uid": request["uid"], "allowed": True}
    try:
        if mutating:
            response |= _patch(attributes, of.defaulted(attributes))
        else:
            of.check(attributes)
    except Exception as error:
        response |= _refused(error, of, attributes)
    return _reviewed(review, response, attributes.warnings)


async def verified_admission(review: Any, of: AdmittedType, *, mutating: bool) -> Obj:
    """The review with its response."""
    if mutating and of.mutate is not None:
        return await _mutated(review, of)
    answered = admission(review, of, mutating=mutating)
    response = answered["response"]
    if mutating or of.verify is None or not response["allowed"]:
        return answered
    attributes = _attributes(_request(review, "AdmissionReview"))
    attributes.warnings += response.get("warnings") or ()
    try:
        await of.verified(attributes)
    except Exception as error:
        response |= _refused(error, of, attributes)
    return _reviewed(review, response, attributes.warnings)


async def _mutated(review: Any, of: AdmittedType) -> Obj:
    request = _request(review, "AdmissionReview")
    attributes = _attributes(request)
    response: Obj = {"uid": request["uid"], "allowed": True}
    try:
        response |= _patch(attributes, await of.mutated(attributes))
    except Exception as error:
        response |= _refused(error, of, attributes)
    return _reviewed(review, response, attributes.warnings)


def _refused(error: Exception, of: AdmittedType, attributes: Attributes) -> Obj:
    if isinstance(error, ApiError):
        return {"allowed": False, "status": _status(error)}
    log.error("%s of %s %s failed", attributes.operation, of.kind, attributes.display_name, exc_info=error)
    return {"allowed": False, "status": _status(ApiError(500, "InternalError", "the webhook failed; its log says why"))}


def _reviewed(review: Any, response: Obj, warnings: list[str]) -> Obj:
    told = {**response, "warnings": warnings} if warnings else response
    return {"apiVersion": review["apiVersion"], "kind": "AdmissionReview", "response": told}


def _patch(attributes: Attributes, changed: Obj | None) -> Obj:
    operations = [] if changed is None else jsonpatch.diff(attributes.obj, changed)
    if not operations:
        return {}
    return {"patchType": "JSONPatch", "patch": base64.b64encode(jsonio.dumps(operations)).decode()}


def _status(error: ApiError) -> Obj:
    return {key: value for key, value in error.status().items() if key in ("status", "message", "reason", "details", "code")}


def conversion(review: Any, types: Iterable[AdmittedType]) -> Obj:
    """The review with its response; one object that can't be converted fails all, as the API server requires."""
    request = _request(review, "ConversionReview")
    by_kind = {(each.group, each.kind): each for each in types if each.convert is not None}
    wanted = str(request.get("desiredAPIVersion") or "")
    response: Obj = {"uid": request["uid"]}
    try:
        response["convertedObjects"] = [_converted(by_kind, obj, wanted) for obj in request.get("objects") or ()]
        response["result"] = {"status": "Success"}
    except ApiError as error:
        response["result"] = {"status": "Failure", "message": error.message}
    except Exception as error:
        log.exception("conversion to %s failed", wanted)
        response["result"] = {"status": "Failure", "message": f"{type(error).__name__}: {error}"}
    return {"apiVersion": review["apiVersion"], "kind": "ConversionReview", "response": response}


def _converted(by_kind: dict[tuple[str, str], AdmittedType], obj: Obj, wanted: str) -> Obj:
    if obj.get("apiVersion") == wanted:
        return obj
    group, _, kind = GroupVersionKind.of(obj)
    of = by_kind.get((group, kind))
    if of is None or of.convert is None:
        raise ApiError(400, "BadRequest", f"{kind}.{group} is not converted here")
    return of.convert(obj, wanted)
