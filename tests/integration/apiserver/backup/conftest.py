from __future__ import annotations

import itertools
import os
from collections.abc import Iterator

import pytest

from remuda.apiserver.storage.etcd import EtcdConfig
from tests.real import need
from tests.real.etcd import EtcdCluster

_numbers = itertools.count(1)


@pytest.fixture(scope="session")
def etcd() -> Iterator[EtcdCluster]:
    need.programs("etcd")
    with EtcdCluster() as cluster:
        yield cluster


@pytest.fixture
def config(etcd: EtcdCluster) -> EtcdConfig:
    """A prefix in it for this test alone."""
    return EtcdConfig(etcd.urls, prefix=f"/b{next(_numbers)}-{os.getpid()}")
