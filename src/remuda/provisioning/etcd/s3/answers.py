"""Answers of an S3 service, parsed as untrusted input: any tenant may have named the service. Pure.

XML without a document type, pages of a list, and errors with their reason and what to do.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from email.utils import parsedate_to_datetime
from enum import StrEnum
from typing import Final
from urllib.parse import unquote_plus
from xml.etree import ElementTree

from .place import Place

_MOST_TEXT = 200
MARK: Final = "x-amz-meta-"


class Why(StrEnum):
    """Reasons that callers tell apart."""

    DENIED = "denied"
    NO_BUCKET = "no bucket"
    NO_OBJECT = "no object"
    WRONG_REGION = "wrong region"
    FULL = "full"
    BUSY = "busy"
    UNREACHABLE = "unreachable"
    UNTRUSTED = "untrusted"
    REFUSED = "refused"
    CHANGED = "changed"
    CUT = "cut"
    OTHER = "other"


class S3Error(Exception):
    """A request that failed; the message names the bucket and says what to do."""

    def __init__(self, why: Why, message: str, status: int = 0) -> None:
        super().__init__(message)
        self.why = why
        self.status = status
        # The pause that the service asks for, in seconds.
        self.pause = 0.0


class MalformedAnswer(ValueError):
    """An answer that is not S3's."""


@dataclass(frozen=True, slots=True)
class Object:
    """An object of a bucket. `user_metadata` (names in lower case) is known only when the object was asked for by itself."""

    key: str
    size: int
    modified: float
    etag: str
    user_metadata: Mapping[str, str]


@dataclass(frozen=True, slots=True)
class Page:
    objects: tuple[Object, ...]
    # Where the next page begins; "" on the last one.
    continuation: str


# --- reading ----------------------------------------------------------------------------------------------------------------


class _WithoutDoctype(ElementTree.TreeBuilder):
    """A document type could have entities that become very large."""

    def doctype(self, name: str, pubid: str | None, system: str | None) -> None:
        raise MalformedAnswer("it has a document type")


def document(body: bytes, name: str = "") -> ElementTree.Element:
    """The root, whose name must be that. Raises MalformedAnswer."""
    parser = ElementTree.XMLParser(target=_WithoutDoctype())
    try:
        parser.feed(body)
        root = parser.close()
    except (ElementTree.ParseError, ValueError) as error:
        raise MalformedAnswer(f"it is not XML: {error}") from None
    if name and _local(root) != name:
        raise MalformedAnswer(f"it is not {name}")
    return root


def text(element: ElementTree.Element, name: str) -> str:
    return next((child.text or "" for child in element if _local(child) == name), "")


def is_of_s3(headers: Mapping[str, str]) -> bool:
    """True if an answer, even one without a body, can be S3's and not that of any web server."""
    return "xml" in headers.get("Content-Type", "") or any(name.lower().startswith("x-amz") for name in headers)


def page(body: bytes) -> Page:
    """A page of a list. Raises MalformedAnswer."""
    root = document(body, "ListBucketResult")
    encoded = text(root, "EncodingType").lower() == "url"
    objects = tuple(_listed(child, encoded) for child in root if _local(child) == "Contents")
    more = text(root, "IsTruncated").strip().lower() == "true"
    continuation = text(root, "NextContinuationToken")
    if more and not continuation:
        raise MalformedAnswer("the list goes on, but not where")
    return Page(objects, continuation if more else "")


def headed(key: str, headers: Mapping[str, str]) -> Object:
    """An object by the headers of its answer. Raises MalformedAnswer."""
    try:
        size = int(headers.get("Content-Length", ""))
        modified = parsedate_to_datetime(headers.get("Last-Modified", "")).timestamp()
    except (ValueError, TypeError):
        raise MalformedAnswer("it has no size or no time") from None
    found = {name.lower().removeprefix(MARK): value for name, value in headers.items() if name.lower().startswith(MARK)}
    return Object(key, size, modified, _etag(headers.get("ETag", "")), found)


def _listed(element: ElementTree.Element, encoded: bool) -> Object:
    key = text(element, "Key")
    try:
        size = int(text(element, "Size"))
        modified = datetime.fromisoformat(text(element, "LastModified")).timestamp()
    except ValueError:
        raise MalformedAnswer("an object of the list has no size or no time") from None
    return Object(unquote_plus(key) if encoded else key, size, modified, _etag(text(element, "ETag")), {})


def _etag(written: str) -> str:
    return written.strip().strip('"')


def _local(element: ElementTree.Element) -> str:
    return element.tag.rpartition("}")[2]


# --- errors -----------------------------------------------------------------------------------------------------------------

_BY_CODE: Final[Mapping[str, tuple[Why, str]]] = {
    "AccessDenied": (Why.DENIED, "the credential may not do it: check the bucket's policy and the user's rights"),
    "AllAccessDisabled": (Why.DENIED, "access to the bucket is switched off"),
    "AccountProblem": (Why.DENIED, "the account has a problem: ask the provider"),
    "InvalidAccessKeyId": (Why.DENIED, "the access key is not known: check accessKey of the credential"),
    "XAdminUserNotFound": (Why.DENIED, "the access key is not known: check accessKey of the credential"),
    "SignatureDoesNotMatch": (Why.DENIED, "the secret key is not the one of the access key: check secretKey of the credential"),
    "ExpiredToken": (Why.DENIED, "the session token has expired"),
    "InvalidToken": (Why.DENIED, "the session token is not valid"),
    "RequestTimeTooSkewed": (Why.DENIED, "the clock of this machine differs too much from the service's: synchronise it"),
    "NoSuchBucket": (Why.NO_BUCKET, "there is no such bucket: create it, or correct its name"),
    "NoSuchKey": (Why.NO_OBJECT, "there is no such object"),
    "NotFound": (Why.NO_OBJECT, "there is no such object"),
    "QuotaExceeded": (Why.FULL, "the bucket is full: delete snapshots, lower the retention, or raise the quota"),
    "XMinioAdminBucketQuotaExceeded": (Why.FULL, "the bucket is full: delete snapshots, lower the retention, or raise the quota"),
    "XMinioStorageFull": (Why.FULL, "the service has no space left: delete snapshots, or add storage"),
    "InsufficientStorage": (Why.FULL, "the service has no space left: delete snapshots, or add storage"),
    "InsufficientCapacity": (Why.FULL, "the service has no space left: delete snapshots, or add storage"),
    "EntityTooLarge": (Why.FULL, "the object is larger than the service takes"),
    "PreconditionFailed": (Why.CHANGED, "the object was replaced meanwhile: try again"),
    "SlowDown": (Why.BUSY, "the service asks for fewer requests: try again later"),
    "SlowDownRead": (Why.BUSY, "the service asks for fewer requests: try again later"),
    "SlowDownWrite": (Why.BUSY, "the service asks for fewer requests: try again later"),
    "Throttling": (Why.BUSY, "the service asks for fewer requests: try again later"),
    "ThrottlingException": (Why.BUSY, "the service asks for fewer requests: try again later"),
    "RequestLimitExceeded": (Why.BUSY, "the service asks for fewer requests: try again later"),
    "RequestTimeout": (Why.BUSY, "the service did not get the request in time: try again later"),
    "InternalError": (Why.BUSY, "the service has an error of its own: try again later"),
    "ServiceUnavailable": (Why.BUSY, "the service is not available: try again later"),
    "XMinioServerNotInitialized": (Why.BUSY, "the service is starting: try again later"),
}
_BY_STATUS: Final[Mapping[int, tuple[Why, str]]] = {
    401: _BY_CODE["AccessDenied"],
    403: _BY_CODE["AccessDenied"],
    404: _BY_CODE["NoSuchKey"],
    412: _BY_CODE["PreconditionFailed"],
    413: _BY_CODE["EntityTooLarge"],
    429: _BY_CODE["SlowDown"],
    500: _BY_CODE["InternalError"],
    502: _BY_CODE["ServiceUnavailable"],
    503: _BY_CODE["ServiceUnavailable"],
    504: _BY_CODE["ServiceUnavailable"],
    507: _BY_CODE["XMinioStorageFull"],
}
_REGIONAL: Final = frozenset(
    (
        "AuthorizationHeaderMalformed",
        "InvalidRegion",
        "PermanentRedirect",
        "TemporaryRedirect",
        "IllegalLocationConstraintException",
    )
)


def failure(doing: str, place: Place, status: int, headers: Mapping[str, str], body: bytes) -> S3Error:
    """The error of an answer. `doing` is what was tried, such as `listing snapshots`."""
    code = said = region = ""
    try:
        root = document(body, "Error")
        code, said, region = text(root, "Code"), text(root, "Message"), text(root, "Region")
    except MalformedAnswer:
        # HEAD has no body, and proxies have pages of their own.
        pass
    region = region or headers.get("x-amz-bucket-region", "")
    if code in _REGIONAL or status in (301, 307):
        where = f"it is in {_short(region)}" if region and region != place.region else "it is elsewhere"
        advice = f"the region {place.region} is not the bucket's, {where}: set region (and endpoint)"
        return S3Error(Why.WRONG_REGION, f"{doing} failed for {place}: {advice}", status)
    # What is not found with a code of its own is not known to be the object.
    by_status = None if code and status == 404 else _BY_STATUS.get(status)
    why, advice = _BY_CODE.get(code) or by_status or (Why.OTHER, "")
    shown = ": ".join(part for part in (_short(code), _short(said)) if part) or "no reason given"
    message = f"{doing} failed for {place}: " + (f"{advice} ({status} {shown})" if advice else f"it answered {status} {shown}")
    return S3Error(why, message, status)


def _short(said: str) -> str:
    """One line of printable text, however long and strange the service's is."""
    line = " ".join("".join(character if character.isprintable() else " " for character in said).split())
    return line if len(line) <= _MOST_TEXT else f"{line[:_MOST_TEXT]}…"
