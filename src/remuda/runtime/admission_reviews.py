"""Answers to AdmissionReview and ConversionReview: the pure half of :mod:`.webhook_server`."""

from __future__ import annotations

import base64
import logging
from collections.abc import Iterable
from typing import Any

from remuda.kube.admission_attributes import Attributes
from remuda.kube.authorization.users import User
from remuda.kube.encoding import jsonio, jsonpatch
from remuda.kube.errors import ApiError
from remuda.kube.objects import GroupVersionKind

from .admitted_types import AdmittedType

log = logging.getLogger(__name__)

Obj = dict[str, Any]


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
