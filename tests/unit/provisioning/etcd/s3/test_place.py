from __future__ import annotations

import base64
from typing import Any

import pytest

from remuda.provisioning.etcd.s3 import place
from remuda.provisioning.etcd.s3.place import Place, PlaceError

PEM = "-----BEGIN CERTIFICATE-----\nAA==\n-----END CERTIFICATE-----\n"
CREDENTIAL = {"accessKey": "AKIA", "secretKey": "secret"}


@pytest.mark.parametrize(
    ("endpoint", "region", "bucket", "host", "by_name"),
    [
        ("s3.amazonaws.com", "us-east-1", "b-1", "s3.us-east-1.amazonaws.com", True),
        ("s3.amazonaws.com", "eu-west-1", "b.1", "s3.eu-west-1.amazonaws.com", False),
        ("s3.us-west-2.amazonaws.com", "us-west-2", "b-1", "s3.us-west-2.amazonaws.com", True),
        ("s3.dualstack.us-west-2.amazonaws.com", "us-west-2", "b-1", "s3.dualstack.us-west-2.amazonaws.com", True),
        ("s3.cn-north-1.amazonaws.com.cn", "cn-north-1", "b-1", "s3.cn-north-1.amazonaws.com.cn", True),
        ("storage.googleapis.com", "us-east-1", "b-1", "storage.googleapis.com", True),
        ("oss-cn-beijing.aliyuncs.com", "us-east-1", "b-1", "oss-cn-beijing.aliyuncs.com", True),
        ("minio.example:9000", "us-east-1", "b-1", "minio.example:9000", False),
        ("minio.example:443", "us-east-1", "b-1", "minio.example", False),
        ("[fd00::1]:9000", "us-east-1", "b-1", "[fd00::1]:9000", False),
    ],
)
def test_hosts_and_buckets_are_found_as_k3s_finds_them(endpoint: str, region: str, bucket: str, host: str, by_name: bool) -> None:
    found = Place(bucket, endpoint=endpoint, region=region)
    assert (found.host, found.by_name) == (host, by_name)


def test_the_lookup_can_be_chosen() -> None:
    assert Place("b-1", endpoint="minio.example", lookup="dns").by_name
    assert not Place("b-1", lookup="path").by_name


@pytest.mark.parametrize(
    ("folder", "key", "prefix"),
    [
        ("", "x", ""),
        ("a", "a/x", "a/"),
        ("a/b/", "a/b/x", "a/b/"),
        ("a//b", "a/b/x", "a/b/"),
        ("/a", "/a/x", "/a/"),
        (".", "x", ""),
    ],
)
def test_folders_are_joined_as_k3s_joins_them(folder: str, key: str, prefix: str) -> None:
    found = Place("bucket", folder)
    assert (found.key("x"), found.prefix) == (key, prefix)
    assert found.location("x") == f"s3://bucket/{key}"
    assert found.metadata_key("x") == f"{prefix}.metadata/x"


@pytest.mark.parametrize(
    ("fields", "named"),
    [
        ({"bucket": ""}, "bucket"),
        ({"bucket": "a/b"}, "bucket"),
        ({"bucket": "a..b"}, "bucket"),
        ({"bucket": "b-1", "endpoint": "https://minio.example"}, "endpoint"),
        ({"bucket": "b-1", "endpoint": "minio.example/path"}, "endpoint"),
        ({"bucket": "b-1", "endpoint": "user@minio.example"}, "endpoint"),
        ({"bucket": "b-1", "endpoint": "minio.example:port"}, "endpoint"),
        ({"bucket": "b-1", "endpoint": "minio example"}, "endpoint"),
        ({"bucket": "b-1", "lookup": "virtual"}, "bucket lookup type"),
    ],
)
def test_settings_that_can_not_be_used_name_their_field(fields: dict[str, str], named: str) -> None:
    with pytest.raises(PlaceError) as raised:
        Place(**fields)  # type: ignore[arg-type]
    assert raised.value.field == named and str(raised.value).startswith(named)


def test_empty_fields_come_from_the_credential() -> None:
    credential = place.credential_fields(
        {
            f"s3credentialConfig-{name}": value.encode()
            for name, value in {
                **CREDENTIAL,
                "defaultBucket": "their-bucket",
                "defaultFolder": "their-folder",
                "defaultEndpoint": "minio.example",
                "defaultRegion": "eu-north-1",
                "defaultSkipSSLVerify": "true",
            }.items()
        }
    )
    found, keys = place.of_cluster({"folder": "ours"}, credential)
    assert found == Place("their-bucket", "ours", "minio.example", "eu-north-1", skip_verify=True)
    assert (keys.access_key, keys.secret_key) == ("AKIA", "secret")


def test_what_nothing_says_has_k3s_default() -> None:
    found, _ = place.of_cluster({"bucket": "b-1"}, CREDENTIAL)
    assert found == Place("b-1", "", "s3.amazonaws.com", "us-east-1")


@pytest.mark.parametrize("written", [PEM, base64.b64encode(PEM.encode()).decode()])
def test_the_authority_is_pem_or_base64_of_it(written: str) -> None:
    assert place.of_cluster({"bucket": "b-1", "endpointCA": written}, CREDENTIAL)[0].authorities == PEM.encode()


@pytest.mark.parametrize(
    ("s3", "credential", "words"),
    [
        ({"bucket": "b-1"}, {}, "cloudCredentialName names no Secret with accessKey and secretKey"),
        ({"bucket": "b-1"}, {"accessKey": "a"}, "cloudCredentialName"),
        ({"bucket": "b-1", "endpointCA": "/etc/ssl/own.crt"}, CREDENTIAL, "which the server can't read"),
        ({"bucket": "b-1", "endpointCA": "none"}, CREDENTIAL, "endpointCA must be certificates"),
        ({}, CREDENTIAL, "defaultBucket in the credential"),
    ],
)
def test_the_server_refuses_what_only_a_host_can_use(s3: dict[str, Any], credential: dict[str, str], words: str) -> None:
    with pytest.raises(PlaceError, match=words):
        place.of_cluster(s3, credential)
