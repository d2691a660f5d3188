"""The check that finds whoever changes a cached object."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace

import pytest

from remuda.apiserver.cache import entries
from remuda.apiserver.cache.entries import Detector, Entry, Parsed, encode
from remuda.apiserver.inprocess import InProcessClient
from remuda.apiserver.server import Config
from remuda.app.embedded import running
from remuda.kube.objects import GroupVersionResource

CONFIG_MAPS = GroupVersionResource("", "v1", "configmaps")


@pytest.fixture
def detector(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[Detector]:
    """One of our own, so that what we do here does not fail the session."""
    made = Detector(str(tmp_path / "report"))
    monkeypatch.setattr(entries, "DETECTOR", made)
    yield made


def an_entry(name: str = "one", room: int = 1 << 20) -> Entry:
    stored = encode({"kind": "ConfigMap", "apiVersion": "v1", "metadata": {"name": name}, "data": {"a": "1"}})
    entry = Entry(f"/registry/configmaps/default/{name}", "default", name, 7, stored)
    entry.home = SimpleNamespace(keep_parsed=False, parsed=Parsed(room))
    return entry


def test_an_object_changed_in_place_is_reported_once_with_its_key(
    detector: Detector, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    entry = an_entry()
    entry.object()["data"]["a"] = "2"
    with caplog.at_level(logging.ERROR):
        detector.verify()
        detector.verify()
    told = "the cached object /registry/configmaps/default/one at revision 7 was changed in place"
    assert detector.violations == [told]
    assert caplog.messages == [told]
    assert (tmp_path / "report").read_text() == told + "\n"


def test_new_objects_bring_old_ones_under_scrutiny(detector: Detector) -> None:
    first = an_entry()
    first.object()["metadata"]["labels"] = {"x": "y"}
    an_entry("two").object()
    assert len(detector.violations) == 1


def test_a_change_is_found_although_the_object_was_dropped_since(detector: Detector) -> None:
    entry = an_entry()
    entry.object()["data"]["b"] = "2"
    entry.forget()
    detector.verify()
    assert len(detector.violations) == 1


def test_what_is_no_longer_handed_out_is_no_longer_watched(detector: Detector) -> None:
    entry = an_entry()
    shared = entry.object()
    entry.forget()
    detector.verify()
    shared["data"]["b"] = "mine now"
    detector.verify()
    assert detector.violations == []


async def test_an_in_process_client_that_changes_what_it_was_given_is_found_at_stop(detector: Detector) -> None:
    async with running(Config(data_dir=None), controllers=False, listen=False) as server:
        client = InProcessClient(server)
        obj = {
            "apiVersion": "v1",
            "kind": "ConfigMap",
            "metadata": {"name": "shared", "namespace": "default"},
            "data": {"a": "1"},
        }
        given = await client.create(CONFIG_MAPS, obj)
        obj["data"] = {"my own": "copy"}
        given["data"]["a"] = "2"
    assert [told for told in detector.violations if "default/shared" in told]
    assert len(detector.violations) == 1


async def test_a_server_that_stopped_leaves_nothing_to_watch(detector: Detector) -> None:
    async with running(Config(data_dir=None), listen=False) as server:
        client = InProcessClient(server)
        metadata = {"name": "changing", "namespace": "default"}
        await client.create(CONFIG_MAPS, {"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata})
        await client.patch(CONFIG_MAPS, "changing", {"data": {"a": "1"}}, "default")
        assert detector._watched
    assert (list(detector._watched), detector.violations) == ([], [])
