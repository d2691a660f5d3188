"""Conversion of custom resources between the versions of their CRD.

A CRD says `None` (only apiVersion changes) or `Webhook`; our own types convert in-process. All three are a
:class:`Converter`, and all convert many objects at once, because a list over a slow webhook must cost one call.
"""

from __future__ import annotations

from typing import Any, Protocol

from remuda.kube import names
from remuda.kube.clock import Entropy
from remuda.kube.encoding.jsonio import dumps_text
from remuda.kube.errors import ConversionError, aggregate_text, go_quote
from remuda.kube.objects import GroupResource, GroupVersion, GroupVersionKind, metadata

from ..webhook_client import CallError, WebhookClient, WebhookEndpoint, json_word

Obj = dict[str, Any]


class Converter(Protocol):
    async def convert(self, objs: list[Obj], to_version: str) -> list[Obj]:
        """Each object in `to_version` (`example.com/v1`, or just `v1`), in the same order.

        The given objects are shared and stay as they are; one that already has the version is returned itself.
        """


class InProcess:
    """Converters of our own types, which need no webhook; they take precedence over the strategy in their CRD."""

    def __init__(self) -> None:
        self._converters: dict[GroupResource, Converter] = {}

    def register(self, group: str, resource: str, converter: Converter) -> None:
        self._converters[GroupResource(group, resource)] = converter

    def get(self, group: str, resource: str) -> Converter | None:
        return self._converters.get(GroupResource(group, resource))


# --- no conversion --------------------------------------------------------------------------------------------------------
#
# The conversion strategy None: versions differ only in apiVersion.


class NoConversion:
    async def convert(self, objs: list[Obj], to_version: str) -> list[Obj]:
        return [renamed(obj, api_version_for(obj, to_version)) for obj in objs]


def api_version_for(obj: Obj, to_version: str) -> str:
    """The full apiVersion: `to_version` may be short (`v1`), since conversion never leaves the object's group."""
    if "/" in to_version:
        return to_version
    group, slash, _ = str(obj.get("apiVersion") or "").partition("/")
    return f"{group}/{to_version}" if slash else to_version


def renamed(obj: Obj, to_version: str) -> Obj:
    return obj if obj.get("apiVersion") == to_version else {**obj, "apiVersion": to_version}


# --- conversion by a webhook ----------------------------------------------------------------------------------------------
#
# The conversion strategy Webhook: send a ConversionReview, take the converted objects, and accept changes only to labels and
# annotations of their metadata.
#
# A webhook may rename fields of spec and status; the identity (name, namespace, uid) and the metadata kept by the server
# (finalizers, owners, managed fields) stay as stored, regardless of the response.


_GROUP = "apiextensions.k8s.io"
TIMEOUT_SECONDS = 30


class _Invalid(Exception):
    """A converted object that is rejected."""


class WebhookConverter:
    def __init__(self, conversion: Obj, client: WebhookClient, entropy: Entropy) -> None:
        """`conversion` is a CRD's `spec.conversion.webhook`."""
        self._endpoint = WebhookEndpoint.of(conversion.get("clientConfig") or {})
        versions = conversion.get("conversionReviewVersions") or ()
        self._version = next((version for version in versions if version in ("v1", "v1beta1")), None)
        self._client = client
        self._entropy = entropy

    async def convert(self, objs: list[Obj], to_version: str) -> list[Obj]:
        if not objs:
            return []
        wanted = api_version_for(objs[0], to_version)
        pending = [obj for obj in objs if _needs_asking(obj, wanted)]
        if not pending:
            return [renamed(obj, wanted) for obj in objs]
        if self._version is None:
            raise ConversionError("no supported conversion review versions")
        answers = iter(await self._ask(self._version, pending, wanted, _about(pending[0])))
        return [_checked(obj, next(answers), wanted) if _needs_asking(obj, wanted) else renamed(obj, wanted) for obj in objs]

    async def _ask(self, version: str, objs: list[Obj], to_version: str, about: str) -> list[Any]:
        uid = self._entropy.uuid()
        review = {
            "kind": "ConversionReview",
            "apiVersion": f"{_GROUP}/{version}",
            "request": {"uid": uid, "desiredAPIVersion": to_version, "objects": objs},
            # kube-apiserver also sends an empty place for the response.
            "response": {"uid": "", "convertedObjects": None, "result": {"metadata": {}}},
        }
        try:
            answer = await self._client.post(self._endpoint, review, TIMEOUT_SECONDS)
            found = _converted_objects(answer, uid, version)
        except (CallError, _Invalid) as error:
            raise ConversionError(f"conversion webhook for {about} failed: {error}") from None
        if len(found) != len(objs):
            raise ConversionError(f"conversion webhook for {about} returned {len(found)} objects, expected {len(objs)}")
        return found


def _needs_asking(obj: Obj, api_version: str) -> bool:
    """An object that has the version already, or that has no content at all, is not sent."""
    return obj.get("apiVersion") != api_version and obj.keys() != {"apiVersion", "kind"}


def _about(obj: Obj) -> str:
    kind = GroupVersionKind.of(obj)
    return f"{kind.api_version}, Kind={kind.kind}"


def _converted_objects(review: Obj, uid: str, version: str) -> list[Any]:
    response = review.get("response")
    if version == "v1":
        kind = GroupVersionKind.of(review)
        wanted, got = f"{_GROUP}/v1, Kind=ConversionReview", f"{kind.group}/{kind.version}, Kind={kind.kind}"
        if got != wanted:
            raise _Invalid(f"expected webhook response of {wanted}, got {got}")
    if not isinstance(response, dict):
        raise _Invalid("no response provided")
    if version == "v1" and response.get("uid") != uid:
        raise _Invalid(f"expected response.uid={go_quote(uid)}, got {go_quote(str(response.get('uid') or ''))}")
    result = response.get("result")
    result = result if isinstance(result, dict) else {}
    if result.get("status") != "Success":
        raise _Invalid(result.get("message") or f"response.result.status was '{result.get('status') or ''}', not 'Success'")
    found = response.get("convertedObjects") or []
    if not isinstance(found, list):
        raise _Invalid("response.convertedObjects is not a list")
    return found


def _checked(original: Obj, converted: Any, to_version: str) -> Obj:
    # Clients get these texts for one object at a time, even when many objects were sent together.
    about = f"conversion webhook for {_about(original)} returned"
    _check_readable(converted)
    try:
        _check_version(original, converted, to_version)
    except _Invalid as error:
        raise ConversionError(f"{about} invalid object at index 0: {error}") from None
    try:
        _check_identity(metadata(original), metadata(converted))
    except _Invalid as error:
        raise ConversionError(f"{about} invalid object: {error}") from None
    try:
        return {**converted, "metadata": _restored(metadata(original), converted.get("metadata"))}
    except _Invalid as error:
        raise ConversionError(f"{about} invalid metadata: {error}") from None


def _check_readable(converted: Any) -> None:
    """Report something that is not even an object with a kind, without naming the webhook."""
    if not isinstance(converted, dict):
        raise ConversionError(f"json: cannot unmarshal {json_word(converted)} into Go value of type map[string]interface {{}}")
    if not converted.get("kind"):
        raise ConversionError(f"Object 'Kind' is missing in '{dumps_text(converted)}'")


def _check_version(original: Obj, converted: Any, to_version: str) -> None:
    got = str(converted.get("apiVersion") or "")
    if GroupVersion.parse(got) != GroupVersion.parse(to_version):
        raise _Invalid(f"invalid groupVersion (expected {to_version}, received {got or '/'})")
    if original.get("kind") != converted.get("kind"):
        raise _Invalid(f"invalid kind (expected {original.get('kind')}, received {converted.get('kind') or ''})")


def _check_identity(before: Obj, after: Obj) -> None:
    for field, word in (("name", "name"), ("namespace", "namespace"), ("uid", "UID")):
        if (before.get(field) or "") != (after.get(field) or ""):
            raise _Invalid(f"must have the same {word}: {before.get(field) or ''} != {after.get(field) or ''}")


def _restored(original: Obj, answered: Any) -> Obj:
    """The original metadata with the answer's labels and annotations."""
    if answered is None:
        raise _Invalid("missing metadata in converted object")
    if not isinstance(answered, dict):
        raise _Invalid(f"invalid metadata of type {_go_type(answered)} in converted object")
    restored = dict(original)
    for field in ("labels", "annotations"):
        values = answered.get(field)
        if values is None:
            restored.pop(field, None)
            continue
        if not isinstance(values, dict):
            raise _Invalid(f"invalid metadata.{field} of type {_go_type(values)} in converted object")
        for key, value in values.items():
            if not isinstance(value, str):
                raise _Invalid(f"metadata.{field}[{key}] must be a string, but is {_go_type(value)} in converted object")
        if values != original.get(field):
            _check_map(field, values)
        restored[field] = values
    return restored


def _check_map(field: str, values: dict[str, str]) -> None:
    if field == "labels":
        errors = names.label_errors(values, "metadata.labels")
    else:
        errors = names.annotation_errors(values, "metadata.annotation")
    if errors:
        raise _Invalid(aggregate_text([str(error) for error in errors]))


def _go_type(value: Any) -> str:
    if isinstance(value, bool):
        return "bool"
    if isinstance(value, list):
        return "[]interface {}"
    return {str: "string", int: "int64", float: "float64", dict: "map[string]interface {}"}.get(type(value), "<nil>")
