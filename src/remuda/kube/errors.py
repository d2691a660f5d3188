"""Errors as a Kubernetes client sees them: one exception that carries a `Status`, and field errors that become its causes.

The code that raises says what is wrong with which object; the HTTP edge and the in-process client both hand the same
`Status` on. Texts follow kube-apiserver's, because people and programs match on them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from decimal import Decimal
from typing import Any

import msgspec

Obj = dict[str, Any]


class ApiError(Exception):
    """A request that failed, with all fields of its `Status`."""

    def __init__(self, code: int, reason: str, message: str, details: Obj | None = None, retry_after: int = 0) -> None:
        super().__init__(message)
        self.code = code
        self.reason = reason
        self.message = message
        self.details = details
        self.retry_after = retry_after
        # The response to an expired list has a token to continue with, in the Status' own metadata.
        self.continue_token = ""
        # The HTTP body that replaces the Status, if any.
        self.page = ""
        # Warnings for the client.
        self.warnings: list[str] = []

    def status(self) -> Obj:
        metadata = {"continue": self.continue_token} if self.continue_token else {}
        body: Obj = {"kind": "Status", "apiVersion": "v1", "metadata": metadata, "status": "Failure", "message": self.message}
        if self.reason:
            body["reason"] = self.reason
        details = dict(self.details) if self.details else {}
        if self.retry_after:
            details["retryAfterSeconds"] = self.retry_after
        if details or self.details is not None:
            body["details"] = details
        body["code"] = self.code
        return body

    @classmethod
    def from_status(cls, status: Obj, code: int = 500) -> ApiError:
        """The status may come from any server: an invalid code or number counts as absent."""
        details = status.get("details")
        said, after = status.get("code"), details.get("retryAfterSeconds") if isinstance(details, dict) else 0
        return cls(
            said if isinstance(said, int) and 100 <= said <= 999 else code,
            str(status.get("reason") or ""),
            str(status.get("message") or ""),
            details if isinstance(details, dict) else None,
            after if isinstance(after, int) and 0 < after < 1 << 31 else 0,
        )

    def __repr__(self) -> str:
        return f"ApiError({self.code}, {self.reason!r}, {self.message!r})"

    @property
    def is_not_found(self) -> bool:
        return self.reason == "NotFound" or (not self.reason and self.code == 404)

    @property
    def is_conflict(self) -> bool:
        return self.reason == "Conflict"

    @property
    def is_already_exists(self) -> bool:
        return self.reason == "AlreadyExists"

    @property
    def is_gone(self) -> bool:
        return self.reason in ("Expired", "Gone")

    @property
    def needs_user(self) -> bool:
        """True if a retry alone does not help: the request is forbidden, invalid or denied, or a webhook it depends on fails."""
        return self.code in (400, 403, 422) or any(text in self.message for text in _OF_WEBHOOKS)


# How kube-apiserver's messages name a webhook that fails, one that denies a request, and one that does not convert objects.
_OF_WEBHOOKS = ("failed calling webhook ", "admission webhook ", "conversion webhook for ")


class ConversionError(ApiError):
    """Objects that could not be converted to the wanted version; clients see the text."""

    def __init__(self, message: str) -> None:
        super().__init__(500, "", message)


def _qualified(group: str, resource: str) -> str:
    return f"{resource}.{group}" if group else resource


def _details(group: str, kind: str, name: str = "", causes: list[Obj] | None = None) -> Obj:
    details: Obj = {}
    if name:
        details["name"] = name
    if group:
        details["group"] = group
    if kind:
        details["kind"] = kind
    if causes:
        details["causes"] = causes
    return details


def not_found(group: str, resource: str, name: str) -> ApiError:
    message = f'{_qualified(group, resource)} "{name}" not found'
    return ApiError(404, "NotFound", message, _details(group, resource, name))


def no_such_path() -> ApiError:
    """The response to a path that we do not serve."""
    return ApiError(404, "NotFound", "the server could not find the requested resource", {})


def not_offered(group: str, resource: str, subresource: str, why: str) -> ApiError:
    """The response for a subresource that Kubernetes has and this server does not."""
    return ApiError(404, "NotFound", f"{_qualified(group, resource)}/{subresource} is not served: {why}", {})


def page_not_found() -> ApiError:
    """The response to a path of an unknown group; over HTTP it is a line of text."""
    error = no_such_path()
    error.page = "404 page not found\n"
    return error


def already_exists(group: str, resource: str, name: str) -> ApiError:
    message = f'{_qualified(group, resource)} "{name}" already exists'
    return ApiError(409, "AlreadyExists", message, _details(group, resource, name))


def conflict(group: str, resource: str, name: str, why: str) -> ApiError:
    message = f'Operation cannot be fulfilled on {_qualified(group, resource)} "{name}": {why}'
    return ApiError(409, "Conflict", message, _details(group, resource, name))


STALE = "the object has been modified; please apply your changes to the latest version and try again"


def stale(group: str, resource: str, name: str) -> ApiError:
    return conflict(group, resource, name, STALE)


def bad_request(message: str) -> ApiError:
    return ApiError(400, "BadRequest", message)


class Unreadable(ApiError):
    """An object that can't be read as its kind.

    `why` is the reason alone, `restoring` the same in the words of the converter for strategic patches.
    """

    def __init__(self, kind: str, version: str, wanted: str, why: str, restoring: str = "") -> None:
        message = f"{kind} in version {go_quote(version)} cannot be handled as a {wanted}: {why}"
        super().__init__(400, "BadRequest", message)
        self.why = why
        self.restoring = restoring or why


def unauthorized(message: str = "Unauthorized") -> ApiError:
    return ApiError(401, "Unauthorized", message)


def forbidden(group: str, resource: str, name: str, why: str) -> ApiError:
    if not resource:
        message = f"forbidden: {why}"
    elif name:
        message = f'{_qualified(group, resource)} "{name}" is forbidden: {why}'
    else:
        message = f"{_qualified(group, resource)} is forbidden: {why}"
    return ApiError(403, "Forbidden", message, _details(group, resource, name))


def method_not_allowed() -> ApiError:
    return ApiError(405, "MethodNotAllowed", "the server does not allow this method on the requested resource", {})


def expired(message: str) -> ApiError:
    return ApiError(410, "Expired", message)


def gone(message: str) -> ApiError:
    return ApiError(410, "Gone", message)


def timeout(message: str) -> ApiError:
    return ApiError(504, "Timeout", f"Timeout: {message}", {})


def too_large(message: str) -> ApiError:
    return ApiError(413, "RequestEntityTooLarge", f"Request entity too large: {message}")


def too_many_requests(message: str, retry_after: int = 1) -> ApiError:
    return ApiError(429, "TooManyRequests", message, {}, retry_after)


def internal(message: str) -> ApiError:
    details = {"causes": [{"message": message}]}
    return ApiError(500, "InternalError", f"Internal error occurred: {message}", details)


def unavailable(message: str, retry_after: int = 0) -> ApiError:
    return ApiError(503, "ServiceUnavailable", message, None, retry_after)


class OutOfReach(ApiError):
    """A server can't be reached now. `watch` calls back when that may have changed, until its result is called."""

    def __init__(self, message: str, watch: Callable[[Callable[[], None]], Callable[[], None]], retry_after: int = 0) -> None:
        super().__init__(503, "ServiceUnavailable", message, None, retry_after)
        self.watch = watch


def unsupported_media_type(message: str) -> ApiError:
    return ApiError(415, "UnsupportedMediaType", message)


def not_acceptable(message: str) -> ApiError:
    return ApiError(406, "NotAcceptable", message)


# ---------------------------------------------------------------------------------------------------------------------
# Field errors

REQUIRED = "FieldValueRequired"
INVALID = "FieldValueInvalid"
TYPE_INVALID = "FieldValueTypeInvalid"
NOT_SUPPORTED = "FieldValueNotSupported"
DUPLICATE = "FieldValueDuplicate"
FORBIDDEN = "FieldValueForbidden"
TOO_LONG = "FieldValueTooLong"
TOO_SHORT = "FieldValueTooShort"
TOO_MANY = "FieldValueTooMany"
TOO_FEW = "FieldValueTooFew"
NOT_FOUND = "FieldValueNotFound"
INTERNAL = "InternalError"

_WORDS = {
    REQUIRED: "Required value",
    INVALID: "Invalid value",
    TYPE_INVALID: "Invalid value",
    NOT_SUPPORTED: "Unsupported value",
    DUPLICATE: "Duplicate value",
    FORBIDDEN: "Forbidden",
    TOO_LONG: "Too long",
    TOO_SHORT: "Too short",
    TOO_MANY: "Too many",
    TOO_FEW: "Too few",
    NOT_FOUND: "Not found",
    INTERNAL: "Internal error",
}
_WITHOUT_VALUE = frozenset((REQUIRED, FORBIDDEN, TOO_LONG, TOO_SHORT, INTERNAL))


class _Omitted:
    """Marks a field error without a value although its type usually has one."""


OMITTED = _Omitted()


class Verbatim(str):
    """A bad value that is already in the form for a field error: no quotes are added."""

    __slots__ = ()


def go_quote(text: str) -> str:
    """`text` as Go's %q prints it."""
    if not text.isprintable():
        text = "".join(_QUOTED.get(char) or (char if char.isprintable() else _go_escape(char)) for char in text)
    else:
        text = text.replace("\\", "\\\\").replace('"', '\\"')
    return f'"{text}"'


_QUOTED = {
    '"': '\\"',
    "\\": "\\\\",
    "\a": "\\a",
    "\b": "\\b",
    "\f": "\\f",
    "\n": "\\n",
    "\r": "\\r",
    "\t": "\\t",
    "\v": "\\v",
}


def _go_escape(char: str) -> str:
    code = ord(char)
    if code < 0x80:
        return f"\\x{code:02x}"
    return f"\\u{code:04x}" if code < 0x10000 else f"\\U{code:08x}"


def go_float(value: float) -> str:
    """A float as Go's %v prints it: shortest digits, with an exponent below 1e-4 and from 1e6 on."""
    if value != value or value in (float("inf"), float("-inf")):
        return "NaN" if value != value else "+Inf" if value > 0 else "-Inf"
    if value == 0:
        return "0"
    sign, digits, exponent = Decimal(repr(float(value))).as_tuple()
    shown = "".join(map(str, digits)).rstrip("0")
    magnitude = len(digits) + int(exponent) - 1
    minus = "-" if sign else ""
    if magnitude < -4 or magnitude >= 6:
        mantissa = shown[0] + ("." + shown[1:] if len(shown) > 1 else "")
        return f"{minus}{mantissa}e{'+' if magnitude >= 0 else '-'}{abs(magnitude):02d}"
    if magnitude < 0:
        return f"{minus}0.{'0' * (-magnitude - 1)}{shown}"
    whole = shown[: magnitude + 1].ljust(magnitude + 1, "0")
    return f"{minus}{whole}" + (f".{shown[magnitude + 1 :]}" if len(shown) > magnitude + 1 else "")


def show_value(value: Any) -> str:
    """A bad value as field errors print it: quoted strings, plain numbers, JSON for the rest."""
    if value is None:
        return "null"
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, int):
        return str(value)
    if isinstance(value, float):
        return go_float(value)
    if isinstance(value, str):
        return str(value) if isinstance(value, Verbatim) else go_quote(value)
    # Not by `encoding.jsonio`: `encoding` raises these errors.
    return msgspec.json.encode(_sorted(value)).decode().translate(_ESCAPED)


# Go's JSON is safe inside HTML.
_ESCAPED = {ord(char): f"\\u{ord(char):04x}" for char in "<>&\u2028\u2029"}


def _sorted(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _sorted(value[key]) for key in sorted(value)}
    if isinstance(value, list):
        return [_sorted(item) for item in value]
    if isinstance(value, float) and abs(value) < 1e21 and value == int(value):
        return int(value)
    return value


@dataclass(frozen=True, slots=True)
class FieldError:
    """One error in one field. `field` is a path such as `spec.containers[0].image`."""

    type: str
    field: str
    value: Any = OMITTED
    detail: str = ""

    def body(self) -> str:
        text = _WORDS[self.type]
        if self.type not in _WITHOUT_VALUE and self.value is not OMITTED:
            text = f"{text}: {show_value(self.value)}"
        return f"{text}: {self.detail}" if self.detail else text

    def __str__(self) -> str:
        return f"{self.field}: {self.body()}"

    def cause(self) -> Obj:
        return {"reason": self.type, "message": self.body(), "field": self.field}

    def under(self, prefix: str) -> FieldError:
        return FieldError(self.type, join_path(prefix, self.field), self.value, self.detail)


def join_path(prefix: str, field: str) -> str:
    if not prefix or not field:
        return prefix or field
    return prefix + field if field.startswith("[") else f"{prefix}.{field}"


def required(path: str, detail: str = "") -> FieldError:
    return FieldError(REQUIRED, path, "", detail)


def invalid_value(path: str, value: Any, detail: str) -> FieldError:
    return FieldError(INVALID, path, value, detail)


def not_supported(path: str, value: Any, supported: Iterable[str]) -> FieldError:
    listed = ", ".join(go_quote(item) for item in supported)
    return FieldError(NOT_SUPPORTED, path, value, f"supported values: {listed}" if listed else "")


def duplicate(path: str, value: Any) -> FieldError:
    return FieldError(DUPLICATE, path, value)


def forbidden_field(path: str, detail: str) -> FieldError:
    return FieldError(FORBIDDEN, path, "", detail)


def too_long(path: str, limit: int) -> FieldError:
    unit = "byte" if limit == 1 else "bytes"
    return FieldError(TOO_LONG, path, "", f"may not be more than {limit} {unit}" if limit >= 0 else "")


def too_many(path: str, actual: int, limit: int) -> FieldError:
    unit = "item" if limit == 1 else "items"
    return FieldError(TOO_MANY, path, actual, f"must have at most {limit} {unit}")


def value_not_found(path: str, value: Any) -> FieldError:
    return FieldError(NOT_FOUND, path, value)


def aggregate_text(messages: list[str]) -> str:
    """Several messages as Go's error aggregates print them."""
    return messages[0] if len(messages) == 1 else "[" + ", ".join(messages) + "]"


# Only so many errors of an object are reported: a response must not be much larger than the request.
MAX_ERRORS = 1000
MAX_ERROR_TEXT = 1024 * 1024


def invalid(group: str, kind: str, name: str, errors: Iterable[FieldError]) -> ApiError:
    """An object that fails validation; every field error becomes a cause."""
    causes: list[Obj] = []
    texts: dict[str, None] = {}
    size = unsaid = 0
    for error in errors:
        if causes and (len(causes) >= MAX_ERRORS or size >= MAX_ERROR_TEXT):
            unsaid += 1
            continue
        cause = error.cause()
        causes.append(cause)
        texts[f"{error.field}: {cause['message']}"] = None
        size += len(cause["message"])
    told = [*texts, f"and {unsaid} more"] if unsaid else list(texts)
    message = f"{_qualified(group, kind)} {go_quote(name)} is invalid: {aggregate_text(told)}"
    return ApiError(422, "Invalid", message, _details(group, kind, name, causes))


class Fenced(ApiError):
    """Nothing was written: the writer's fence has been replaced."""

    def __init__(self, name: str) -> None:
        super().__init__(503, "NotLeading", f"this process does not lead as {name} any more: the store refused its write")
