"""The client of buckets against a real service over TLS: what arrives, what is refused, and what survives."""

from __future__ import annotations

import asyncio
import hashlib
import itertools
import logging
import random
from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from remuda.kube.clock import SYSTEM_CLOCK, Rng
from remuda.kube.network.outbound import Policy
from remuda.provisioning.etcd.s3 import copies
from remuda.provisioning.etcd.s3.answers import S3Error, Why
from remuda.provisioning.etcd.s3.bucket import PART, SHA256, Bucket
from remuda.provisioning.etcd.s3.place import Place
from remuda.provisioning.etcd.s3.signature import Keys

from ..clouds.rig import FlyingClock
from ..cutting import RawProxy
from .services import Service, versity

pytestmark = [pytest.mark.real, pytest.mark.story]

_folders = itertools.count()


def client(service: Service, place: Place | None = None, keys: Keys | None = None, **more: Any) -> Bucket:
    return Bucket(place or service.place, keys or service.keys, FlyingClock(), Rng(1), **more)


@pytest.fixture
async def bucket(service: Service) -> AsyncIterator[Bucket]:
    """A folder that no other test uses."""
    async with client(service, service.at(folder=f"f{next(_folders)}")) as found:
        yield found


def _file(directory: Path, size: int) -> tuple[Path, str]:
    content = random.Random(size).randbytes(size)
    path = directory / "a-file"
    path.write_bytes(content)
    return path, hashlib.sha256(content).hexdigest()


async def test_files_come_back_as_they_were(service: Service, bucket: Bucket, tmp_path: Path) -> None:
    await bucket.check()
    for name, size in (("small", 20_512), ("large", 2 * PART + 12_345), ("ünusual +%&=~ name.zip", 10)):
        path, digest = _file(tmp_path, size)
        key = bucket.place.key(name)
        uploaded = await bucket.upload(path, key, "application/octet-stream", {"remuda-node-name": "n1", SHA256: digest})
        assert uploaded.size == size and uploaded.user_metadata["remuda-node-name"] == "n1"
        assert (service.bucket / key).read_bytes() == path.read_bytes()
        target = tmp_path / "back"
        await bucket.download(key, target)
        assert target.read_bytes() == path.read_bytes() and target.stat().st_mode & 0o777 == 0o600
        await bucket.delete(key)
        await bucket.delete(key)
        with pytest.raises(S3Error) as raised:
            await bucket.head(key)
        assert raised.value.why is Why.NO_OBJECT
    assert not list(tmp_path.glob("*.part"))


async def test_a_long_list_comes_in_pages(service: Service, bucket: Bucket) -> None:
    directory = service.bucket / bucket.place.folder
    (directory / "in-between").mkdir(parents=True)
    (directory / "in-between" / "not-ours").write_bytes(b"x")
    for number in range(2345):
        (directory / f"on-demand-n1-{number}").write_bytes(b"x")
    found = await bucket.listed(bucket.place.prefix)
    assert len(found) == 2345 and {each.size for each in found} == {1}


async def test_the_copies_of_a_cluster(bucket: Bucket) -> None:
    place, zipped = bucket.place, "application/zip"
    told = {"k3s-node-name": "n1", "k3s-cluster-id": "the-uid", "k3s-token-hash": "abc"}
    await bucket.put(place.key("on-demand-n1-1700000000.zip"), b"one", zipped, {**told, SHA256: "def"})
    await bucket.put(
        place.metadata_key("on-demand-n1-1700000000.zip"), b'{"provisioning-cluster-spec":"x"}', "application/json", told
    )
    await bucket.put(place.key("odd"), b"two", zipped, {})
    await bucket.put(place.metadata_key("odd"), b"no json", "application/json", {})
    await bucket.put(place.key("empty-n1-1700000000"), b"", zipped, {})
    await bucket.put(place.metadata_key("gone"), b"{}", "application/json", {})
    await bucket.put(f"{place.folder}-beside/other-n1-1", b"x", zipped, {})
    odd, full = await copies.listed(bucket)
    assert (full.name, full.size, full.created) == ("on-demand-n1-1700000000.zip", 3, 1_700_000_000.0)
    assert full.location == f"s3://snapshots/{place.folder}/on-demand-n1-1700000000.zip"
    assert (full.node, full.cluster_id, full.token_hash, full.sha256) == ("n1", "the-uid", "abc", "def")
    assert full.metadata == {"provisioning-cluster-spec": "x"}
    assert (odd.name, odd.metadata, odd.node) == ("odd", {}, "")

    # What has not changed is not read again; what has changed is.
    await bucket.put(place.key("odd"), b"three", zipped, {"k3s-node-name": "n2"})
    again = await copies.listed(bucket, (odd, full))
    assert again[1] is full and (again[0].size, again[0].node) == (5, "n2")

    assert (await copies.checked(bucket, "odd", 5)).etag == again[0].etag
    for name, size, words in (
        ("odd", 6, "has 5 bytes, and 6"),
        ("empty-n1-1700000000", 0, "empty"),
        ("none", 0, "no such object"),
    ):
        with pytest.raises(S3Error, match=words):
            await copies.checked(bucket, name, size)


async def test_an_authority_that_is_not_the_services(service: Service, tmp_path: Path) -> None:
    for place in (service.at(authorities=b""), service.at(authorities=_another_authority(tmp_path))):
        with pytest.raises(S3Error, match="set endpointCA") as raised:
            async with client(service, place) as bucket:
                await bucket.check()
        assert raised.value.why is Why.UNTRUSTED
    async with client(service, service.at(authorities=b"", skip_verify=True)) as bucket:
        await bucket.check()


def _another_authority(directory: Path) -> bytes:
    from .services import _certified

    return _certified(directory)


async def test_wrong_credentials_and_buckets_are_told_apart(service: Service, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG)
    secret = "not-the-secret-key"
    for keys, words in ((replace(service.keys, secret_key=secret), "secretKey"), (Keys("unknown", secret), "accessKey")):
        async with client(service, keys=keys) as bucket:
            with pytest.raises(S3Error, match=words) as raised:
                await bucket.listed("")
        assert raised.value.why is Why.DENIED and secret not in str(raised.value)
        assert "the bucket snapshots at 127.0.0.1:" in str(raised.value)
    async with client(service, service.at(bucket="missing")) as bucket:
        for asked in (bucket.check, lambda: bucket.listed("")):
            with pytest.raises(S3Error, match="there is no such bucket: create it") as raised:
                await asked()
            assert raised.value.why is Why.NO_BUCKET
    assert secret not in caplog.text and service.keys.secret_key not in caplog.text


async def test_the_servers_policy_is_kept_and_tells_a_tenant_nothing(service: Service) -> None:
    async with client(service, policy=Policy.of()) as bucket:
        with pytest.raises(S3Error, match="refused by policy") as raised:
            await bucket.check()
    assert raised.value.why is Why.REFUSED
    allowed = Policy.of("allow:127.0.0.1/32")
    async with client(service, policy=allowed) as bucket:
        await bucket.check()
    async with client(service, service.at(endpoint="127.0.0.1:1"), policy=allowed, tries=2) as bucket:
        with pytest.raises(S3Error) as raised:
            await bucket.check()
    assert str(raised.value) == "looking for the bucket failed: the bucket snapshots at 127.0.0.1:1 can't be reached"
    # What is missing is told all the same.
    async with client(service, policy=allowed) as bucket:
        with pytest.raises(S3Error) as raised:
            await copies.checked(bucket, "none")
    assert raised.value.why is Why.NO_OBJECT


async def test_a_service_that_never_answers(service: Service) -> None:
    held = []

    async def hold(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        held.append(writer)
        await reader.read()

    server = await asyncio.start_server(hold, "127.0.0.1", 0)
    place = service.at(endpoint=f"127.0.0.1:{server.sockets[0].getsockname()[1]}", insecure=True)
    async with client(service, place, seconds=0.3, tries=2) as bucket:
        with pytest.raises(S3Error, match="no answer in time") as raised:
            await bucket.check()
    assert raised.value.why is Why.UNREACHABLE and len(held) == 2
    for writer in held:
        writer.close()
    server.close()


async def test_a_service_that_throttles_gets_fewer_requests(tmp_path: Path) -> None:
    with versity(tmp_path, "--max-requests", "1") as service:
        path, _ = _file(tmp_path, 300_000)
        # Pauses take real time: requests at the same moment would be refused again.
        async with Bucket(service.place, service.keys, SYSTEM_CLOCK, Rng(1), tries=30) as bucket:
            await bucket.upload(path, "it", "application/octet-stream", {})
            targets = [tmp_path / f"back-{number}" for number in range(12)]
            await asyncio.gather(*(bucket.download("it", target) for target in targets))
        assert all(target.read_bytes() == path.read_bytes() for target in targets)


async def test_a_full_bucket_says_so_and_keeps_nothing(tmp_path: Path) -> None:
    with versity(tmp_path, size="24m") as service:
        async with client(service) as bucket:
            for size in (PART + PART // 2, 2 * PART, 4 * PART):
                path, _ = _file(tmp_path, size)
                try:
                    await bucket.upload(path, "it", "application/octet-stream", {})
                except S3Error as error:
                    assert error.why is Why.FULL and "no space left" in str(error)
                    break
            else:
                raise AssertionError("a bucket of 24 MiB took 64")
            # The parts were taken back: another file has room.
            await bucket.delete("it")
            path, _ = _file(tmp_path, PART // 2)
            await bucket.upload(path, "other", "application/octet-stream", {})
            assert [each.key for each in await bucket.listed("")] == ["other"]


async def test_a_connection_that_is_cut_in_the_middle(service: Service, bucket: Bucket, tmp_path: Path) -> None:
    host, _, port = service.place.endpoint.partition(":")
    path, _ = _file(tmp_path, PART + 3_000_000)
    proxy = RawProxy(host, int(port))
    async with proxy.running():
        async with client(service, replace(bucket.place, endpoint=f"127.0.0.1:{proxy.port}")) as through:
            key = through.place.key("it")
            proxy.asking += [100_000, 9_000_000, 50_000]
            await through.upload(path, key, "application/octet-stream", {})
            assert not proxy.asking
        async with client(service, replace(bucket.place, endpoint=f"127.0.0.1:{proxy.port}")) as through:
            # The first connection asks for the size; each of the others gets a little further.
            proxy.limits += [3_000_000, 5_000_000, 1, 1_000_000, 2_000_000]
            await through.download(key, tmp_path / "back")
            assert not proxy.limits
            assert (tmp_path / "back").read_bytes() == path.read_bytes()
            # One that never gets anywhere ends, and leaves no file.
            proxy.limits += [1_000] * 100
            with pytest.raises(S3Error) as raised:
                await through.download(key, tmp_path / "never")
            assert raised.value.why in (Why.CUT, Why.UNREACHABLE)
    assert sorted(each.name for each in tmp_path.iterdir()) == ["a-file", "back"]


async def test_an_object_that_is_replaced_meanwhile_is_not_mixed(service: Service, bucket: Bucket, tmp_path: Path) -> None:
    key = bucket.place.key("it")
    path, _ = _file(tmp_path, 3_000_000)
    await bucket.upload(path, key, "application/octet-stream", {})
    wanted = await bucket.head(key)
    pieces = bucket.pieces(wanted)
    await anext(pieces)
    await pieces.aclose()
    await bucket.put(key, b"another", "application/octet-stream", {})
    with pytest.raises(S3Error) as raised:
        await anext(bucket.pieces(wanted))
    assert raised.value.why is Why.CHANGED
    # A file that was damaged in the bucket is noticed by its hash.
    await bucket.upload(path, key, "application/octet-stream", {SHA256: "0" * 64})
    with pytest.raises(S3Error, match="its hash is another"):
        await bucket.download(key, tmp_path / "back")
    assert not (tmp_path / "back").exists()
