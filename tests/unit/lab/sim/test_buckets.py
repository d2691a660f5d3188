"""Simulated buckets behave as the client of real ones expects it."""

from __future__ import annotations

import pytest

from remuda.kube.clock import VirtualClock
from remuda.lab.sim.bucket import SimulatedBuckets
from remuda.lab.sim.saved_snapshots import SavedSnapshot
from remuda.provisioning.etcd.s3 import copies
from remuda.provisioning.etcd.s3.answers import S3Error, Why
from remuda.provisioning.etcd.s3.place import Place
from remuda.provisioning.etcd.s3.signature import Keys

KEYS = Keys("key", "secret")
SAVED = SavedSnapshot({"/registry/a": b"1"}, 1_700_000_000.0, {"provisioning-cluster-spec": "x"})


async def test_an_uploaded_snapshot_is_listed_with_all_that_is_known_of_it() -> None:
    buckets = SimulatedBuckets(VirtualClock())
    buckets.of("bucket").upload("demo", "on-demand-h0-1700000000", SAVED, node="h0", cluster_id="u1", now=5.0)
    buckets.of("bucket").upload("other", "on-demand-h9-1700000000", SAVED, node="h9", cluster_id="u2", now=5.0)
    async with buckets.opened(Place("bucket", folder="demo"), KEYS) as folder:
        (copy,) = await copies.listed(folder)
        assert await copies.checked(folder, copy.name, SAVED.size)
    assert (copy.node, copy.cluster_id, copy.size, copy.sha256) == ("h0", "u1", SAVED.size, SAVED.sha256)
    assert copy.location == "s3://bucket/demo/on-demand-h0-1700000000"
    assert copy.metadata == SAVED.metadata


async def test_a_bucket_that_is_away_says_why_and_one_that_lost_a_file_too() -> None:
    buckets = SimulatedBuckets(VirtualClock())
    bucket = buckets.of("bucket")
    bucket.upload("", "a-1700000000", SAVED, node="h0", cluster_id="", now=5.0)
    bucket.trouble = Why.DENIED
    async with buckets.opened(Place("bucket"), KEYS) as folder:
        with pytest.raises(S3Error) as denied:
            await copies.listed(folder)
        bucket.trouble = None
        bucket.remove("", "a-1700000000")
        with pytest.raises(S3Error) as gone:
            await copies.checked(folder, "a-1700000000")
    assert (denied.value.why, gone.value.why) == (Why.DENIED, Why.NO_OBJECT)
