"""`etcd.s3` of clusters whose snapshots are in a bucket of a real service."""

from __future__ import annotations

import base64
from typing import Any

from tests.e2e.buckets.services import KEYS, Service

from .conftest import PATIENCE, WORKSPACE, Ranch, eventually

FOLDER = "demo"
CREDENTIAL = {"accessKey": KEYS.access_key.encode(), "secretKey": KEYS.secret_key.encode()}


def in_bucket(ranch: Ranch, service: Service) -> dict[str, Any]:
    """`etcd.s3` of a cluster whose credential is in the workspace; the server may connect to this address of its machine."""
    host = service.place.endpoint.rpartition(":")[0]
    ranch.gateway.setting("outbound-policy", f"allow:{host}/32")
    secrets = f"/api/v1/namespaces/{WORKSPACE}/secrets"
    eventually(lambda: ranch.ask("GET", f"/api/v1/namespaces/{WORKSPACE}").status == 200, PATIENCE)
    data = {key: base64.b64encode(value).decode() for key, value in CREDENTIAL.items()}
    made = {"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "for-the-bucket"}, "data": data}
    assert ranch.ask("POST", secrets, made).status == 201
    return {
        "endpoint": service.place.endpoint,
        "bucket": service.place.bucket,
        "folder": FOLDER,
        "endpointCA": service.place.authorities.decode(),
        "cloudCredentialName": f"{WORKSPACE}:for-the-bucket",
    }
