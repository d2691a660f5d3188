"""Ways in that were found once, each of them closed: what an attacker would try first."""

from __future__ import annotations

import asyncio
import base64
import contextlib
import json
import logging
import sys

import aiohttp
import pytest
from yarl import URL

from remuda.access.users.tokens import Presented
from remuda.api.management_cattle_io import TOKENS
from remuda.capi.clustercache.cache import workload_target
from remuda.cli.programs.logs import JsonLines, TextLines
from remuda.client.download import FetchError, _next
from remuda.client.kubeconfig import ConfigError
from remuda.kube.objects import GroupVersionResource
from tests.integration.gateway.running_gateway import Standing, standing, until

CLUSTER_ROLE_BINDINGS = GroupVersionResource("rbac.authorization.k8s.io", "v1", "clusterrolebindings")
WATCH = "/api/v1/namespaces/default/configmaps?watch=true"


# --- kubeconfigs that somebody else wrote ---------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "user",
    [
        {"tokenFile": "/etc/passwd"},
        {"tokenFile": "/etc/passwd", "tokenFile-data": "eA=="},
        {"tokenFile": "/etc/passwd", "token": "x"},
        {"client-key": "/etc/passwd", "client-certificate": "/etc/passwd"},
        {"exec": {"apiVersion": "client.authentication.k8s.io/v1", "command": "id"}},
        {"auth-provider": {"name": "gcp"}},
    ],
    ids=lambda user: "+".join(user),
)
def test_a_clusters_kubeconfig_names_no_file_and_no_program_of_ours(user: dict[str, object]) -> None:
    config = {
        "clusters": [{"name": "c", "cluster": {"server": "https://attacker.example"}}],
        "users": [{"name": "u", "user": user}],
        "contexts": [{"name": "x", "context": {"cluster": "c", "user": "u"}}],
        "current-context": "x",
    }
    with pytest.raises(ConfigError):
        workload_target(json.dumps(config).encode())


# --- a token among a websocket's protocols --------------------------------------------------------------------------------


def among_protocols(token: Presented) -> dict[str, str]:
    shown = base64.urlsafe_b64encode(token.text.encode()).decode().rstrip("=")
    return {"Sec-WebSocket-Protocol": f"base64url.bearer.authorization.k8s.io.{shown}, v5.channel.k8s.io"}


async def powerful(place: Standing, name: str) -> Presented:
    await place.user(name)
    binding = {
        "apiVersion": "rbac.authorization.k8s.io/v1",
        "kind": "ClusterRoleBinding",
        "metadata": {"name": name},
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "cluster-admin"},
        "subjects": [{"kind": "User", "name": name, "apiGroup": "rbac.authorization.k8s.io"}],
    }
    await place.client.create(CLUSTER_ROLE_BINDINGS, binding)
    return await place.token(name)


async def test_a_token_among_protocols_is_bounded_told_of_and_revoked_like_any_other() -> None:
    async with standing() as place:
        token, other = await powerful(place, "u-first"), await powerful(place, "u-second")
        await until(lambda: _ok(place, among_protocols(token)))
        await until(lambda: _ok(place, {"Authorization": f"Bearer {other.text}"}))

        # Two at once are none: the door would have looked at the one, and the API at the other.
        for both in ({"Authorization": f"Bearer {other.text}"}, {"Authorization": f"Basic {_basic(other)}"}):
            answer = await place.get(WATCH.partition("?")[0], headers={**among_protocols(token), **both})
            assert answer.status == 401
        here = "/k8s/clusters/local/apis/authentication.k8s.io/v1/selfsubjectreviews"
        review = {"apiVersion": "authentication.k8s.io/v1", "kind": "SelfSubjectReview"}
        headers = {**among_protocols(token), "Authorization": f"Basic {_basic(other)}"}
        answer = await place.get(here, method="POST", json=review, headers=headers)
        assert answer.status == 201 and (await answer.json())["status"]["userInfo"]["username"] == "u-second"

        watching = await place.http.get(place.url + WATCH, headers=among_protocols(token))
        assert watching.status == 200
        assert place.audit.records[-1].token == token.name, "what has begun is told of with its token"
        await place.client.delete(TOKENS, token.name)
        # It would go on for half an hour; a server that cuts it is quicker than this.
        async with asyncio.timeout(60):
            with contextlib.suppress(aiohttp.ClientError):
                while await watching.content.readany():
                    pass
        assert (await place.get(WATCH.partition("?")[0], headers=among_protocols(token))).status == 401


async def _ok(place: Standing, headers: dict[str, str]) -> bool:
    return (await place.get(WATCH.partition("?")[0], headers=headers)).status == 200


def _basic(token: Presented) -> str:
    return base64.b64encode(token.text.encode()).decode()


# --- words of others in our log -------------------------------------------------------------------------------------------

FORGED = "x\n2026-11-16T12:00:00.000Z info remuda: all is well\x1b[2J\r\u2028\x85y"


@pytest.mark.parametrize("form", [TextLines, JsonLines])
def test_a_line_in_the_log_is_ours_alone(form: type[logging.Formatter]) -> None:
    try:
        raise ValueError(FORGED)
    except ValueError:
        trace = sys.exc_info()
    plain = logging.makeLogRecord({"name": "remuda", "msg": "asked for %s", "args": (FORGED,), "levelname": "INFO"})
    plain.key = FORGED
    failed = logging.makeLogRecord({"name": "remuda", "msg": "it failed", "levelname": "ERROR", "exc_info": trace})
    assert "\n" not in form().format(plain) and "\x1b" not in form().format(plain)
    first, *others = form().format(failed).split("\n")
    assert "it failed" in first
    assert all(line.startswith("  ") for line in others) and "\x1b" not in "".join(others)


# --- where a download leads -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("location", ["http://other.example/x", "file:///etc/passwd", "ftp://other.example/", "http://["])
def test_a_download_by_https_is_not_sent_elsewhere(location: str) -> None:
    with pytest.raises(FetchError):
        _next("https://one.example/x", URL("https://one.example/x"), location)
    assert str(_next("u", URL("https://one.example/a/b"), "../c")) == "https://one.example/c"
