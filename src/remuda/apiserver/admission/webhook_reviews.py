"""AdmissionReview: the request to a webhook, and the validation of its response."""

from __future__ import annotations

import base64
import binascii
from dataclasses import dataclass, field
from typing import Any

from remuda.kube.admission_attributes import Attributes, Obj
from remuda.kube.encoding import jsonio
from remuda.kube.errors import ApiError, go_quote
from remuda.kube.objects import GroupVersionKind, GroupVersionResource

from ..webhook_client import json_word

_GROUP = "admission.k8s.io"
_OPTIONS = {"CREATE": "CreateOptions", "UPDATE": "UpdateOptions", "DELETE": "DeleteOptions"}
JSON_PATCH = "JSONPatch"


class InvalidResponse(Exception):
    """An invalid response of a webhook; the text says why."""


class Undecodable(Exception):
    """A response with a field of the wrong type."""


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
    """The kind of the request's body; for a subresource (Scale, Eviction) it may be of another group."""
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
    """The `request` of a review; `obj` and `old` are in the version that the webhook expects."""
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


_FIELDS = {
    "uid": (str, "types.UID"),
    "allowed": (bool, "bool"),
    "status": (dict, "v1.Status"),
    "patch": (str, "[]uint8"),
    "patchType": (str, "v1.PatchType"),
    "auditAnnotations": (dict, "map[string]string"),
    "warnings": (list, "[]string"),
}


def _check_types(response: Obj) -> None:
    for name, (wanted, word) in _FIELDS.items():
        value = response.get(name)
        if value is not None and not isinstance(value, wanted):
            raise _wrong_type(name, value, word)
    for inner in (*(response.get("warnings") or ()), *(response.get("auditAnnotations") or {}).values()):
        if not isinstance(inner, str):
            name = "warnings" if inner in (response.get("warnings") or ()) else "auditAnnotations"
            raise _wrong_type(name, inner, "string")


def _wrong_type(name: str, value: Any, wanted: str) -> Undecodable:
    field_name = f"AdmissionResponse.response.{name}"
    return Undecodable(f"json: cannot unmarshal {json_word(value)} into Go struct field {field_name} of type {wanted}")


def read_response(review: Obj, uid: str, version: str, mutating: bool) -> Response:
    response = review.get("response")
    if response is None:
        raise InvalidResponse("webhook response was absent")
    if not isinstance(response, dict):
        where = "AdmissionReview.response of type v1.AdmissionResponse"
        raise Undecodable(f"json: cannot unmarshal {json_word(response)} into Go struct field {where}")
    _check_types(response)
    patch = _patch_bytes(response.get("patch") or "")
    if version == "v1":
        _check_v1(review, response, uid, mutating)
    found = Response(response.get("allowed") is True, response.get("status"))
    found.warnings = response.get("warnings") or []
    found.annotations = response.get("auditAnnotations") or {}
    if mutating and patch:
        found.patch_type = response["patchType"] if version == "v1" else JSON_PATCH
        _read_patch(found, patch)
    return found


def _patch_bytes(text: str) -> bytes:
    try:
        return base64.b64decode(text, validate=True)
    except (binascii.Error, ValueError):
        stripped = text.rstrip("=")
        at = next((i for i, char in enumerate(stripped) if not (char.isascii() and (char.isalnum() or char in "+/"))), len(text))
        raise Undecodable(f"illegal base64 data at input byte {at}") from None


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


def _read_patch(found: Response, patch: bytes) -> None:
    try:
        if jsonio.depth_exceeds(patch):
            raise jsonio.JsonError("exceeded max depth")
        operations = jsonio.loads_as_go(patch)[0]
    except jsonio.JsonError as error:
        found.patch_error = str(error)
        return
    if operations is None:
        operations = []
    if isinstance(operations, list):
        operations = [{} if operation is None else operation for operation in operations]
    if not isinstance(operations, list) or not all(isinstance(operation, dict) for operation in operations):
        word = json_word(operations)
        found.patch_error = f"json: cannot unmarshal {word} into Go value of type jsonpatch.Patch"
        return
    found.patch = operations


def denied(webhook: str, result: Obj | None) -> ApiError:
    """A denial as the caller sees it: the webhook's status, its message prefixed with the webhook's name."""
    status = dict(result or {})
    prefix = f"admission webhook {go_quote(webhook)} denied the request"
    code = status.get("code")
    status["code"] = code if isinstance(code, int) and 400 <= code <= 999 else 400
    if status.get("message"):
        status["message"] = f"{prefix}: {status['message']}"
    elif status.get("reason"):
        status["message"] = f"{prefix}: {status['reason']}"
    else:
        status["message"] = f"{prefix} without explanation"
    return ApiError.from_status(status, status["code"])
