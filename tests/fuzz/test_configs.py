"""Files that people write and mangle: kubeconfigs, logins, keys, settings of hosts and agents. Read, or refused in a sentence."""

from __future__ import annotations

import contextlib
import os
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import example, given
from hypothesis import strategies as st

from remuda.agent import config as agent_config
from remuda.agent.errors import AgentError
from remuda.agent.plan_secret import KubeApi
from remuda.apiserver.keys.encryption import BadConfiguration, parse_keys
from remuda.cli.command_tree import cli
from remuda.cli.exit_codes import Code, Failure, run
from remuda.cli.remote.kubeconfigs import merge
from remuda.cli.remote.login_file import Login, Logins
from remuda.client import kubeconfig
from remuda.kube.encoding import yamlio
from remuda.lab.distro import DistroError
from remuda.lab.distro.config import arguments
from remuda.lab.distro.config import arguments as distro_config

from .budget import fuzzing
from .shapes import changed, encoded, mangled, shaped, texts, values

Obj = dict[str, Any]

GOOD: Obj = {
    "apiVersion": "v1",
    "kind": "Config",
    "clusters": [{"name": "a", "cluster": {"server": "https://127.0.0.1:1", "certificate-authority-data": "eA=="}}],
    "users": [{"name": "u", "user": {"token": "t"}}],
    "contexts": [{"name": "c", "context": {"cluster": "a", "user": "u", "namespace": "n"}}],
    "current-context": "c",
}
_PLUGIN = {
    "command": "x",
    "apiVersion": "client.authentication.k8s.io/v1",
    "args": ["a"],
    "env": [{"name": "A", "value": "b"}],
    "provideClusterInfo": True,
    "interactiveMode": "Never",
}
FULL: Obj = {
    **GOOD,
    "clusters": [
        {
            "name": "a",
            "cluster": {
                "server": "https://127.0.0.1:1",
                "certificate-authority": "ca",
                "tls-server-name": "x",
                "proxy-url": "http://127.0.0.1:1",
                "extensions": [{"name": "client.authentication.k8s.io/exec", "extension": {"a": 1}}],
            },
        }
    ],
    "users": [
        {
            "name": "u",
            "user": {
                "tokenFile": "token",
                "client-certificate-data": "eA==",
                "client-key-data": "eA==",
                "username": "n",
                "password": "p",
                "exec": _PLUGIN,
                "as": "x",
                "as-groups": ["g"],
                "as-user-extra": {"a": ["b"]},
            },
        }
    ],
}


def with_user(user: Obj) -> Obj:
    return {**FULL, "users": [{"name": "u", "user": user}]}


odd = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(),
    st.sampled_from(
        [[], {}, [[]], [{}], "", "x", "\x00", "/nowhere", ".", "é", [None], {"a": None}, {"a": 3}, "http://[", 1.5, [3]]
    ),
    texts,
)
files = st.one_of(
    changed(GOOD, odd).map(encoded),
    changed(FULL, odd).map(encoded),
    changed(FULL, odd).map(yamlio.dumps).map(str.encode),
    mangled(yamlio.dumps(FULL).encode()),
    values.map(encoded),
    st.binary(max_size=40),
)


@fuzzing(150)
@given(files, st.sampled_from(["", "c", "x"]))
@example(encoded(with_user({"as-user-extra": {"a": 3}})), "")
@example(encoded(with_user({"as-groups": 3})), "")
@example(encoded(with_user({"exec": {**_PLUGIN, "env": [{"value": "x"}], "args": 3}})), "")
@example(encoded(with_user({"client-certificate": "\x00"})), "")
@example(encoded({**FULL, "clusters": [{"name": "a", "cluster": {"server": "https://127.0.0.1:1", "extensions": [3]}}]}), "")
def test_kubeconfigs(tmp_path_factory: pytest.TempPathFactory, content: bytes, context: str) -> None:
    path = tmp_path_factory.getbasetemp() / "kubeconfig"
    path.write_bytes(content)
    for name in ("ca", "token"):
        path.with_name(name).write_text("x")
    for read in (lambda: kubeconfig.load([path]), lambda: kubeconfig.parse(content, path)):
        try:
            kubeconfig.select(read(), context)
        except kubeconfig.ConfigError as error:
            assert str(error)


@fuzzing(100)
@given(files)
@example(encoded({**GOOD, "clusters": 1}))
@example(encoded(with_user({"client-certificate-data": "eA==", "client-key-data": "eA=="})))
def test_kubeconfigs_of_agents(content: bytes) -> None:
    try:
        KubeApi(content.decode("utf-8", "replace"))
    except AgentError as error:
        assert str(error)


@fuzzing(100)
@given(files, st.booleans(), st.booleans())
@example(b"\x80", False, False)
@example(encoded({**GOOD, "clusters": [{"name": "a", "cluster": [3]}]}), True, False)
@example(encoded({**GOOD, "contexts": [{"name": "c", "context": {"cluster": "a", "user": []}}]}), False, False)
def test_kubeconfigs_that_ours_is_merged_into(
    tmp_path_factory: pytest.TempPathFactory, content: bytes, use: bool, force: bool
) -> None:
    """What can't be merged stays as it was, to the byte."""
    path = Path(tmp_path_factory.mktemp("merge")) / "config"
    path.write_bytes(content)
    try:
        merge(yamlio.dumps(GOOD), path, "", use=use, force=force)
    except Failure as error:
        assert str(error)
        assert path.read_bytes() == content
    else:
        kept = yaml.safe_load(path.read_text())
        assert GOOD["clusters"][0] in kept["clusters"]
    assert sorted(each.name for each in path.parent.iterdir() if each.name.endswith(".lock")) == []


servers = st.sampled_from(
    [
        "https://127.0.0.1:1",
        "127.0.0.1:1",
        "https://127.0.0.1:x",
        "https://[::1",
        "http://",
        "ftp://127.0.0.1:1",
        "https://127.0.0.1:0/é %",
    ]
)


@fuzzing(40)
@given(changed({**GOOD, "users": [{"name": "u", "user": {"token": "t", "as": "x", "as-groups": ["g"]}}]}, odd), servers, servers)
def test_a_command_with_a_kubeconfig_of_any_kind(
    tmp_path_factory: pytest.TempPathFactory, capsys: pytest.CaptureFixture[str], content: Any, server: str, proxy: str
) -> None:
    """One sentence, whatever is wrong with it: here nobody answers at the best."""
    with contextlib.suppress(LookupError, TypeError, AttributeError):
        # Not just any name, which would be asked for on the network.
        content["clusters"][0]["cluster"].update({"server": server, **({"proxy-url": proxy} if "as" in str(content) else {})})
    path = tmp_path_factory.getbasetemp() / "kubeconfig-of-a-command"
    path.write_bytes(encoded(content))
    code = run(cli, ["cluster", "ls", "--kubeconfig", str(path)])
    told = capsys.readouterr()
    assert code in tuple(Code) and code != Code.OK
    assert told.err.startswith("remuda: ") and told.err.count("\n") == 1
    assert "internal error" not in told.err


# --- logins, keys, settings -------------------------------------------------------------------------------------------

LOGINS = encoded({"logins": {"a": {"server": "https://x", "token": "t", "user": "u"}}, "current": "a"})


@fuzzing(100)
@given(st.one_of(shaped(st.sampled_from(["logins", "current", "a", "server", "token", "ca"])).map(encoded), mangled(LOGINS)))
@example(b'{"logins":{"a":3},"current":["a"]}')
@example(b'{"logins":null}')
def test_logins(tmp_path_factory: pytest.TempPathFactory, content: bytes) -> None:
    path = Path(tmp_path_factory.mktemp("logins")) / "logins.json"
    path.write_bytes(content)
    logins = Logins(path)
    for call in (
        logins.names,
        logins.get,
        lambda: logins.get("a"),
        lambda: logins.of_server("https://x"),
        lambda: logins.use("a"),
        lambda: logins.put(Login("b", "https://y", "t")),
        lambda: logins.remove("a"),
    ):
        try:
            call()
        except Failure as error:
            assert str(error)


KEYS = {
    "apiVersion": "apiserver.config.k8s.io/v1",
    "kind": "EncryptionConfiguration",
    "resources": [
        {"resources": ["secrets"], "providers": [{"aesgcm": {"keys": [{"name": "a", "secret": "x"}]}}, {"identity": {}}]}
    ],
}


@fuzzing(150)
@given(
    st.one_of(
        mangled(yamlio.dumps(KEYS).encode()),
        shaped(st.sampled_from(["resources", "providers", "aesgcm", "keys", "name", "secret", "identity"])).map(
            lambda found: encoded({**KEYS, "resources": found})
        ),
        st.binary(max_size=40),
    )
)
def test_encryption_keys(content: bytes) -> None:
    try:
        parse_keys(content)
    except BadConfiguration as error:
        assert str(error)


settings = st.sampled_from(
    [
        "token", "server", "node-name", "node-label", "tls-san", "cluster-init", "etcd-expose-metrics", "disable",
        "kubelet-arg+", "x", "workDirectory", "localEnabled", "localPlanDirectory", "remoteEnabled", "connectionInfoFile",
        "instructionTimeoutSeconds", "root",
    ]
)  # fmt: skip


@fuzzing(150)
@given(st.one_of(st.dictionaries(settings, values, max_size=4).map(encoded), st.binary(max_size=40), values.map(encoded)))
def test_settings(tmp_path_factory: pytest.TempPathFactory, content: bytes) -> None:
    path = tmp_path_factory.getbasetemp() / "settings.yaml"
    path.write_bytes(content)
    os.chmod(path, 0o600)
    try:
        distro_config.read(path)
    except DistroError as error:
        assert str(error)
    for read in (agent_config.load_config, agent_config.load_connection):
        try:
            read(str(path))
        except AgentError as error:
            assert str(error)


@fuzzing(150)
@given(st.lists(st.one_of(settings.map(lambda name: f"--{name}"), settings.map(lambda name: f"--{name}=x"), texts), max_size=5))
def test_arguments(line: list[str]) -> None:
    try:
        arguments.parse(line)
    except DistroError as error:
        assert str(error)
