"""Names put together of others: as they are while they fit, cut at a fixed place and told apart by a hash when they don't."""

from __future__ import annotations

import hashlib

import pytest

from remuda.kube.objects import Key
from remuda.kube.wrangler import HASH, marks, origin_of, safe_concat, safe_concat_within, without_marks

OWNER = {"apiVersion": "provisioning.cattle.io/v1", "kind": "Cluster", "metadata": {"namespace": "fleet-default", "name": "demo"}}


@pytest.mark.parametrize("length", [1, 62, 63])
def test_what_fits_is_left_alone(length: int) -> None:
    assert safe_concat("a" * length) == "a" * length
    assert safe_concat("c-m-bcdfg245", "fleet-default", "owner") == "c-m-bcdfg245-fleet-default-owner"


@pytest.mark.parametrize(("text", "kept"), [("b" * 64, 57), ("b" * 56 + "-" + "b" * 9, 56), ("b" * 56 + "B" + "b" * 20, 56)])
def test_what_does_not_fit_is_cut_to_the_length_of_a_label(text: str, kept: int) -> None:
    found = safe_concat(text)
    assert len(found) == 63
    assert found == f"{text[:kept]}-{hashlib.sha256(text.encode()).hexdigest()[: 62 - kept]}"


@pytest.mark.parametrize(
    ("most", "text", "kept", "hashed"),
    [
        (15, "demo-pool-abcde-xyz", "demo-pool", 5),
        (16, "demo-pool-abcde-xyz", "demo-pool", 6),
        (19, "demo-pool-abcde-xyz", "demo-pool-abcde-xyz", 0),
        (53, "b" * 54, "b" * 47, 5),
        (7, "abcdefghij", "a", 5),
        (6, "abcdefghij", "", 5),
        (6, "-bcdefghij", "", 6),
        (5, "abcdefghij", "abcde", 0),
        (0, "abcdefghij", "", 0),
    ],
)
def test_a_limit_may_be_shorter(most: int, text: str, kept: str, hashed: int) -> None:
    digest = hashlib.sha256(text.encode()).hexdigest()[:hashed]
    assert safe_concat_within(most, *text.split("-")) == "-".join(each for each in (kept, digest) if each)


def test_two_long_names_that_begin_alike_differ() -> None:
    assert safe_concat("x" * 70, "one") != safe_concat("x" * 70, "two")


def test_what_was_generated_says_by_whom() -> None:
    labels, annotations = marks("cluster-create", OWNER)
    said = "cluster-createprovisioning.cattle.io/v1, Kind=Clusterdemofleet-default"
    assert labels == {HASH: hashlib.sha1(said.encode()).hexdigest()}
    made = {"metadata": {"annotations": {**annotations, "mine": "kept"}}}
    assert origin_of(made, "cluster-create") == Key("fleet-default", "demo")
    assert origin_of(made, "something-else") is None
    assert origin_of({"metadata": {}}, "cluster-create") is None
    assert without_marks(made["metadata"]["annotations"]) == {"mine": "kept"}
