"""Time travel as its users do it: a server in its own process, the command beside it, kills and an old database in between."""

from __future__ import annotations

import contextlib
import gzip
import io
import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from remuda.cli.command_tree import cli
from remuda.cli.exit_codes import run
from remuda.client.kubeconfig import load
from tests.api.harness import RemudaProcess
from tests.integration.apiserver.storage.sqlite.test_migration import SCHEMA_1
from tests.real import need
from tests.real.etcd import EtcdCluster

from .serving import Served, config_map, eventually, make_namespace, send

pytestmark = pytest.mark.story

Obj = dict[str, Any]

MERGE = "application/merge-patch+json"
RBAC = "/apis/rbac.authorization.k8s.io/v1"


class Done(NamedTuple):
    code: int
    stdout: str
    stderr: str


def remuda(server: RemudaProcess, *arguments: str, kubeconfig: Path | None = None) -> Done:
    """The command as somebody elsewhere gives it, who has nothing but a kubeconfig; its start is tested elsewhere."""
    out, err = io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        code = run(cli, [*arguments, "--kubeconfig", str(kubeconfig or server.kubeconfig)])
    return Done(int(code), out.getvalue(), err.getvalue())


def told(server: RemudaProcess, *arguments: str) -> str:
    done = remuda(server, *arguments)
    assert done.code == 0, done.stderr
    return done.stdout


def steps(server: RemudaProcess, *arguments: str) -> list[Obj]:
    return list(json.loads(told(server, "history", *arguments, "-o", "json"))["items"])


def change(server: Served, path: str, body: Obj) -> int:
    answer = send(server.endpoint, "PATCH", f"{path}?fieldManager=editor", body, MERGE)
    assert answer.status == 200, answer.body
    return int(answer.json["metadata"]["resourceVersion"])


@pytest.mark.timeout(300)
def test_history_survives_kills_and_follows_permissions(serve: Callable[..., Served], tmp_path: Path) -> None:
    served = serve()
    collection = make_namespace(served, "team")
    made = send(served.endpoint, "POST", collection, config_map("settings", mode="one", **{"a.b": "c"}))
    first = int(made.json["metadata"]["resourceVersion"])
    path = f"{collection}/settings"
    second = change(served, path, {"data": {"mode": "two"}})
    served.kill()
    served.start()
    assert send(served.endpoint, "DELETE", path).status == 200
    assert send(served.endpoint, "POST", collection, config_map("settings", mode="three")).status == 201
    _at_moments(served, first, second)
    _through_its_life(served, first, second)
    _for_whom(served, tmp_path, collection, second)
    assert served.stop() == 0, served.told()
    assert served.tracebacks() == [], served.told()


def _at_moments(served: Served, first: int, second: int) -> None:
    then = json.loads(told(served, "get", "cm", "settings", "-n", "team", "--at", str(first), "-o", "json"))
    assert then["data"] == {"mode": "one", "a.b": "c"} and then["metadata"]["resourceVersion"] == str(first)
    lines = told(served, "get", "configmap", "-A", "--at", str(second)).splitlines()
    assert lines[0].split() == ["NAMESPACE", "NAME", "DATA", "AGE"]
    assert [line.split()[:3] for line in lines if "settings" in line] == [["team", "settings", "2"]]
    assert [line.split()[:2] for line in told(served, "get", "cm", "-n", "team", "--at", "0s").splitlines() if "set" in line] == [
        ["settings", "1"]
    ]
    assert told(served, "get", "configmaps", "-n", "team", "--at", str(second), "-o", "name").splitlines() == [
        "configmap/kube-root-ca.crt",
        "configmap/settings",
    ]
    # A name that has to be escaped in a path; and the present is asked for in the same way.
    role = "system:controller:namespace-controller"
    assert told(served, "get", f"clusterroles/{role}", "--at", str(second), "-o", "name").strip().endswith(role)
    assert "settings" in told(served, "get", "cm", "-n", "team")
    refused = remuda(served, "get", "cm", "-n", "team", "--at", "99999999")
    assert refused.code == 1 and "is in the future, the newest is" in refused.stderr
    gone = remuda(served, "get", "cm/settings", "-n", "team", "--at", str(first - 1))
    assert gone.code == 3 and "not found at revision" in gone.stderr and len(gone.stderr.splitlines()) == 1


def _through_its_life(served: Served, first: int, second: int) -> None:
    life = steps(served, "cm", "settings", "-n", "team")
    assert [step["change"] for step in life] == ["created", "deleted", "changed", "created"]
    assert [step["revision"] for step in life][2:] == [second, first]
    assert {step["user"] for step in life} == {"kubernetes-admin"}
    assert (life[2]["managers"], life[2]["fields"]) == (["editor"], ["data.mode"])
    page = remuda(served, "history", "cm/settings", "-n", "team", "--limit", "2")
    lines = page.stdout.splitlines()
    assert lines[0].split() == ["REVISION", "TIME", "CHANGE", "GENERATION", "BY", "FIELDS"] and len(lines) == 3
    rest = re.search(r"--before (\d+)", page.stderr)
    assert rest is not None
    older = told(served, "history", "cm/settings", "-n", "team", "--diff", "--before", rest[1])
    assert re.search(r"^revision \d+ .* changed  by kubernetes-admin \(editor\)$", older, re.MULTILINE)
    assert "\n-  mode: one\n+  mode: two\n" in older and "\n+  a.b: c\n" in older
    none = remuda(served, "history", "cm", "nobody", "-n", "team")
    assert none.code == 3 and 'configmaps "nobody" not found in the history' in none.stderr


def _for_whom(served: Served, tmp_path: Path, collection: str, second: int) -> None:
    """A service account that may read config maps from now on."""
    metadata = {"name": "reader", "namespace": "team"}
    account = {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": metadata}
    rule = {"apiGroups": [""], "resources": ["configmaps"], "verbs": ["get", "list"]}
    role = {"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "Role", "metadata": metadata, "rules": [rule]}
    binding = {
        "apiVersion": "rbac.authorization.k8s.io/v1",
        "kind": "RoleBinding",
        "metadata": metadata,
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": "reader"},
        "subjects": [{"kind": "ServiceAccount", **metadata}],
    }
    made = [
        send(served.endpoint, "POST", "/api/v1/namespaces/team/serviceaccounts", account),
        send(served.endpoint, "POST", f"{RBAC}/namespaces/team/roles", role),
        send(served.endpoint, "POST", f"{RBAC}/namespaces/team/rolebindings", binding),
    ]
    assert [answer.status for answer in made] == [201, 201, 201]
    asked = {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": {}}
    token = send(served.endpoint, "POST", "/api/v1/namespaces/team/serviceaccounts/reader/token", asked)
    config = _config(served, token.json["status"]["token"])
    own = tmp_path / "reader.kubeconfig"
    own.write_text(json.dumps(config))
    since = int(made[2].json["metadata"]["resourceVersion"])
    seen = remuda(served, "get", "cm", "settings", "-n", "team", "--at", str(since), "-o", "json", kubeconfig=own)
    assert json.loads(seen.stdout)["data"] == {"mode": "three"}, seen.stderr
    before = remuda(served, "get", "cm", "settings", "-n", "team", "--at", str(second), kubeconfig=own)
    assert before.code == 5 and f"is held only from revision {since}" in before.stderr
    life = remuda(served, "history", "cm", "settings", "-n", "team", "-o", "json", kubeconfig=own)
    assert [step["change"] for step in json.loads(life.stdout)["items"]] == ["created"], life.stderr
    secrets = remuda(served, "get", "secrets", "-n", "team", "--at", str(since), kubeconfig=own)
    assert secrets.code == 5 and "cannot list resource" in secrets.stderr


def _config(served: Served, token: str) -> Obj:
    whole = load([served.kubeconfig])
    cluster = next(iter(whole["clusters"].values()))
    return {
        "clusters": [{"name": "a", "cluster": cluster}],
        "users": [{"name": "a", "user": {"token": token}}],
        "contexts": [{"name": "a", "context": {"cluster": "a", "user": "a"}}],
        "current-context": "a",
    }


@pytest.mark.timeout(300)
def test_a_kind_that_is_gone_and_a_database_of_an_older_version(serve: Callable[..., Served], tmp_path: Path) -> None:
    data = tmp_path / "data"
    data.mkdir(mode=0o700)
    (data / "state.db").write_bytes(gzip.decompress(SCHEMA_1.read_bytes()))
    served = serve()
    log = served.told()
    assert "has schema 1, this Remuda uses 2: copying it first" in log and "has schema 2 now" in log
    (copy,) = (data / "backups").iterdir()
    assert copy.name.startswith("state.db.schema-1.") and copy.stat().st_mode & 0o777 == 0o600
    # What the older version wrote is in its history, by nobody who is known.
    life = steps(served, "cm/a")
    assert [(step["change"], step["user"]) for step in life] == [("changed", ""), ("created", "")]
    assert told(served, "get", "cm", "--at", "2026-09-21T14:15:00Z", "-o", "name").splitlines() == ["configmap/a", "configmap/b"]
    _a_kind_that_is_gone(served)
    assert served.stop() == 0 and served.tracebacks() == [], served.told()
    served.start()
    assert list((data / "backups").iterdir()) == [copy]


def _a_kind_that_is_gone(served: Served) -> None:
    schema = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
    names = {"plural": "gizmos", "singular": "gizmo", "kind": "Gizmo", "shortNames": ["gz"]}
    versions = [{"name": "v1", "served": True, "storage": True, "schema": {"openAPIV3Schema": schema}}]
    definition = {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": "gizmos.example.com"},
        "spec": {"group": "example.com", "names": names, "scope": "Namespaced", "versions": versions},
    }
    crds, gizmos = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions", "/apis/example.com/v1/namespaces/default/gizmos"
    assert send(served.endpoint, "POST", crds, definition).status == 201
    eventually(lambda: send(served.endpoint, "GET", gizmos).status == 200)
    gizmo = {"apiVersion": "example.com/v1", "kind": "Gizmo", "metadata": {"name": "g"}, "spec": {"size": 3}}
    made = send(served.endpoint, "POST", gizmos, gizmo)
    at = made.json["metadata"]["resourceVersion"]
    assert send(served.endpoint, "DELETE", f"{crds}/gizmos.example.com").status == 200
    eventually(lambda: send(served.endpoint, "GET", f"{crds}/gizmos.example.com").status == 404)
    eventually(lambda: send(served.endpoint, "GET", gizmos).status == 404)
    assert "\n  size: 3\n" in told(served, "get", "gz", "g", "--at", at, "-o", "yaml")
    assert [step["change"] for step in steps(served, "gizmos.example.com", "g")][-1] == "created"
    unknown = remuda(served, "get", "gz")
    assert unknown.code == 3 and "the server has no kind 'gz'" in unknown.stderr


@pytest.mark.timeout(300)
def test_on_etcd_it_says_that_it_can_not_and_why(tmp_path: Path) -> None:
    need.programs("etcd")
    with EtcdCluster() as etcd:
        server = RemudaProcess(tmp_path / "data", etcd=etcd)
        server.start()
        try:
            for arguments in (("get", "ns", "--at", "10m"), ("history", "ns", "default")):
                done = remuda(server, *arguments)
                assert done.code == 1 and "keeps its state in etcd, which forgets what is older" in done.stderr, done.stderr
            assert "default" in told(server, "get", "ns")
        finally:
            server.stop()
