"""AdmissionReview: the question put to a webhook, and what makes its answer a valid one."""

from __future__ import annotations

import base64
import binascii
from dataclasses import dataclass, field
from typing import Any

from remuda.kube import jsonio
from remuda.kube.errors import ApiError, go_quote
from remuda.kube.objects import GroupVersionKind, GroupVersionResource

from . import Attributes, Obj

_GROUP = "admission.k8s.io"
_OPTIONS = {"CREATE": "CreateOptions", "UPDATE": "UpdateOptions", "DELETE": "DeleteOptions"}
JSON_PATCH = "JSONPatch"


class InvalidResponse(Exception):
    """A webhook answered something that is no answer; the text says what."""


@dataclass(slots=True)
class Response:
    allowed: bool
    result: Obj | None = None
    patch: list[Any] = field(default_factory=list)
    patch_type: str = ""
    patch_error: str = ""
    warnings: list[str] = field(default_factory=list)
    annotations: dict[str, str] = field(default_factory=dict)


def review_version(accepted: tuple[str, ...]) -> str | None:
    return next((version for version in accepted if version in ("v1", "v1beta1")), None)


def kind_of(attributes: Attributes) -> GroupVersionKind:
    """The kind in the request's body, which for a subresource (Scale, Eviction) may be of another group."""
    for obj in (attributes.obj, attributes.old):
        if obj is not None and obj.get("apiVersion") and obj.get("kind"):
            return GroupVersionKind.of(obj)
    return GroupVersionKind(attributes.group, attributes.version, attributes.kind)


def request_of(
    attributes: Attributes,
    uid: str,
    *,
    resource: GroupVersionResource,
    kind: GroupVersionKind,
    obj: Obj | None,
    old: Obj | None,
) -> Obj:
    """The `request` of a review; `obj` and `old` are in the version that the webhook wants."""
    asked_kind = kind_of(attributes)
    request: Obj = {
        "uid": uid,
        "kind": kind._asdict(),
        "resource": resource._asdict(),
        "requestKind": asked_kind._asdict(),
        "requestResource": {
            "group": attributes.group,
            "version": attributes.version,
            "resource": attributes.resource,
        },
        "operation": attributes.operation,
        "userInfo": attributes.user.info(),
        "object": obj,
        "oldObject": old,
        "dryRun": attributes.dry_run,
        "options": _options(attributes),
    }
    if attributes.subresource:
        request["subResource"] = request["requestSubResource"] = attributes.subresource
    if attributes.name:
        request["name"] = attributes.name
    if namespace := _namespace(attributes):
        request["namespace"] = namespace
    return request


def _namespace(attributes: Attributes) -> str:
    about_namespace = not attributes.group and attributes.resource == "namespaces"
    return attributes.namespace or (attributes.name if about_namespace else "")


def _options(attributes: Attributes) -> Obj | None:
    kind = _OPTIONS.get(attributes.operation)
    return {"kind": kind, "apiVersion": "meta.k8s.io/v1", **attributes.options} if kind else None


def review_of(request: Obj, version: str) -> Obj:
    return {"kind": "AdmissionReview", "apiVersion": f"{_GROUP}/{version}", "request": request}


def read_response(review: Obj, uid: str, version: str, mutating: bool) -> Response:
    response = review.get("response")
    if not isinstance(response, dict):
        raise InvalidResponse("webhook response was absent")
    if version == "v1":
        _check_v1(review, response, uid, mutating)
    found = Response(response.get("allowed") is True)
    result = response.get("status")
    found.result = result if isinstance(result, dict) else None
    found.warnings = [text for text in response.get("warnings") or () if isinstance(text, str)]
    annotations = response.get("auditAnnotations")
    if isinstance(annotations, dict):
        found.annotations = {key: value for key, value in annotations.items() if isinstance(value, str)}
    if mutating and response.get("patch"):
        found.patch_type = str(response.get("patchType")) if version == "v1" else JSON_PATCH
        _read_patch(found, response["patch"])
    return found


def _check_v1(review: Obj, response: Obj, uid: str, mutating: bool) -> None:
    if response.get("uid") != uid:
        raise InvalidResponse(f"expected response.uid={go_quote(uid)}, got {go_quote(str(response.get('uid') or ''))}")
    wanted = f"{_GROUP}/v1, Kind=AdmissionReview"
    kind = GroupVersionKind.of(review)
    got = f"{kind.group}/{kind.version}, Kind={kind.kind}"
    if got != wanted:
        raise InvalidResponse(f"expected webhook response of {wanted}, got {got}")
    patch, patch_type = response.get("patch"), response.get("patchType")
    if not mutating:
        if patch:
            raise InvalidResponse("validating webhook may not return response.patch")
        if patch_type is not None:
            raise InvalidResponse("validating webhook may not return response.patchType")
        return
    if patch and patch_type is None:
        raise InvalidResponse("webhook returned response.patch but not response.patchType")
    if not patch and patch_type is not None:
        raise InvalidResponse("webhook returned response.patchType but not response.patch")
    if patch_type == "":
        raise InvalidResponse('webhook returned invalid response.patchType of ""')


def _read_patch(found: Response, patch: Any) -> None:
    try:
        operations = jsonio.loads(base64.b64decode(patch, validate=True))
    except (jsonio.JsonError, binascii.Error, ValueError, TypeError) as error:
        found.patch_error = str(error)
        return
    if not isinstance(operations, list) or not all(isinstance(operation, dict) for operation in operations):
        found.patch_error = "json: cannot unmarshal value into Go value of type jsonpatch.Patch"
        return
    found.patch = operations


def denied(webhook: str, result: Obj | None) -> ApiError:
    """A refusal, as the caller sees it: the webhook's status, with who refused put before its message."""
    status = dict(result or {})
    prefix = f"admission webhook {go_quote(webhook)} denied the request"
    code = status.get("code")
    status["code"] = code if isinstance(code, int) and code >= 400 else 400
    if status.get("message"):
        status["message"] = f"{prefix}: {status['message']}"
    elif status.get("reason"):
        status["message"] = f"{prefix}: {status['reason']}"
    else:
        status["message"] = f"{prefix} without explanation"
    return ApiError.from_status(status, status["code"])
