"""Drivers that are downloaded: nothing is kept that does not have the checksum."""

from __future__ import annotations

import gzip
import hashlib
import io
import os
import ssl
import tarfile
import zipfile
from collections.abc import Callable
from pathlib import Path

import pytest

from remuda.client.download import FetchError, fetched
from remuda.kube.clock import VirtualClock
from remuda.machines.errors import DriverError, Reason
from remuda.machines.nodedrivers.driver_downloads import checksum_problem, downloaded, name_problem, unpacked, url_problem

PROGRAM = b"\x7fELF a program"
NAME = "docker-machine-driver-shelf"
URL = "https://downloads.example.com/d"


def tar(**files: bytes) -> bytes:
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w:gz") as archive:
        for name, data in files.items():
            entry = tarfile.TarInfo(name)
            entry.size = len(data)
            archive.addfile(entry, io.BytesIO(data))
    return packed.getvalue()


def zipped(**files: bytes) -> bytes:
    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w") as archive:
        for name, data in files.items():
            archive.writestr(name, data)
    return packed.getvalue()


class Web:
    def __init__(self, data: bytes | None) -> None:
        self.data = data
        self.asked = 0

    async def __call__(self, url: str) -> bytes:
        self.asked += 1
        if self.data is None:
            raise FetchError("nobody is there")
        return self.data


def sum_of(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


PACKED: list[Callable[[], bytes]] = [
    lambda: PROGRAM,
    lambda: gzip.compress(PROGRAM),
    lambda: tar(**{"README.md": b"words", f"bin/{NAME}": PROGRAM}),
    lambda: tar(**{f"{NAME}-linux-amd64": PROGRAM, "LICENSE": b"words"}),
    lambda: tar(only=PROGRAM),
    lambda: zipped(**{NAME: PROGRAM, "LICENSE": b"words"}),
]


@pytest.mark.parametrize("packed", PACKED, ids=["bare", "gzip", "tar", "tar with a longer name", "one file", "zip"])
async def test_a_program_comes_in_many_ways(tmp_path: Path, packed: Callable[[], bytes]) -> None:
    data = packed()
    web = Web(data)
    place = await downloaded(web, "shelf", URL, sum_of(data), tmp_path)
    found = place / NAME
    assert found.read_bytes() == PROGRAM
    assert os.access(found, os.X_OK)
    assert [each.name for each in place.iterdir()] == [NAME], "nothing else is left there"
    assert await downloaded(web, "shelf", URL, sum_of(data), tmp_path) == place
    assert web.asked == 1, "it is there already"


async def test_another_checksum_leaves_nothing(tmp_path: Path) -> None:
    with pytest.raises(DriverError, match="has the SHA-256") as refused:
        await downloaded(Web(PROGRAM), "shelf", URL, "0" * 64, tmp_path)
    assert refused.value.reason is Reason.INVALID
    assert list(tmp_path.iterdir()) == []


async def test_another_version_is_another_program(tmp_path: Path) -> None:
    first = await downloaded(Web(PROGRAM), "shelf", URL, sum_of(PROGRAM), tmp_path)
    second = await downloaded(Web(PROGRAM + b"2"), "shelf", URL, sum_of(PROGRAM + b"2"), tmp_path)
    assert first != second
    assert (first / NAME).read_bytes() == PROGRAM


async def test_an_unreadable_address_is_reported() -> None:
    with pytest.raises(FetchError, match=r"https://a\.example:99999/ can't be reached: .*[Pp]ort"):
        await fetched(
            "https://a.example:99999/", VirtualClock(), context=ssl.create_default_context(), proxy=None, within=1, largest=1
        )


async def test_a_host_that_is_away_may_be_back_later(tmp_path: Path) -> None:
    with pytest.raises(DriverError, match="nobody is there") as refused:
        await downloaded(Web(None), "shelf", URL, "0" * 64, tmp_path)
    assert refused.value.retryable


@pytest.mark.parametrize(
    "data",
    [
        b"#!/bin/sh\nrm -rf /\n",
        tar(a=PROGRAM, b=PROGRAM),
        tar(**{NAME: b"words"}),
        b"\x1f\x8bnonsense",
        b"PK\x03\x04nonsense",
        b"",
    ],
)
def test_what_has_no_program_in_it_is_refused(data: bytes) -> None:
    with pytest.raises(DriverError):
        unpacked(data, "shelf")


@pytest.mark.parametrize("name", ["", "a-b", "../a", "A", "a" * 41, "a b"])
async def test_names_that_are_none(tmp_path: Path, name: str) -> None:
    assert name_problem(name)
    with pytest.raises(DriverError, match="can't be downloaded"):
        await downloaded(Web(PROGRAM), name, URL, sum_of(PROGRAM), tmp_path)


@pytest.mark.parametrize(
    "url", ["", "http://a/b", "ftp://a/b", "https://", "file:///bin/sh", "https://u:p@a/b", "https://[/", "https://a:99999/b"]
)
def test_addresses_that_are_none(url: str) -> None:
    assert url_problem(url)
    assert not url_problem(URL)


@pytest.mark.parametrize("checksum", ["", "2a55efd6d62d5f7fd27ce877d49596f4", "g" * 64, "A" * 64])
def test_checksums_that_are_none(checksum: str) -> None:
    assert checksum_problem(checksum)
    assert not checksum_problem("a" * 64)
