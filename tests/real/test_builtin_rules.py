"""What kube-apiserver says to the objects of `tests/unit/apiserver/builtin/cases.py` is what the record says it does.

`REMUDA_RECORD=1` writes the record anew.
"""

from __future__ import annotations

import http.client
import json
import os
import re
import ssl
import time
import urllib.parse
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.real import need
from tests.real.cluster import HOST, RealCluster
from tests.unit.apiserver.builtin.cases import CASES, KINDS, Case, Obj, merged
from tests.unit.apiserver.builtin.served import masked, name_of, object_of

pytestmark = [pytest.mark.real, pytest.mark.timeout(600)]

RECORD = Path(__file__).parents[1] / "unit" / "apiserver" / "builtin" / "rules.json"
# kube-apiserver heeds what is of these kinds in requests for others, and forgets it a moment after it is gone: they come last.
HEEDED = {
    *("ResourceQuota", "LimitRange", "StorageClass", "PriorityClass", "IngressClass"),
    *("ValidatingWebhookConfiguration", "MutatingWebhookConfiguration"),
}
_WARNING = re.compile(r'299 - "((?:[^"\\]|\\.)*)"')


class Server:
    """One connection as the administrator, which also reads warnings."""

    def __init__(self, cluster: RealCluster) -> None:
        context = ssl.create_default_context(cafile=str(cluster.ca_pem))
        context.load_cert_chain(cluster.admin_cert, cluster.admin_key)
        port = urllib.parse.urlsplit(cluster.url).port
        self._connection = http.client.HTTPSConnection(HOST, port, context=context, timeout=60)

    def ask(self, method: str, path: str, body: Any = None) -> tuple[int, Obj, list[str]]:
        content = None if body is None else json.dumps(body).encode()
        self._connection.request(method, path, content, {"Content-Type": "application/json"})
        response = self._connection.getresponse()
        answer = json.loads(response.read())
        texts = [header for name, header in response.getheaders() if name.lower() == "warning"]
        warnings = [found.replace('\\"', '"').replace("\\\\", "\\") for text in texts for found in _WARNING.findall(text)]
        return response.status, answer, warnings


@pytest.fixture(scope="module")
def server() -> Iterator[Server]:
    need.programs("kubernetes", "etcd")
    with RealCluster(fsync=False, apiserver_args=["--allow-privileged=true"]) as cluster:
        server = Server(cluster)
        account = {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": "default"}}
        code, answer, _ = server.ask("POST", "/api/v1/namespaces/default/serviceaccounts", account)
        assert code == 201, answer
        yield server


def created(server: Server, path: str, obj: Obj) -> tuple[int, Obj, list[str]]:
    """Create what an earlier case may have had the address of.

    Its deletion gives the address back; but kube-apiserver's repair loop, when it has heard of the address first and
    of the service later, takes it once more for the service that is gone, and frees it a minute later.
    """
    end = time.monotonic() + 150
    while True:
        answer = server.ask("POST", path, obj)
        if answer[0] != 422 or "already allocated" not in json.dumps(answer[1]) or time.monotonic() > end:
            return answer
        time.sleep(1)


def real_answer(server: Server, case: Case) -> Obj:
    kind = KINDS[case.kind]
    if not case.update:
        code, body, warnings = server.ask("POST", f"{kind.path}?dryRun=All", object_of(case))
    else:
        code, body, warnings = created(server, kind.path, object_of(case))
        assert code == 201, body
        path = f"{kind.path}/{name_of(case)}"
        tail = f"/{case.subresource}" if case.subresource else ""
        uid = body["metadata"]["uid"]
        code, body, warnings = server.ask("PUT", path + tail, merged(body, case.change))
        server.ask("DELETE", path)
        if code != 200:
            return masked({"code": code, "status": body}, uid)
    if code in (200, 201):
        return masked({"code": code, "object": body, "warnings": warnings}, body["metadata"].get("uid", ""))
    uids = re.findall(r"[0-9a-f]{8}-[0-9a-f]{4}-4[0-9a-f]{3}-[0-9a-f]{4}-[0-9a-f]{12}", json.dumps(body))
    return masked({"code": code, "status": body}, uids[0] if uids else "")


def test_the_record_is_what_the_real_server_says(server: Server) -> None:
    cases = sorted(CASES, key=lambda case: case.update and case.kind in HEEDED)
    answers = {case.id: real_answer(server, case) for case in cases}
    if os.environ.get("REMUDA_RECORD") == "1":
        RECORD.write_text(json.dumps(answers, indent=1, sort_keys=True) + "\n")
    assert answers == json.loads(RECORD.read_text())
