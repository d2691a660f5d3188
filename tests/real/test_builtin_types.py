"""The shipped description of built-in types is what the pinned Kubernetes says, and protobuf of every kind decodes."""

from __future__ import annotations

import base64
import json

import pytest

from remuda.apiserver.scheme import builtin_types, protobuf
from tests.real import describe_types, need
from tests.real.protobuf_vectors import vectors

pytestmark = [pytest.mark.real, pytest.mark.timeout(900)]


def test_description_is_what_the_pinned_server_and_its_go_types_say() -> None:
    need.programs("kubernetes", "etcd")
    assert describe_types.main(["--check"]) == 0


def test_every_kind_decodes_from_protobuf_to_what_go_writes_in_json() -> None:
    need.go()
    group_versions = sorted({f"{each.group}/{each.version}".lstrip("/") for each in builtin_types.kinds()})
    compared = 0
    for line in vectors(*group_versions):
        vector = json.loads(line)
        api_version, _, kind = vector["name"].split(" ")[0].rpartition("/")
        group, _, version = api_version.rpartition("/")
        if builtin_types.type_of(group, version, kind) is None:
            continue
        compared += 1
        assert protobuf.decode(base64.b64decode(vector["protobuf"])) == vector["json"], vector["name"]
    assert compared > 300
