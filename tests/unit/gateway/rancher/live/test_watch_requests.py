"""The messages of a subscription: the watch they name, and notices of changes."""

from __future__ import annotations

import json
from typing import Any

import pytest

from remuda.gateway.rancher.live.watch_requests import Notices, WatchName, parse
from remuda.kube.clock import VirtualClock
from remuda.kube.errors import ApiError


def said(**fields: Any) -> str:
    return json.dumps({"resourceType": "secret", **fields})


def test_a_watch_is_named_by_everything_but_its_revision() -> None:
    fields = {"namespace": "a", "id": "a/b", "selector": "x=y", "mode": "resource.changes"}
    first, second = parse(said(**fields, resourceVersion="5")), parse(said(**fields, resourceVersion="6", debounceMs=4000))
    assert first.name == second.name == WatchName("secret", "a", "a/b", "x=y", "resource.changes")
    assert (first.revision, second.revision, second.pause, second.only_notices) == ("5", "6", 4.0, True)


@pytest.mark.parametrize("revision", ["", "0", "-1", None])
def test_a_watch_without_a_revision_begins_with_the_present_objects(revision: str | None) -> None:
    assert parse(said(resourceVersion=revision)).revision == ""


@pytest.mark.parametrize(
    ("fields", "namespaced", "place"),
    [
        ({}, True, ("", "")),
        ({"namespace": "a"}, True, ("a", "")),
        ({"namespace": "a"}, False, ("", "")),
        ({"id": "a/b"}, True, ("a", "b")),
        ({"id": "b", "namespace": "a"}, True, ("a", "b")),
        ({"id": "b"}, False, ("", "b")),
    ],
)
def test_a_watch_has_a_namespace_and_a_name(fields: dict[str, str], namespaced: bool, place: tuple[str, str]) -> None:
    assert parse(said(**fields)).place(namespaced) == place


@pytest.mark.parametrize(
    ("text", "field"),
    [
        ("{", "JSON"),
        ("[]", "object"),
        ("{}", "resourceType"),
        (said(namespace=["a"]), "namespace"),
        (said(selector="x" * 5000), "selector"),
        (said(resourceVersion="many"), "resourceVersion"),
        (said(resourceVersion="1" * 20), "resourceVersion"),
        (said(mode="all"), "mode"),
        (said(debounceMs="1"), "debounceMs"),
        (said(debounceMs=-1), "debounceMs"),
    ],
)
def test_a_message_that_makes_no_sense_is_refused_by_its_field(text: str, field: str) -> None:
    with pytest.raises(ApiError, match=field):
        parse(text)


def test_an_id_of_another_namespace_is_refused() -> None:
    with pytest.raises(ApiError, match="namespace"):
        parse(said(id="a/b", namespace="c")).place(namespaced=True)


def test_a_message_about_a_watch_repeats_its_name() -> None:
    name = WatchName("secret", namespace="a", mode="resource.changes")
    expected = {"name": "resource.stop", "resourceType": "secret", "namespace": "a", "mode": "resource.changes"}
    assert name.message("resource.stop") == expected


async def test_changes_within_the_pause_are_one_notice() -> None:
    clock, told = VirtualClock(), list[str]()
    notices = Notices(clock, 4.0, told.append)
    for revision in ("1", "2", "3"):
        notices.note(revision)
    assert told == ["1"]
    await clock.advance(4.0)
    assert told == ["1", "3"]
    await clock.advance(60.0)
    notices.note("4")
    assert told == ["1", "3", "4"]
    notices.note("5")
    notices.cancel()
    await clock.advance(60.0)
    assert told == ["1", "3", "4"]
