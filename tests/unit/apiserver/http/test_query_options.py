"""Query parameters to options, and the complaints about bad ones."""

from __future__ import annotations

import pytest

from remuda.apiserver.http.paths import Query
from remuda.apiserver.http.query_options import WriteOptions, delete_options, list_options
from remuda.kube.errors import ApiError


def test_list_options() -> None:
    found = list_options(
        Query("labelSelector=a%3Db&fieldSelector=c%3Dd&limit=5&continue=x&resourceVersionMatch=Exact&resourceVersion=7")
    )
    assert (found.labels, found.fields, found.limit, found.continue_token) == ("a=b", "c=d", 5, "x")
    assert (found.resource_version, found.resource_version_match, found.watch) == ("7", "Exact", False)


def test_flags_are_true_unless_they_say_no() -> None:
    assert list_options(Query("watch=true&allowWatchBookmarks=&resourceVersion=1")).bookmarks
    assert not list_options(Query("allowWatchBookmarks=False")).bookmarks
    assert not list_options(Query("allowWatchBookmarks=0")).bookmarks


@pytest.mark.parametrize(
    ("limit", "why"), [("x", "invalid syntax"), ("1_0", "invalid syntax"), ("9" * 5000, "value out of range")]
)
def test_numbers_are_go_s(limit: str, why: str) -> None:
    with pytest.raises(ApiError) as caught:
        list_options(Query(f"limit={limit}"))
    assert caught.value.code == 400
    assert caught.value.message.endswith(why)


def test_write_options() -> None:
    found = WriteOptions(Query("dryRun=All&fieldManager=me&fieldValidation=Strict&force=true"), "PatchOptions")
    assert (found.dry_run, found.field_manager, found.field_validation, found.force) == (True, "me", "Strict", True)
    assert WriteOptions(Query(), "PatchOptions").field_validation == ""


@pytest.mark.parametrize("query", ["dryRun=Some", "fieldValidation=Maybe", "fieldManager=" + "x" * 129])
def test_write_options_that_are_refused(query: str) -> None:
    with pytest.raises(ApiError) as caught:
        WriteOptions(Query(query), "CreateOptions")
    assert caught.value.code == 422


def test_a_body_of_delete_options_wins_over_the_query() -> None:
    found, dry_run = delete_options(
        Query("gracePeriodSeconds=5"), {"gracePeriodSeconds": 0, "preconditions": {"uid": "u"}, "dryRun": ["All"]}
    )
    assert (found.grace_seconds, found.uid, dry_run) == (0, "u", True)
    found, dry_run = delete_options(Query("gracePeriodSeconds=5&propagationPolicy=Orphan"), None)
    assert (found.grace_seconds, found.propagation, dry_run) == (5, "Orphan", False)


def test_orphaning_can_be_said_in_one_way_only() -> None:
    with pytest.raises(ApiError) as caught:
        delete_options(Query("orphanDependents=true&propagationPolicy=Orphan"), None)
    assert caught.value.code == 422
