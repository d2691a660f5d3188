"""Clusters as people see them, by the real kubectl: the columns, what becomes of what they apply, and what is refused."""

from __future__ import annotations

import base64
import json
import re
from pathlib import Path
from typing import Any

import pytest

from .harness import Gateway, kubectl, until

pytestmark = pytest.mark.story

WANTED, MANAGED = "clusters.provisioning", "clusters.management"
IMPORT = """\
apiVersion: provisioning.cattle.io/v1
kind: Cluster
metadata:
  name: {name}
  namespace: fleet-default
spec:
  agentEnvVars:
  - name: HTTP_PROXY
    value: http://proxy.test:3128
"""
_AGE = re.compile(r"\d+(?:s|m(?:\d+s)?)")


@pytest.fixture(scope="module")
def config(gateway: Gateway, place: Path) -> Path:
    return gateway.administrator().kubeconfig(place)


def rows(text: str) -> list[list[str]]:
    """A table cell by cell, also where a cell is empty."""
    lines = text.rstrip().splitlines()
    starts = [0, *(found.end() for found in re.finditer(r"\s{2,}", lines[0]))]
    ends = [*starts[1:], None]
    cells = [[line[start:end].strip() for start, end in zip(starts, ends, strict=True)] for line in lines]
    # Whole cells: a name may have the form of an age in it.
    return [["<age>" if _AGE.fullmatch(cell) else cell for cell in row] for row in cells]


def get(config: Path, *arguments: str) -> Any:
    return json.loads(kubectl(config, "get", *arguments, "-o", "json"))


def found(config: Path, *arguments: str) -> Any:
    """The same of what may not be there yet, which is then empty."""
    return json.loads(kubectl(config, "get", *arguments, "--ignore-not-found", "-o", "json") or "{}")


def status(config: Path, name: str) -> Any:
    return get(config, "-n", "fleet-default", WANTED, name).get("status", {})


def applied(config: Path, name: str) -> str:
    """The id of a cluster that was applied."""
    kubectl(config, "apply", "-f", "-", input=IMPORT.format(name=name))
    until(lambda: status(config, name).get("clusterName"))
    return str(status(config, name)["clusterName"])


def test_the_columns_are_ranchers(config: Path) -> None:
    identity = applied(config, "shown")
    assert rows(kubectl(config, "-n", "fleet-default", "get", WANTED, "shown")) == [
        ["NAME", "VERSION", "CLUSTER NAME", "AGE", "KUBECONFIG", "READY"],
        ["shown", "", identity, "<age>", "", "false"],
    ]
    assert rows(kubectl(config, "get", MANAGED, identity)) == [["NAME", "AGE"], [identity, "<age>"]]
    assert [row[0] for row in rows(kubectl(config, "get", MANAGED))] == ["NAME", identity, "local"]


def test_what_follows_from_a_cluster_is_there(config: Path) -> None:
    identity = applied(config, "whole")
    assert get(config, MANAGED, identity)["spec"]["displayName"] == "whole"
    until(lambda: "command" in found(config, "-n", identity, "clusterregistrationtokens", "default-token").get("status", {}))
    told = get(config, "-n", identity, "clusterregistrationtokens", "default-token")["status"]
    assert told["command"].startswith("kubectl apply -f https://") and told["command"].endswith(
        f"/v3/import/{{token}}_{identity}.yaml"
    )
    assert told["nodeCommand"].startswith('HTTP_PROXY="http://proxy.test:3128" curl -fL https://')
    secrets = {"secret/crt-token-default-token", "secret/crt-token-node-token"}
    until(lambda: secrets <= set(kubectl(config, "-n", identity, "get", "secrets", "-o", "name").split()))
    namespaces = {"fleet-default", "fleet-local", "cattle-global-data", "cattle-system", "local", identity}
    wanted = {f"namespace/{name}" for name in namespaces}
    until(lambda: wanted <= set(kubectl(config, "get", "namespaces", "-o", "name").split()))


def test_only_users_who_may_read_the_token_see_it_in_commands(gateway: Gateway, config: Path) -> None:
    cluster = gateway.cluster("told")
    path = f"/v3/clusterregistrationtokens?clusterId={cluster.id}"
    until(lambda: cluster.token("node-token"))

    def told() -> bool:
        """Of both, in the caches of the door, too."""
        listed = gateway.administrator().request("GET", path).json["data"]
        return len(listed) == 2 and all(each["token"] and each["nodeCommand"] for each in listed)

    until(told)
    shown = {each["name"]: each for each in gateway.administrator().request("GET", path).json["data"]}
    opens, joins = cluster.token(), cluster.token("node-token")
    assert shown["default-token"]["command"] == f"kubectl apply -f {gateway.url}/v3/import/{opens}_{cluster.id}.yaml"
    assert shown["default-token"]["token"] == opens
    for each in shown.values():
        assert joins in each["nodeCommand"] and opens not in each["nodeCommand"], "nodes never learn what opens the tunnel"
    assert shown["node-token"]["command"] == ""
    one = f"/v3/clusterregistrationtokens/{cluster.id}:default-token"
    assert gateway.administrator().request("GET", one).json == shown["default-token"]
    stranger = gateway.user("stranger")
    assert stranger.request("GET", path).json["data"] == []
    assert stranger.request("GET", one).status == 404
    assert gateway.nobody().request("GET", path).status == 401
    # Without a cluster they are those of all clusters that the user may see.
    everywhere = gateway.administrator().request("GET", "/v3/clusterregistrationtokens").json["data"]
    assert [each for each in everywhere if each["clusterId"] == cluster.id] == list(shown.values())
    assert stranger.request("GET", "/v3/clusterregistrationtokens").json["data"] == []
    written = kubectl(config, "-n", cluster.id, "get", "clusterregistrationtokens", "-o", "yaml")
    assert opens not in written and joins not in written


def test_a_token_is_replaced_and_made_worthless_as_the_page_says(gateway: Gateway, config: Path) -> None:
    cluster = gateway.cluster("page")
    page = (Path(__file__).resolve().parents[3] / "docs" / "clusters.md").read_text()
    said = re.findall(r"`kubectl (-n c-m-bcdfg245 [^`]+)`", page)
    rotate, revoke = (re.sub(r'"\$\(date\)"', "now", each).replace("c-m-bcdfg245", cluster.id).split() for each in said)
    first = cluster.token()
    kubectl(config, *rotate)
    until(lambda: cluster.token() != first)
    second, secret = cluster.token(), get(config, "-n", cluster.id, "secret", "crt-token-default-token")
    assert base64.b64decode(secret["data"]["previousToken"]).decode() == first
    kubectl(config, *revoke)
    until(lambda: cluster.token() not in ("", second))
    assert "previousToken" not in get(config, "-n", cluster.id, "secret", "crt-token-default-token")["data"]


@pytest.mark.parametrize("side", ["wanted", "managed"])
def test_deleting_either_of_the_two_deletes_both(config: Path, side: str) -> None:
    identity = applied(config, f"gone-{side}")
    if side == "wanted":
        kubectl(config, "-n", "fleet-default", "delete", WANTED, f"gone-{side}", "--timeout=120s")
    else:
        kubectl(config, "delete", MANAGED, identity, "--timeout=120s")
    for what in (("-n", "fleet-default", WANTED, f"gone-{side}"), (MANAGED, identity), ("namespace", identity)):
        until(lambda what=what: "NotFound" in kubectl(config, "get", *what, check=False))  # type: ignore[misc]


def test_local_is_known_from_both_sides(config: Path) -> None:
    until(lambda: found(config, "-n", "fleet-local", WANTED, "local").get("status", {}).get("clusterName") == "local")
    assert get(config, MANAGED, "local")["spec"]["internal"] is True
    refusal = kubectl(config, "-n", "fleet-local", "delete", WANTED, "local", check=False)
    assert "it is the cluster that this server itself runs on, and can't be deleted" in refusal


def test_what_could_not_work_is_refused_with_the_field(config: Path) -> None:
    broken = IMPORT.format(name="broken") + "  rkeConfig:\n    machinePools:\n    - name: idle\n      machineConfigRef: {}\n"
    refusal = kubectl(config, "apply", "-f", "-", input=broken, check=False)
    assert "spec.kubernetesVersion: Required value" in refusal
    assert "spec.rkeConfig.machinePools[0]: Required value: pool idle needs at least one of" in refusal
    refusal = kubectl(config, "apply", "-f", "-", input=IMPORT.format(name="c-abcde"), check=False)
    assert 'metadata.name: Invalid value: "c-abcde"' in refusal
