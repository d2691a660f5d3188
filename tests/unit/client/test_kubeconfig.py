"""Kubeconfig files as kubectl reads them."""

from __future__ import annotations

import base64
import json
import stat
from pathlib import Path
from typing import Any

import pytest

from remuda.client import kubeconfig
from remuda.client.credentials import FILE_SECONDS, source_for
from remuda.client.kubeconfig import ConfigError, KubeTarget
from remuda.kube.clock import VirtualClock, rfc3339
from remuda.kube.encoding import yamlio

Obj = dict[str, Any]


def config(name: str = "one", *, cluster: Obj | None = None, user: Obj | None = None, current: str = "", **context: str) -> Obj:
    return {
        "apiVersion": "v1",
        "kind": "Config",
        "current-context": current,
        "clusters": [{"name": name, "cluster": {"server": f"https://{name}.test:6443", **(cluster or {})}}],
        "users": [{"name": name, "user": user or {}}],
        "contexts": [{"name": name, "context": {"cluster": name, "user": name, **context}}],
    }


def write(path: Path, document: Obj) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(yamlio.dumps(document))
    return path


def target(tmp_path: Path, **parts: Any) -> KubeTarget:
    return kubeconfig.select(kubeconfig.load([write(tmp_path / "config", config(current="one", **parts))]))


def test_the_files_of_kubeconfig_are_read_in_order_and_home_is_the_fallback() -> None:
    assert kubeconfig.default_paths({"KUBECONFIG": "/a:/b::"}) == [Path("/a"), Path("/b")]
    assert kubeconfig.default_paths({"HOME": "/home/me"}) == [Path("/home/me/.kube/config")]


def test_the_first_file_to_name_something_wins(tmp_path: Path) -> None:
    first = write(tmp_path / "a", config("one", cluster={"server": "https://first"}))
    second = write(tmp_path / "b", config("one", cluster={"server": "https://second"}, current="two"))
    third = write(tmp_path / "c", config("two", namespace="apps"))
    merged = kubeconfig.load([tmp_path / "absent", first, second, third])
    assert kubeconfig.select(merged, "one").server == "https://first"
    chosen = kubeconfig.select(merged)
    assert (chosen.server, chosen.namespace) == ("https://two.test:6443", "apps")


def test_inline_material_wins_over_files_which_are_relative_to_their_kubeconfig(tmp_path: Path) -> None:
    (tmp_path / "sub").mkdir()
    (tmp_path / "sub" / "ca.pem").write_bytes(b"from a file")
    inline = base64.b64encode(b"inline").decode()
    path = write(
        tmp_path / "sub" / "config",
        config(
            cluster={"certificate-authority": "ca.pem"},
            user={"client-certificate": "no.pem", "client-certificate-data": inline, "client-key-data": inline},
        ),
    )
    found = kubeconfig.select(kubeconfig.load([path]), "one")
    assert (found.ca, found.client_certificate, found.client_key) == (b"from a file", b"inline", b"inline")


def test_everything_else_a_cluster_and_a_user_may_say(tmp_path: Path) -> None:
    found = target(
        tmp_path,
        cluster={"insecure-skip-tls-verify": True, "tls-server-name": "inner", "proxy-url": "http://proxy:3128"},
        user={"token": "t", "as": "jane", "as-groups": ["dev"], "as-uid": "7", "as-user-extra": {"scopes": ["a", "b"]}},
    )
    assert (found.insecure, found.tls_server_name, found.proxy_url) == (True, "inner", "http://proxy:3128")
    assert (found.impersonate, found.impersonate_groups, found.impersonate_uid) == ("jane", ("dev",), "7")
    assert found.impersonate_extra == (("scopes", ("a", "b")),)


def test_secrets_are_not_in_the_representation() -> None:
    shown = repr(KubeTarget("https://x", token="hidden-token", password="hidden-word", client_key=b"hidden-key"))
    assert "hidden" not in shown


@pytest.mark.parametrize(
    ("document", "complaint"),
    [
        (config(), "no context is chosen"),
        (config(current="two"), 'context "two" does not exist'),
        (config(current="one", cluster={"server": ""}), "has no server"),
        (config(current="one", cluster={"certificate-authority-data": "%%"}), "certificate-authority-data is not base64"),
        (config(current="one", cluster={"certificate-authority": "/absent"}), "/absent can't be read"),
        (config(current="one", user={"client-certificate-data": "YQ=="}), "must be given together"),
        (config(current="one", user={"exec": {"apiVersion": "client.authentication.k8s.io/v1"}}), "has no command"),
        (config(current="one", user={"exec": {"apiVersion": "v9", "command": "x"}}), "not known"),
        ({"clusters": "x"}, "not a list of named entries"),
        (
            {**config(current="one"), "contexts": [{"name": "one", "context": {"cluster": "gone"}}]},
            'names the cluster "gone", which does not exist',
        ),
    ],
)
def test_a_kubeconfig_that_cant_be_used_says_why(tmp_path: Path, document: Obj, complaint: str) -> None:
    with pytest.raises(ConfigError, match=complaint):
        kubeconfig.select(kubeconfig.load([write(tmp_path / "config", document)]))


USER = {"user": {"token": "secret"}}


@pytest.mark.parametrize(
    ("users", "context", "shown"),
    [
        ([{"name": "", **USER}], {"user": ""}, "secret"),
        ([{"name": "", **USER}], {}, "secret"),
        ([USER], {"user": None}, "secret"),
        ([{"name": "", **USER}, {"name": "other", "user": {"token": "other"}}], {"user": "other"}, "other"),
        ([{"name": "other", **USER}], {"user": ""}, ""),
        ([], {}, ""),
    ],
)
def test_a_user_may_have_an_empty_name(tmp_path: Path, users: list[Obj], context: Obj, shown: str) -> None:
    document = config(current="one") | {"users": users, "contexts": [{"name": "one", "context": {"cluster": "one", **context}}]}
    assert kubeconfig.select(kubeconfig.load([write(tmp_path / "config", document)])).token == shown


def test_a_context_and_a_cluster_may_have_an_empty_name(tmp_path: Path) -> None:
    assert kubeconfig.select(kubeconfig.load([write(tmp_path / "config", config("", user={"token": "t"}))])).token == "t"


def test_text_that_is_not_yaml_names_the_file(tmp_path: Path) -> None:
    (tmp_path / "config").write_text("a: [")
    with pytest.raises(ConfigError, match=r"config is not YAML"):
        kubeconfig.load([tmp_path / "config"])


def test_a_pod_finds_its_own_cluster(tmp_path: Path) -> None:
    (tmp_path / "token").write_text("tok\n")
    (tmp_path / "ca.crt").write_bytes(b"CA")
    (tmp_path / "namespace").write_text("apps")
    environ = {"KUBERNETES_SERVICE_HOST": "fd00::1", "KUBERNETES_SERVICE_PORT": "443"}
    found = kubeconfig.in_cluster(environ, tmp_path)
    assert found == KubeTarget("https://[fd00::1]:443", "apps", b"CA", token_file=tmp_path / "token")
    assert kubeconfig.in_cluster({}, tmp_path) is None


def test_without_a_kubeconfig_or_a_pod_the_sentence_names_the_file(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"there is no kubeconfig \(.*/\.kube/config\)"):
        kubeconfig.discover(environ={"HOME": str(tmp_path)})


async def test_a_token_file_is_read_again_after_a_minute_or_a_refusal(tmp_path: Path) -> None:
    path, clock = tmp_path / "token", VirtualClock()
    path.write_text("first\n")
    source = source_for(KubeTarget("https://x", token_file=path), clock)
    assert (await source.current()).authorization == "Bearer first"
    path.write_text("second")
    assert (await source.current()).authorization == "Bearer first"
    await clock.advance(FILE_SECONDS)
    assert (await source.current()).authorization == "Bearer second"
    path.write_text("third")
    assert source.forget()
    assert (await source.current()).authorization == "Bearer third"
    path.unlink()
    source.forget()
    assert (await source.current()).authorization == "Bearer third"


async def test_name_and_password_make_a_basic_header() -> None:
    source = source_for(KubeTarget("https://x", username="jane", password="word"), VirtualClock())
    assert (await source.current()).authorization == "Basic " + base64.b64encode(b"jane:word").decode()


def plugin(tmp_path: Path, script: str) -> Obj:
    path = tmp_path / "plugin"
    path.write_text(f"#!/bin/sh\n{script}\n")
    path.chmod(path.stat().st_mode | stat.S_IXUSR)
    return {"exec": {"apiVersion": "client.authentication.k8s.io/v1", "command": "./plugin", "provideClusterInfo": True}}


async def test_a_plugin_runs_once_until_its_credential_ends_or_is_refused(tmp_path: Path) -> None:
    clock = VirtualClock()
    answer = {
        "kind": "ExecCredential",
        "apiVersion": "client.authentication.k8s.io/v1",
        "status": {"token": "made", "expirationTimestamp": rfc3339(clock.time() + 100)},
    }
    script = f"echo \"$KUBERNETES_EXEC_INFO\" >> {tmp_path}/asked\ncat <<'END'\n{json.dumps(answer)}\nEND"
    source = source_for(target(tmp_path, user=plugin(tmp_path, script)), clock)

    def asked() -> list[Obj]:
        return [json.loads(line) for line in (tmp_path / "asked").read_text().splitlines()]

    assert (await source.current()).authorization == "Bearer made"
    await source.current()
    assert len(asked()) == 1
    assert asked()[0]["spec"]["cluster"]["server"] == "https://one.test:6443"
    await clock.advance(95)
    await source.current()
    assert len(asked()) == 2
    source.forget()
    await source.current()
    assert len(asked()) == 3


@pytest.mark.parametrize(
    ("script", "complaint"),
    [
        ("echo gone wrong >&2; exit 7", "exit code 7: gone wrong"),
        ("echo hello", "did not print an ExecCredential"),
        ('echo \'{"kind":"ExecCredential","apiVersion":"client.authentication.k8s.io/v1","status":{}}\'', "neither a token"),
        ('echo \'{"kind":"ExecCredential","apiVersion":"v2"}\'', "printed ExecCredential of v2"),
    ],
)
async def test_a_plugin_that_fails_says_so_in_one_sentence(tmp_path: Path, script: str, complaint: str) -> None:
    source = source_for(target(tmp_path, user=plugin(tmp_path, script)), VirtualClock())
    with pytest.raises(ConfigError, match=complaint):
        await source.current()


async def test_a_missing_plugin_shows_its_install_hint(tmp_path: Path) -> None:
    entry = {"apiVersion": "client.authentication.k8s.io/v1", "command": "/absent/plugin", "installHint": "get it there"}
    source = source_for(target(tmp_path, user={"exec": entry}), VirtualClock())
    with pytest.raises(ConfigError, match="can't be run: No such file or directory; get it there"):
        await source.current()
