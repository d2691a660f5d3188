"""The address of the manifest: its token is the only key, and nothing but the right one opens."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

import pytest
from aiohttp import web
from aiohttp.test_utils import make_mocked_request

from remuda.api.management_cattle_io import CLUSTERS
from remuda.gateway.registration.import_manifest import REFUSED, Importing
from remuda.gateway.registration.registration_tokens import SECRETS, Registrations
from remuda.gateway.server.path_validation import judge
from remuda.gateway.server.routing import RequestContext
from remuda.kube.encoding import yamlio
from remuda.kube.errors import ApiError
from remuda.kube.redaction import redacted
from tests.unit.gateway.management_gateway import Management, management

from .test_registration_tokens import crt_secret

Obj = dict[str, Any]
TOKEN, NODE, LOCAL = "b" * 54, "c" * 54, "d" * 54
ID = "c-m-abcdefgh"


@pytest.fixture
async def place() -> AsyncIterator[Management]:
    async with management({"REMUDA_SERVER_URL": "https://remuda.example.com"}, ca="") as made:
        registrations = Registrations(made.services)
        Importing(made.services, registrations)
        for name, spec in ((ID, {"displayName": "one"}), ("local", {"internal": True})):
            await made.namespace(name)
            cluster = {"apiVersion": "management.cattle.io/v3", "kind": "Cluster", "metadata": {"name": name}, "spec": spec}
            await made.client.create(CLUSTERS, cluster)
        for name, crt, token in ((ID, "default-token", TOKEN), (ID, "node-token", NODE), ("local", "default-token", LOCAL)):
            await made.client.create(SECRETS, crt_secret(name, crt, token=token), name)
        await made.settle()
        yield made


async def asked(
    place: Management, path: str, method: str = "GET", headers: dict[str, str] | None = None
) -> tuple[RequestContext, web.Response]:
    target = judge(path)
    found = place.services.routes.find(method, target)
    assert isinstance(found, tuple)
    route, parameters = found
    request = RequestContext(make_mocked_request(method, path, {"Host": "x", **(headers or {})}), target, "127.0.0.1", parameters)
    answer = await route.answer(request)
    assert isinstance(answer, web.Response)
    return request, answer


async def test_the_right_token_gets_the_manifest(place: Management) -> None:
    request, answer = await asked(place, f"/v3/import/{TOKEN}_{ID}.yaml")
    assert (answer.status, answer.content_type) == (200, "text/plain")
    assert answer.headers["Cache-Control"] == "no-store"
    assert answer.text is not None
    kinds = [each["kind"] for each in yamlio.loads_all(answer.text)]
    assert kinds.count("Deployment") == 1
    assert "https://remuda.example.com" in answer.text
    assert request.cluster == ID


WRONG = (
    f"{NODE}_{ID}.yaml",
    f"{'f' * 54}_{ID}.yaml",
    f"{TOKEN}_c-m-another.yaml",
    f"{TOKEN}_local.yaml",
    f"{LOCAL}_local.yaml",
    f"{TOKEN}_{ID}.yml",
    f"{TOKEN}_{ID}",
    f"{TOKEN}.yaml",
    f"_{ID}.yaml",
    f"{TOKEN}_.yaml",
    f"{TOKEN.upper()}_{ID}.yaml",
)


async def test_everything_else_gets_one_and_the_same_answer(place: Management) -> None:
    for file in WRONG:
        request, answer = await asked(place, f"/v3/import/{file}")
        assert (answer.status, answer.text) == (400, REFUSED), file
        assert request.why and request.cluster == "", file


async def test_a_cluster_that_goes_is_imported_no_more(place: Management) -> None:
    await place.client.patch(CLUSTERS, ID, {"metadata": {"finalizers": ["test.io/wait"]}})
    await place.client.delete(CLUSTERS, ID)
    await place.settle()
    _, answer = await asked(place, f"/v3/import/{TOKEN}_{ID}.yaml")
    assert answer.status == 400


async def test_nothing_that_is_kept_of_it_holds_the_token(place: Management) -> None:
    for file in (f"{TOKEN}_{ID}.yaml", f"{TOKEN}_c-m-another.yaml", f"{TOKEN}.yaml"):
        path = f"/v3/import/{file}"
        request, _ = await asked(place, path)
        assert TOKEN not in redacted(path)
        assert TOKEN not in request.why and TOKEN not in request.cluster


async def test_who_asks_too_early_is_told_to_come_back() -> None:
    async with management() as made:
        Importing(made.services, Registrations(made.services))
        with pytest.raises(ApiError) as caught:
            await asked(made, f"/v3/import/{TOKEN}_{ID}.yaml")
        assert caught.value.code == 503
