"""Whoever made a cloud credential may use it, and nobody else because of it."""

from __future__ import annotations

from typing import Any

import pytest

from remuda.kube.builtin_resources import ROLE_BINDINGS, ROLES
from remuda.provisioning.references.cloud_credentials import TYPE, CloudCredentials
from tests.unit.access.management_api import SECRETS, Parts, World, world
from tests.unit.provisioning.cluster.mirrored_clusters import FLEET

Obj = dict[str, Any]
CREATOR = "field.cattle.io/creatorId"


def controllers(parts: Parts) -> Any:
    yield CloudCredentials(parts.manager)


async def credential(made: World, creator: str | None = "u-1", kind: str = TYPE) -> None:
    annotations = {"mine": "kept", **({CREATOR: creator} if creator else {})}
    metadata = {"name": "cc-x", "namespace": FLEET, "annotations": annotations}
    await made.create(SECRETS, {"apiVersion": "v1", "kind": "Secret", "metadata": metadata, "type": kind})
    await made.settle(2)


async def test_its_creator_may_use_it_and_it_is_said_no_more() -> None:
    async with world(controllers) as made:
        await credential(made)
        secret = await made.get(SECRETS, "cc-x", FLEET)
        assert secret["metadata"]["annotations"] == {"mine": "kept"}
        role, binding = await made.get(ROLES, "u-1-cc-x", FLEET), await made.get(ROLE_BINDINGS, "u-1-cc-x", FLEET)
        assert role["rules"] == [
            {"apiGroups": [""], "resources": ["secrets"], "resourceNames": ["cc-x"], "verbs": ["get", "update", "delete"]}
        ]
        assert binding["roleRef"]["name"] == "u-1-cc-x"
        assert binding["subjects"] == [{"apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": "u-1"}]
        for each in (role, binding):
            (owner,) = each["metadata"]["ownerReferences"]
            assert (owner["kind"], owner["uid"]) == ("Secret", secret["metadata"]["uid"])


async def test_the_access_goes_with_it() -> None:
    async with world(controllers) as made:
        await credential(made)
        await made.delete(SECRETS, "cc-x", FLEET)
        await made.settle(10)
        assert await made.find(ROLES, "u-1-cc-x", FLEET) is None and await made.find(ROLE_BINDINGS, "u-1-cc-x", FLEET) is None


@pytest.mark.parametrize(("creator", "kind"), [("u-1", "Opaque"), (None, TYPE), ("a/b", TYPE)])
async def test_no_access_to_other_objects_is_given(creator: str | None, kind: str) -> None:
    async with world(controllers) as made:
        await credential(made, creator, kind)
        assert [each for each in await made.list(ROLES, FLEET) if each["metadata"]["name"].endswith("cc-x")] == []


async def test_a_role_of_the_same_name_is_left_alone() -> None:
    async with world(controllers) as made:
        metadata = {"name": "u-1-cc-x", "namespace": FLEET}
        rule = {"apiGroups": [""], "resources": ["pods"], "verbs": ["get"]}
        role = {"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "Role", "metadata": metadata, "rules": [rule]}
        await made.create(ROLES, role)
        await credential(made)
        assert (await made.get(ROLES, "u-1-cc-x", FLEET))["rules"] == [rule]
        assert await made.find(ROLE_BINDINGS, "u-1-cc-x", FLEET) is None
        assert CREATOR in (await made.get(SECRETS, "cc-x", FLEET))["metadata"]["annotations"]
