"""Signatures of requests to S3: AWS Signature Version 4 in headers, with the hash of the body. Pure.

The secret key is never sent. A signature is valid for one host, one request and a few minutes.
"""

from __future__ import annotations

import hashlib
import hmac
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from urllib.parse import quote

_ALGORITHM = "AWS4-HMAC-SHA256"
_SERVICE = "s3"
EMPTY = hashlib.sha256(b"").hexdigest()


@dataclass(frozen=True, slots=True)
class Keys:
    access_key: str
    secret_key: str = field(repr=False)
    session_token: str = field(default="", repr=False)


def escaped_path(path: str) -> str:
    """A path as it is sent and signed: S3 escapes once, and keeps slashes."""
    return quote(path, safe="/-_.~")


def escaped_query(query: Mapping[str, str]) -> str:
    pairs = sorted((quote(name, safe="-_.~"), quote(value, safe="-_.~")) for name, value in query.items())
    return "&".join(f"{name}={value}" for name, value in pairs)


def signed(
    keys: Keys, method: str, path: str, query: Mapping[str, str], headers: Mapping[str, str], region: str, digest: str, now: float
) -> dict[str, str]:
    """The headers of a request with those of its signature. `path` is not escaped yet; `headers` include Host; `digest` is the
    hash of the body."""
    moment = datetime.fromtimestamp(now, UTC)
    date, time = moment.strftime("%Y%m%d"), moment.strftime("%Y%m%dT%H%M%SZ")
    sent = {**headers, "x-amz-content-sha256": digest, "x-amz-date": time}
    if keys.session_token:
        sent["x-amz-security-token"] = keys.session_token
    lines = sorted((name.lower(), " ".join(value.split())) for name, value in sent.items())
    names = ";".join(name for name, _ in lines)
    canonical = "\n".join(
        (method, escaped_path(path), escaped_query(query), *(f"{name}:{value}" for name, value in lines), "", names, digest)
    )
    scope = f"{date}/{region}/{_SERVICE}/aws4_request"
    text = "\n".join((_ALGORITHM, time, scope, hashlib.sha256(canonical.encode()).hexdigest()))
    signature = hmac.new(_key(keys.secret_key, date, region), text.encode(), hashlib.sha256).hexdigest()
    sent["Authorization"] = f"{_ALGORITHM} Credential={keys.access_key}/{scope}, SignedHeaders={names}, Signature={signature}"
    return sent


def _key(secret: str, date: str, region: str) -> bytes:
    key = f"AWS4{secret}".encode()
    for part in (date, region, _SERVICE, "aws4_request"):
        key = hmac.digest(key, part.encode(), "sha256")
    return key
