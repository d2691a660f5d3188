"""Cloud credentials in Norman's form: what is shown of a Secret, and what a client may write."""

from __future__ import annotations

import base64
from typing import Any

import pytest

from remuda.gateway.rancher.norman.credentials import changed, is_credential, new, shown
from remuda.gateway.rancher.resource_state import State
from remuda.kube.errors import ApiError

Obj = dict[str, Any]
DYNAMIC = [
    {
        "metadata": {"name": "cloudcredentialconfig"},
        "spec": {"resourceFields": {"region": {"type": "string"}, "key": {"type": "password"}, "odd": {}}},
    }
]


def made(**fields: Any) -> Obj:
    return changed(new("cc-abcde"), {"name": "mine", "description": "text", "cloudcredentialConfig": fields})


def text(secret: Obj, key: str) -> str:
    return base64.b64decode(secret["data"][key]).decode()


def test_a_secret_has_a_key_for_each_field() -> None:
    secret = made(region="north", key="hidden", size=3, flag=True, missing=None)
    assert {key: text(secret, key) for key in secret["data"]} == {
        "cloudcredentialConfig-region": "north",
        "cloudcredentialConfig-key": "hidden",
        "cloudcredentialConfig-size": "3",
        "cloudcredentialConfig-flag": "true",
    }
    assert secret["metadata"]["annotations"] == {"field.cattle.io/name": "mine", "field.cattle.io/description": "text"}
    assert is_credential(secret)
    assert not is_credential({**secret, "metadata": {"name": "other"}})
    assert not is_credential({"metadata": {"name": "cc-x"}, "data": {"token": ""}})


def test_only_fields_that_the_driver_calls_public_are_shown() -> None:
    found = shown(made(region="north", key="hidden", odd="x", unknown="y"), State(), DYNAMIC)
    assert found["cloudcredentialConfig"] == {"region": "north"}
    assert (found["id"], found["name"], found["description"]) == ("cattle-global-data:cc-abcde", "mine", "text")
    assert shown(made(region="north"), State(), [])["cloudcredentialConfig"] == {}, "the driver is not known"


def test_the_storage_of_snapshots_shows_no_keys() -> None:
    secret = changed(new("cc-a"), {"s3credentialConfig": {"accessKey": "a", "secretKey": "b", "defaultBucket": "c"}})
    assert shown(secret, State(), [])["s3credentialConfig"] == {"defaultBucket": "c"}


def test_what_an_update_leaves_out_stays() -> None:
    before = made(region="north", key="hidden")
    after = changed(before, {"cloudcredentialConfig": {"region": "south"}, "annotations": {"a": "b"}})
    assert (text(after, "cloudcredentialConfig-region"), text(after, "cloudcredentialConfig-key")) == ("south", "hidden")
    assert after["metadata"]["annotations"] == {"a": "b", "field.cattle.io/name": "mine", "field.cattle.io/description": "text"}
    assert changed(before, {"id": "x", "links": {}}) == before


@pytest.mark.parametrize(
    ("body", "message"),
    [
        ({"name": "x"}, "the fields of the credential are missing"),
        ({"acredentialConfig": {}, "bcredentialConfig": {}}, "a credential is for one driver"),
        ({"acredentialConfig": "x"}, "acredentialConfig must be an object"),
        ({"credentialConfig": {}}, "must be an object"),
        ({"acredentialConfig": {"k": ["x"]}}, "acredentialConfig.k must be text"),
        ({"acredentialConfig": {"k": "x" * 40_000}}, "acredentialConfig.k must be text of at most"),
    ],
)
def test_a_bad_credential_is_refused_by_field_and_without_its_value(body: Obj, message: str) -> None:
    with pytest.raises(ApiError, match=message) as caught:
        changed(new("cc-a"), body)
    assert "xxx" not in caught.value.message


def test_a_credential_stays_that_of_its_driver() -> None:
    with pytest.raises(ApiError, match="the credential is for cloud"):
        changed(made(key="hidden"), {"othercredentialConfig": {"key": "x"}})
