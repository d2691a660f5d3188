"""The client of buckets beside Amazon's own, on moto's server: each reads what the other has written."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import boto3
import pytest

from remuda.kube.clock import SYSTEM_CLOCK, Rng
from remuda.provisioning.etcd.s3 import copies
from remuda.provisioning.etcd.s3.answers import S3Error
from remuda.provisioning.etcd.s3.bucket import PART, Bucket
from remuda.provisioning.etcd.s3.place import Place
from remuda.provisioning.etcd.s3.signature import Keys

from ..clouds.amazon import moto

pytestmark = [pytest.mark.story]

KEYS = Keys("AKIATEST", "test", "a-session")


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Place]:
    with moto(tmp_path_factory.mktemp("moto")) as address:
        found = Place("snapshots", "one", endpoint=address.removeprefix("http://"), insecure=True)
        _theirs(found).create_bucket(Bucket=found.bucket)
        yield found


def _theirs(place: Place) -> Any:
    return boto3.client(
        "s3",
        region_name=place.region,
        endpoint_url=f"http://{place.endpoint}",
        aws_access_key_id=KEYS.access_key,
        aws_secret_access_key=KEYS.secret_key,
    )


async def test_each_reads_what_the_other_has_written(place: Place, tmp_path: Path) -> None:
    theirs, path = _theirs(place), tmp_path / "file"
    path.write_bytes(bytes(range(256)) * (2 * PART // 256) + b"the end")
    async with Bucket(place, KEYS, SYSTEM_CLOCK, Rng()) as bucket:
        await bucket.upload(path, place.key("ours-n1-1"), "application/octet-stream", {"remuda-node-name": "n1"})
        found = theirs.get_object(Bucket=place.bucket, Key="one/ours-n1-1")
        assert found["Body"].read() == path.read_bytes() and found["Metadata"] == {"remuda-node-name": "n1"}
        assert found["ETag"].endswith('-3"'), "in three parts"

        told = {"K3s-Cluster-Id": "uid", "K3s-Node-Name": "n2", "K3s-Token-Hash": "abc"}
        theirs.put_object(Bucket=place.bucket, Key="one/theirs-n2-1700000000", Body=b"state", Metadata=told)
        theirs.put_object(Bucket=place.bucket, Key="one/.metadata/theirs-n2-1700000000", Body=b'{"a": "b"}')
        ours, copy = await copies.listed(bucket)
        assert (ours.name, ours.size) == ("ours-n1-1", path.stat().st_size)
        assert (copy.node, copy.cluster_id, copy.token_hash, copy.metadata) == ("n2", "uid", "abc", {"a": "b"})
        await bucket.download(place.key(copy.name), tmp_path / "back")
        assert (tmp_path / "back").read_bytes() == b"state"


async def test_an_upload_that_fails_leaves_no_parts(place: Place, tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_bytes(b"x" * (PART + 1))
    async with Bucket(replace(place, folder="two"), KEYS, SYSTEM_CLOCK, Rng()) as bucket:
        # The file is shorter than was said: Amazon takes small parts only as the last one.
        with pytest.raises(S3Error, match="uploading two/it failed"):
            await bucket._upload_parts(path, "two/it", 3 * PART, PART, {})
        assert await bucket.listed("two/") == []
    assert _theirs(place).list_multipart_uploads(Bucket=place.bucket).get("Uploads", []) == []
