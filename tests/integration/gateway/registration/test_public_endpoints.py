"""What anybody may know: the CA with a proof that it comes from us, settings, signs of life."""

from __future__ import annotations

import base64
import hashlib
import hmac
import json
from typing import Any

from remuda.access.users.tokens import Presented
from remuda.api.management_cattle_io import SETTINGS
from remuda.gateway.server.audit_log import Result
from remuda.gateway.server.csrf import CSRF_COOKIE, CSRF_HEADER, issue
from remuda.kube.objects import GroupVersionResource
from tests.integration.gateway.running_gateway import Standing, standing
from tests.waiting import until

SECRETS = GroupVersionResource("", "v1", "secrets")
NAMESPACES = GroupVersionResource("", "v1", "namespaces")
TOKEN = "b" * 54
Obj = dict[str, Any]


async def with_registration(place: Standing) -> None:
    await place.client.create(NAMESPACES, {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "c-abcde"}})
    data = {"token": base64.b64encode(TOKEN.encode()).decode()}
    metadata = {"name": "crt-token-default-token", "labels": {"remuda.dev/registration-token": "default-token"}}
    secret = {"apiVersion": "v1", "kind": "Secret", "metadata": metadata, "data": data}
    await place.client.create(SECRETS, secret, "c-abcde")


async def allow(place: Standing, user: str, *verbs: str) -> None:
    """Let somebody do this with settings."""
    group, name = "rbac.authorization.k8s.io", f"settings-{user}"
    rules = [{"apiGroups": ["management.cattle.io"], "resources": ["settings"], "verbs": list(verbs)}]
    role = {"metadata": {"name": name}, "rules": rules}
    subject = {"apiGroup": group, "kind": "User", "name": user}
    binding = {
        "metadata": {"name": name},
        "roleRef": {"apiGroup": group, "kind": "ClusterRole", "name": name},
        "subjects": [subject],
    }
    for resource, manifest in (("clusterroles", role), ("clusterrolebindings", binding)):
        await place.client.create(GroupVersionResource(group, "v1", resource), manifest)


async def test_signs_of_life() -> None:
    async with standing() as place:
        assert await (await place.get("/ping")).text() == "pong"
        assert (await (await place.get("/rancherversion")).json())["Version"].startswith("v")
        assert (await place.get("/ping", method="POST")).status == 405
        assert await (await place.get("/cacerts")).text() == "", "there is no CA without TLS"


async def test_the_ca_with_a_proof_for_holders_of_a_registration_token() -> None:
    async with standing() as place:
        await with_registration(place)
        shown = base64.b64encode(hashlib.sha256(TOKEN.encode()).digest()).decode()

        async def proof(bearer: str, nonce: str = "n-1") -> str:
            answer = await place.get("/cacerts", headers={"X-Cattle-Nonce": nonce, "Authorization": f"Bearer {bearer}"})
            assert answer.status == 200
            return answer.headers.get("X-Cattle-Hash", "")

        await until(lambda: proof(shown))
        said = b"n-1\0" + (await (await place.get("/cacerts")).read()) + b"\0"
        expected = base64.b64encode(hmac.new(TOKEN.encode(), said, hashlib.sha512).digest()).decode()
        assert await proof(shown) == expected
        assert await proof(shown, "n-2") != expected
        # Nobody gets a proof by the token itself, by half of it, or without a nonce.
        for bearer in (TOKEN, shown[:-4], "x", "", base64.b64encode(b"\0" * 32).decode()):
            assert await proof(bearer) == ""
        assert await proof(shown, "") == ""


async def test_settings_are_for_users_who_may_read_them() -> None:
    async with standing() as place:
        await place.setting("server-url", "https://remuda.example")
        public = await (await place.get("/v3/settings/cacerts")).json()
        assert (public["id"], public["type"], public["name"]) == ("cacerts", "setting", "cacerts")
        assert public["links"]["self"] == "https://remuda.example/v3/settings/cacerts"
        await place.user("u-1")
        token = await place.token("u-1")
        for path in ("/v3/settings", "/v3/settings/server-url", "/v3/settings/nothing"):
            assert (await place.get(path)).status == 401
            assert (await place.get(path, token)).status == 403, path
        await allow(place, "u-1", "get", "list")
        found = await (await place.get("/v3/settings/server-url", token)).json()
        assert (found["value"], found["source"], found["customized"]) == ("https://remuda.example", "db", True)
        assert (await place.get("/v3/settings/nothing", token)).status == 404
        listed = await (await place.get("/v3/settings", token)).json()
        assert {"agent-tls-mode", "crt-default-ttl-minutes"} <= {each["name"] for each in listed["data"]}


async def test_an_administrator_sets_them_as_ranchers_clients_do() -> None:
    async with standing() as place:
        await place.user("u-reader")
        await place.user("u-admin")
        await allow(place, "u-reader", "get", "list")
        await allow(place, "u-admin", "get", "list", "update")
        reader, admin = await place.token("u-reader"), await place.token("u-admin")
        await until(lambda: place.gateway.services.informers.of(SETTINGS).get("", "server-url"))
        path = "/v3/settings/server-url"

        async def put(body: object, token: Presented | None = admin, path: str = path) -> tuple[int, Obj]:
            answer = await place.get(path, token, "PUT", data=body if isinstance(body, bytes) else json.dumps(body))
            return answer.status, await answer.json()

        assert "update" not in (await (await place.get(path, reader)).json())["links"]
        shown = await (await place.get(path, admin)).json()
        assert shown["links"]["update"].endswith(path)
        # As it was read, with another value.
        status, changed = await put({**shown, "value": "https://remuda.example"})
        assert status == 200, changed
        assert (changed["value"], changed["source"], changed["customized"]) == ("https://remuda.example", "db", True)
        assert (await (await place.get(path, admin)).json())["value"] == "https://remuda.example"
        assert (await place.client.get(SETTINGS, "server-url"))["value"] == "https://remuda.example"
        assert place.audit.records[-1].path == path
        written = [record for record in place.audit.records if record.method == "PUT"]
        assert [(record.user, record.result, record.status) for record in written] == [("u-admin", Result.ALLOWED, 200)]

        for body, words in (
            ({"value": "http://remuda.example/x"}, "server-url must"),
            ({"value": 7}, "value must be text"),
            ({}, "value is missing"),
            ({"value": "https://a.example", "id": "cacerts"}, "id must be server-url"),
        ):
            status, told = await put(body)
            assert (status, told["type"]) == (422, "error") and words in told["message"], told
        assert (await put(b"[1]"))[0] == 400
        for broken in (b"{", b'{"value": "\\ud800"}', b'{"value": "\xff"}'):
            assert (await put(broken))[0] == 400
        assert (await put({"value": "x" * 70_000}))[0] == 413
        assert (await put({"value": "x"}, path="/v3/settings/nothing"))[0] == 404
        # Who may only read, and who is not known.
        assert (await put({"value": "https://b.example"}, reader))[0] == 403
        assert (await put({"value": "x"}, reader, "/v3/settings/nothing"))[0] == 403
        assert (await put({"value": "https://b.example"}, None))[0] == 401
        assert (await place.client.get(SETTINGS, "server-url"))["value"] == "https://remuda.example"

        # A session needs its page's word; another site's page does not have it.
        host = f"127.0.0.1:{place.port}"
        cookie = {"Cookie": f"R_SESS={admin.text}", "Host": host}
        data = json.dumps({"value": "https://c.example"})
        assert (await place.get(path, method="PUT", headers=cookie, data=data)).status == 403
        word = issue(admin, place.gateway.services.entropy)
        own = {**cookie, "Cookie": f"R_SESS={admin.text}; {CSRF_COOKIE}={word}", CSRF_HEADER: word}
        assert (await place.get(path, method="PUT", headers={**own, "Origin": "https://evil.example"}, data=data)).status == 403
        assert (await place.get(path, method="PUT", headers=own, data=data)).status == 200

        # Nothing said: what holds then.
        for nothing in ("", None):
            status, changed = await put({"value": nothing})
            assert (status, changed["value"], changed["source"], changed["customized"]) == (200, "", "default", False)
        # Also of those that anybody may read.
        assert (await put({"value": "nonsense"}, path="/v3/settings/cacerts"))[0] == 422
