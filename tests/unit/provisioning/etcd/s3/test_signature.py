"""The examples of Amazon's documentation ("Authenticating Requests: Using the Authorization Header")."""

from __future__ import annotations

import hashlib
from datetime import UTC, datetime

import pytest

from remuda.provisioning.etcd.s3.signature import EMPTY, Keys, escaped_path, escaped_query, signed

KEYS = Keys("AKIAIOSFODNN7EXAMPLE", "wJalrXUtnFEMI/K7MDENG/bPxRfiCYEXAMPLEKEY")
NOW = datetime(2013, 5, 24, tzinfo=UTC).timestamp()
HOST = {"Host": "examplebucket.s3.amazonaws.com"}
TEXT = hashlib.sha256(b"Welcome to Amazon S3.").hexdigest()


@pytest.mark.parametrize(
    ("method", "path", "query", "headers", "digest", "names", "signature"),
    [
        (
            "GET",
            "/test.txt",
            {},
            {"Range": "bytes=0-9"},
            EMPTY,
            "host;range;x-amz-content-sha256;x-amz-date",
            "f0e8bdb87c964420e857bd35b5d6ed310bd44f0170aba48dd91039c6036bdb41",
        ),
        (
            "PUT",
            "/test$file.text",
            {},
            {"Date": "Fri, 24 May 2013 00:00:00 GMT", "x-amz-storage-class": "REDUCED_REDUNDANCY"},
            TEXT,
            "date;host;x-amz-content-sha256;x-amz-date;x-amz-storage-class",
            "98ad721746da40c64f1a55b78f14c238d841ea1380cd77a1b5971af0ece108bd",
        ),
        (
            "GET",
            "/",
            {"lifecycle": ""},
            {},
            EMPTY,
            "host;x-amz-content-sha256;x-amz-date",
            "fea454ca298b7da1c68078a5d1bdbfbbe0d65c699e0f91ac7a200a0136783543",
        ),
        (
            "GET",
            "/",
            {"prefix": "J", "max-keys": "2"},
            {},
            EMPTY,
            "host;x-amz-content-sha256;x-amz-date",
            "34b48302e7b5fa45bde8084f4b7868a86f0a534bc59db6670ed5711ef69dc6f7",
        ),
    ],
)
def test_amazons_examples(
    method: str, path: str, query: dict[str, str], headers: dict[str, str], digest: str, names: str, signature: str
) -> None:
    sent = signed(KEYS, method, path, query, {**HOST, **headers}, "us-east-1", digest, NOW)
    scope = "AKIAIOSFODNN7EXAMPLE/20130524/us-east-1/s3/aws4_request"
    wanted = f"AWS4-HMAC-SHA256 Credential={scope}, SignedHeaders={names}, Signature={signature}"
    assert sent["Authorization"] == wanted
    assert sent["x-amz-date"] == "20130524T000000Z"


def test_a_session_token_is_sent_and_signed() -> None:
    sent = signed(Keys("A", "b", "the-session"), "GET", "/", {}, HOST, "eu-west-1", EMPTY, NOW)
    assert sent["x-amz-security-token"] == "the-session"
    assert "x-amz-date;x-amz-security-token" in sent["Authorization"]
    assert "/20130524/eu-west-1/s3/" in sent["Authorization"]


def test_secrets_are_not_shown() -> None:
    shown = repr(Keys("AKIA", "the-secret", "the-session"))
    assert "the-secret" not in shown and "the-session" not in shown


def test_keys_are_escaped_once_and_keep_their_slashes() -> None:
    assert escaped_path("/b/a folder/on-demand-n1-1_~.zip") == "/b/a%20folder/on-demand-n1-1_~.zip"
    assert escaped_path("/b/ümlaut+%41=&?#") == "/b/%C3%BCmlaut%2B%2541%3D%26%3F%23"
    assert escaped_query({"uploadId": "a/b+c=", "partNumber": "2"}) == "partNumber=2&uploadId=a%2Fb%2Bc%3D"
