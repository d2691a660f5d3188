"""What a request of a recovery may say."""

from __future__ import annotations

import pytest

from remuda.provisioning.etcd.recovery_request import RecoveryRequest, RecoveryRequestError, noted, parse, requested


@pytest.mark.parametrize(
    ("text", "request_"),
    [
        ('{"generation":3,"snapshot":"snap"}', RecoveryRequest(3, snapshot="snap")),
        ('{"generation":1,"machine":"m"}', RecoveryRequest(1, machine="m")),
        ('{"generation": 2, "snapshot": "s", "restoreRKEConfig": "all"}', RecoveryRequest(2, "s", config="all")),
    ],
)
def test_it_names_a_snapshot_or_a_machine(text: str, request_: RecoveryRequest) -> None:
    assert parse(text) == requested(text) == parse(request_.text()) == request_
    assert noted({**request_.data(), "lost": [{"name": "a"}]}) == request_


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("snap", "it is not JSON"),
        ("[]", "it is not an object"),
        ('{"generation":1}', "snapshot: name either a snapshot or a machine"),
        ('{"generation":1,"snapshot":"s","machine":"m"}', "snapshot: name either a snapshot or a machine"),
        ('{"snapshot":"s"}', "generation: must be a positive number"),
        ('{"generation":true,"snapshot":"s"}', "generation: must be a positive number"),
        ('{"generation":0,"snapshot":"s"}', "generation: must be a positive number"),
        ('{"generation":1,"snapshot":5}', "snapshot: must be a name"),
        ('{"generation":1,"snapshot":"s","force":true}', "force: unknown field"),
        ('{"generation":1,"snapshot":"s","restoreRKEConfig":"some"}', "restoreRKEConfig: must be none"),
        ('{"generation":1,"machine":"s","restoreRKEConfig":"all"}', "restoreRKEConfig: must be none"),
    ],
)
def test_anything_else_is_refused_with_the_field(text: str, why: str) -> None:
    with pytest.raises(RecoveryRequestError, match=f"^{why}"):
        parse(text)
    assert requested(text) is None


def test_the_restore_that_it_leads_to() -> None:
    assert parse('{"generation":9,"snapshot":"s"}').restore(2) == {"generation": 2, "name": "s", "restoreRKEConfig": "none"}
    assert RecoveryRequest(9, machine="m").restore(2) == {"generation": 2, "fromMachine": "m", "restoreRKEConfig": "none"}
    assert requested(None) is None and noted(None) is None and noted({"generation": "x"}) is None
