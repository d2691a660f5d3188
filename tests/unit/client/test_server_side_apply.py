"""When an apply can be left out after a restart: by what the object says of who applied what."""

from __future__ import annotations

from typing import Any

import pytest

from remuda.client.server_side_apply import was_applied

Obj = dict[str, Any]

WANTED: Obj = {
    "apiVersion": "a/v1",
    "kind": "Thing",
    "metadata": {"name": "x", "labels": {"l": "1"}},
    "spec": {"text": "t", "list": [{"name": "a"}], "inner": {"deep": 1}},
}
FIELDS: Obj = {
    "f:metadata": {"f:labels": {"f:l": {}}},
    "f:spec": {"f:text": {}, "f:list": {'k:{"name":"a"}': {".": {}, "f:name": {}}}, "f:inner": {"f:deep": {}}},
}


def found(fields: Obj = FIELDS, spec: Obj | None = None, **entry: str) -> Obj:
    said = {"manager": "m", "operation": "Apply", "apiVersion": "a/v1", "fieldsV1": fields, **entry}
    metadata = {**WANTED["metadata"], "uid": "1", "managedFields": [{"manager": "o", "operation": "Update"}, said]}
    return {**WANTED, "metadata": metadata, "spec": WANTED["spec"] if spec is None else spec}


def test_what_was_applied_as_a_whole_is_not_applied_again() -> None:
    assert was_applied(found(), WANTED, "m")
    # What others added is theirs.
    assert was_applied(found(spec={**WANTED["spec"], "more": 1}), WANTED, "m")


@pytest.mark.parametrize(
    "obj",
    [
        found(spec={**WANTED["spec"], "text": "other"}),
        found(spec={**WANTED["spec"], "list": []}),
        found({**FIELDS, "f:data": {"f:gone": {}}}),
        found({"f:spec": {**FIELDS["f:spec"], "f:inner": {"f:deep": {}, "f:old": {}}}}),
        found({"f:metadata": {"f:labels": {"f:l": {}, "f:old": {}}}}),
        found(manager="n"),
        found(operation="Update"),
        found(subresource="status"),
        found(apiVersion="a/v0"),
        {**found(), "metadata": {"name": "x", "labels": {"l": "1"}}},
    ],
    ids=["text", "list", "a field", "a deep field", "a label", "another", "an update", "status", "a version", "nothing known"],
)
def test_anything_else_is(obj: Obj) -> None:
    assert not was_applied(obj, WANTED, "m")
