"""A folder of a bucket, how to reach it, and what a cluster's spec and its credential say about it. Pure.

The rules are k3s' (docs/reference/s3.md): a field that the spec leaves empty comes from the credential, and what both leave empty
has k3s' default. A host also accepts the file of a CA; the server doesn't, because the file would be one of its own.
"""

from __future__ import annotations

import base64
import binascii
import posixpath
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final
from urllib.parse import SplitResult, urlsplit

from .signature import Keys

ENDPOINT: Final = "s3.amazonaws.com"
REGION: Final = "us-east-1"
METADATA: Final = ".metadata"
AUTO, BY_NAME, BY_PATH = "auto", "dns", "path"
_AMAZON = re.compile(r"s3(?:[.-](?:dualstack\.|fips[.-])?(?P<region>[a-z0-9-]+))?\.amazonaws\.com(?:\.cn)?")
_GOOGLE = "storage.googleapis.com"
_BUCKET = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{1,61}[A-Za-z0-9]")
# A file on the hosts, not a certificate.
_FILE_ENDING = ".crt"


class PlaceError(ValueError):
    """Settings that can't be used; the message names the field and what to do. With `hosts_only`, only the server can't."""

    def __init__(self, field: str, why: str, *, hosts_only: bool = False) -> None:
        super().__init__(f"{field} {why}")
        self.field = field
        self.hosts_only = hosts_only


@dataclass(frozen=True, slots=True)
class Place:
    """`authorities` (PEM) are trusted instead of the system's; `lookup` is `auto`, `dns` or `path`."""

    bucket: str
    folder: str = ""
    endpoint: str = ENDPOINT
    region: str = REGION
    authorities: bytes = b""
    skip_verify: bool = False
    insecure: bool = False
    lookup: str = AUTO

    def __post_init__(self) -> None:
        if not self.bucket:
            raise PlaceError("bucket", "is empty: name the bucket in the cluster's spec, or defaultBucket in the credential")
        if not _BUCKET.fullmatch(self.bucket) or ".." in self.bucket:
            raise PlaceError("bucket", f"{self.bucket!r} can't be the name of a bucket")
        split = _split(self.endpoint)
        if split is None or split.path or split.query or split.fragment or split.username is not None or not split.hostname:
            raise PlaceError("endpoint", f"{self.endpoint!r} must be a host, or host:port, without https://")
        if self.lookup not in (AUTO, BY_NAME, BY_PATH):
            raise PlaceError("bucket lookup type", f"{self.lookup!r} must be {AUTO}, {BY_NAME} or {BY_PATH}")

    @property
    def host(self) -> str:
        """The name and port of the service that has the bucket; Amazon's general name leads to that of the region."""
        if self.endpoint.lower() == ENDPOINT:
            return f"s3.{self.region}.amazonaws.com"
        split = _split(self.endpoint)
        assert split is not None
        plain = f"[{split.hostname}]" if ":" in (split.hostname or "") else split.hostname or ""
        return plain if split.port in (None, 80 if self.insecure else 443) else f"{plain}:{split.port}"

    @property
    def by_name(self) -> bool:
        """True if the bucket is part of the host's name: for Amazon, Google and Aliyun, as k3s' library decides it."""
        if self.lookup != AUTO:
            return self.lookup == BY_NAME
        host = self.endpoint.lower()
        if not self.insecure and "." in self.bucket:
            # No certificate is valid for it.
            return False
        return bool(_AMAZON.fullmatch(host)) or host == _GOOGLE or "aliyun" in host

    @property
    def url(self) -> str:
        """The base URL of requests; their paths come after it."""
        host = f"{self.bucket}.{self.host}" if self.by_name else self.host
        return f"{'http' if self.insecure else 'https'}://{host}"

    def key(self, name: str) -> str:
        """The key of a file of the folder."""
        return posixpath.normpath(posixpath.join(self.folder, name))

    def metadata_key(self, name: str) -> str:
        return self.key(f"{METADATA}/{name}")

    @property
    def prefix(self) -> str:
        """The common prefix of all keys of the folder."""
        return self.key("x")[:-1]

    def location(self, name: str) -> str:
        return f"s3://{self.bucket}/{self.key(name)}"

    def __str__(self) -> str:
        return f"the bucket {self.bucket} at {self.endpoint}"


def is_file_name(name: str) -> bool:
    """True for a name that can be a file of a folder, and of a directory."""
    return bool(name) and name not in (".", "..") and "/" not in name and "\0" not in name


# --- settings of a cluster --------------------------------------------------------------------------------------------------


def credential_fields(data: Mapping[str, bytes]) -> dict[str, str]:
    """The fields of a credential's Secret: its keys have the driver's name before a dash."""
    return {key.rpartition("-")[2]: value.decode(errors="replace") for key, value in sorted(data.items())}


def merged(s3: Mapping[str, Any], credential: Mapping[str, str]) -> dict[str, Any]:
    """The fields of the spec, the empty ones from the credential."""
    found: dict[str, Any] = {
        field: str(s3.get(field) or credential.get(f"default{field[:1].upper()}{field[1:]}") or "")
        for field in ("bucket", "region", "folder", "endpoint", "endpointCA")
    }
    found["skipSSLVerify"] = bool(s3.get("skipSSLVerify")) or credential.get("defaultSkipSSLVerify") == "true"
    return found


def of_cluster(s3: Mapping[str, Any], credential: Mapping[str, str]) -> tuple[Place, Keys]:
    """The place for a connection of the server itself: `s3` of a cluster's or a snapshot's spec, and the fields of the
    credential that it names, which the caller was allowed to read. Raises PlaceError."""
    fields = merged(s3, credential)
    access_key, secret_key = credential.get("accessKey", ""), credential.get("secretKey", "")
    if not access_key or not secret_key:
        why = "names no Secret with accessKey and secretKey: only hosts with a role of their own can reach the bucket"
        raise PlaceError("cloudCredentialName", why, hosts_only=not (access_key or secret_key))
    place = Place(
        bucket=fields["bucket"],
        folder=fields["folder"],
        endpoint=fields["endpoint"] or ENDPOINT,
        region=fields["region"] or REGION,
        authorities=b"" if fields["skipSSLVerify"] else authorities_in(fields["endpointCA"]),
        skip_verify=fields["skipSSLVerify"],
    )
    return place, Keys(access_key, secret_key)


def is_file(authority: str) -> bool:
    """True if a CA is the name of a file on the hosts."""
    return authority.endswith(_FILE_ENDING)


def plain_authority(authority: str) -> bytes:
    """PEM, given as such or as base64."""
    try:
        return base64.b64decode(authority, validate=True)
    except (binascii.Error, ValueError):
        return authority.encode()


def authorities_in(authority: str) -> bytes:
    """The certificates of `endpointCA`. Raises PlaceError for a file: it is on the hosts, not here."""
    if not authority:
        return b""
    if is_file(authority):
        raise PlaceError(
            "endpointCA",
            f"is the file {authority} of the hosts, which the server can't read: write the certificate",
            hosts_only=True,
        )
    found = plain_authority(authority)
    if b"-----BEGIN CERTIFICATE-----" not in found:
        raise PlaceError("endpointCA", "must be certificates in PEM, or base64 of them")
    return found


def _split(endpoint: str) -> SplitResult | None:
    if "/" in endpoint or "@" in endpoint or any(character.isspace() for character in endpoint):
        return None
    try:
        split = urlsplit(f"//{endpoint}")
        _ = split.port
    except ValueError:
        return None
    return split
