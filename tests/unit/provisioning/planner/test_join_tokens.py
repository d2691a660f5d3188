"""The tokens by which machines join: made once, read back, never taken from what is none."""

from __future__ import annotations

from typing import Any

import pytest

from remuda.kube.clock import Entropy
from remuda.provisioning.planner.join_tokens import TYPE, TokensError, state_name, state_secret, tokens_of
from remuda.provisioning.planner.snapshot import Tokens

PLANE: dict[str, Any] = {"metadata": {"name": "demo", "namespace": "fleet-default", "uid": "u1"}}


def test_they_are_long_different_and_go_with_the_control_plane() -> None:
    made = state_secret(PLANE, Entropy(1))
    assert made["metadata"]["name"] == state_name("demo") == "demo-rke-state"
    assert made["type"] == TYPE and made["metadata"]["labels"] == {"resources.cattle.io/backup": "true"}
    (owner,) = made["metadata"]["ownerReferences"]
    assert (owner["kind"], owner["uid"], owner.get("controller")) == ("RKEControlPlane", "u1", None)
    found = tokens_of(made)
    assert len(found.server) == len(found.agent) == 54 and found.server != found.agent
    assert found.server not in repr(found)
    assert state_secret(PLANE, Entropy(2))["data"] != made["data"]
    assert found == Tokens(found.server, found.agent)


@pytest.mark.parametrize("change", [{"type": "Opaque"}, {"data": {}}, {"data": {"serverToken": "eA=="}}, {"data": None}])
def test_a_secret_without_them_is_told_of_and_not_replaced(change: dict[str, Any]) -> None:
    with pytest.raises(TokensError, match="demo-rke-state"):
        tokens_of({**state_secret(PLANE, Entropy(1)), **change})
