"""What is in a Secret, asked for in every shape and by every name, by who may read it and by who may not."""

from __future__ import annotations

import base64
from typing import Any

from remuda.access.users.tokens import Presented
from remuda.kube.objects import GroupVersionResource
from tests.integration.gateway.running_gateway import Standing, standing, until

SECRETS = GroupVersionResource("", "v1", "secrets")
ROLES = GroupVersionResource("rbac.authorization.k8s.io", "v1", "roles")
BINDINGS = GroupVersionResource("rbac.authorization.k8s.io", "v1", "rolebindings")
WORD, OTHER = "hush-a-word-that-is-not-for-you", "hush-another-word-of-others"
PATH = "/api/v1/namespaces/default/secrets"
SHAPES = (
    "application/json",
    "application/yaml",
    "application/json;as=Table;g=meta.k8s.io;v=v1",
    "application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1",
    "application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1",
)
TRIES = (
    PATH,
    "/api/v1/secrets",
    f"{PATH}/two",
    f"{PATH}?fieldSelector=metadata.name%3Dtwo",
    f"{PATH}?fieldSelector=metadata.name%21%3Done",
    f"{PATH}?fieldSelector=metadata.name%3Done&fieldSelector=metadata.name%3Dtwo",
    f"{PATH}?fieldSelector=metadata.name%3Done%2Cmetadata.name%3Dtwo",
    f"{PATH}?fieldSelector=type%3DOpaque",
    f"{PATH}?labelSelector=a%3Db",
    f"{PATH}?resourceVersion=0&limit=1",
    f"{PATH}?includeObject=Object",
    f"{PATH}?watch=true&timeoutSeconds=1&resourceVersion=0",
    f"{PATH}?watch=true&timeoutSeconds=1&fieldSelector=metadata.name%3Dtwo",
    "/api/v1/watch/namespaces/default/secrets",
    "/api/v1/watch/namespaces/default/secrets/two",
    f"{PATH}/two/status",
    f"{PATH}/one/../two",
    f"{PATH}/one%2F..%2Ftwo",
    "/api/v1/namespaces/default//secrets/two",
    "/api//v1/namespaces/default/secrets/two",
    "/apis//v1/namespaces/default/secrets/two",
)


async def reader(place: Standing, name: str, names: list[str]) -> Presented:
    """Who may get, list and watch the Secrets of these names; all of their metadata is in none of these."""
    await place.user(name)
    meta = {"name": name, "namespace": "default"}
    rule = {"apiGroups": [""], "resources": ["secrets"], "resourceNames": names, "verbs": ["get", "list", "watch"]}
    role = {"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "Role", "metadata": meta, "rules": [rule]}
    binding = {
        "apiVersion": "rbac.authorization.k8s.io/v1",
        "kind": "RoleBinding",
        "metadata": meta,
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": name},
        "subjects": [{"kind": "User", "name": name, "apiGroup": "rbac.authorization.k8s.io"}],
    }
    await place.client.create(ROLES, role, "default")
    await place.client.create(BINDINGS, binding, "default")
    return await place.token(name)


async def test_a_secret_is_shown_only_to_users_who_may_read_it() -> None:
    async with standing() as place:
        for name, word in (("one", WORD), ("two", OTHER)):
            body: dict[str, Any] = {"apiVersion": "v1", "kind": "Secret", "metadata": {"name": name, "labels": {"a": "b"}}}
            await place.client.create(SECRETS, {**body, "stringData": {"word": word}}, "default")
        token = await reader(place, "u-reader", ["one"])
        await until(lambda: _shows(place, token, WORD))
        for path in TRIES:
            for shape in SHAPES:
                answer = await place.get(path, token, headers={"Accept": shape})
                text = await answer.text()
                assert not _holds(text, OTHER), (path, shape, answer.status)
                assert answer.status != 200 or '"name":"two"' not in text, (path, shape)
        # Metadata of what one may read holds the names of its fields, and nothing of what is in them.
        for shape in SHAPES[2:4]:
            answer = await place.get(f"{PATH}/one", token, headers={"Accept": shape})
            assert answer.status == 200 and not _holds(await answer.text(), WORD), shape


async def _shows(place: Standing, token: Presented, word: str) -> bool:
    answer = await place.get(f"{PATH}/one", token)
    return answer.status == 200 and _holds(await answer.text(), word)


def _holds(text: str, word: str) -> bool:
    return word in text or base64.b64encode(word.encode()).decode() in text
