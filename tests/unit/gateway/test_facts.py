"""What anybody may know: the CA with a proof that it comes from us, settings, signs of life."""

from __future__ import annotations

import base64
import hashlib
import hmac

from remuda.kube.objects import GroupVersionResource

from .standing import Standing, standing, until

SECRETS = GroupVersionResource("", "v1", "secrets")
NAMESPACES = GroupVersionResource("", "v1", "namespaces")
TOKEN = "b" * 54


async def with_registration(place: Standing) -> None:
    await place.client.create(NAMESPACES, {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "c-abcde"}})
    data = {"token": base64.b64encode(TOKEN.encode()).decode()}
    metadata = {"name": "crt-token-default-token", "labels": {"remuda.dev/registration-token": "default-token"}}
    secret = {"apiVersion": "v1", "kind": "Secret", "metadata": metadata, "data": data}
    await place.client.create(SECRETS, secret, "c-abcde")


async def test_signs_of_life() -> None:
    async with standing() as place:
        assert await (await place.get("/ping")).text() == "pong"
        assert (await (await place.get("/rancherversion")).json())["Version"].startswith("v")
        assert (await place.get("/ping", method="POST")).status == 405
        assert await (await place.get("/cacerts")).text() == "", "there is no CA without TLS"


async def test_the_ca_with_a_proof_for_who_has_a_registration_token() -> None:
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


async def test_settings_are_for_those_who_may_read_them() -> None:
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
        rules = {
            "apiVersion": "rbac.authorization.k8s.io/v1",
            "kind": "ClusterRole",
            "metadata": {"name": "reads-settings"},
            "rules": [{"apiGroups": ["management.cattle.io"], "resources": ["settings"], "verbs": ["get", "list"]}],
        }
        binding = {
            "apiVersion": "rbac.authorization.k8s.io/v1",
            "kind": "ClusterRoleBinding",
            "metadata": {"name": "reads-settings"},
            "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "reads-settings"},
            "subjects": [{"apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": "u-1"}],
        }
        for resource, manifest in (("clusterroles", rules), ("clusterrolebindings", binding)):
            await place.client.create(GroupVersionResource("rbac.authorization.k8s.io", "v1", resource), manifest)
        found = await (await place.get("/v3/settings/server-url", token)).json()
        assert (found["value"], found["source"], found["customized"]) == ("https://remuda.example", "db", True)
        assert (await place.get("/v3/settings/nothing", token)).status == 404
        listed = await (await place.get("/v3/settings", token)).json()
        assert {"agent-tls-mode", "crt-default-ttl-minutes"} <= {each["name"] for each in listed["data"]}
