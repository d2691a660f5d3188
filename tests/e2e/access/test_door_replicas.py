"""Two servers on one etcd are one door: who logs in at one is known at the other, whoever leads."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.e2e.replicas import Replica, Replicas
from tests.e2e.serving import eventually
from tests.real import need
from tests.real.etcd import EtcdCluster

pytestmark = [pytest.mark.real, pytest.mark.replicated, pytest.mark.timeout(300)]

PASSWORD, NEW_PASSWORD = "first password of all", "a password that is long enough"
REVIEWS = "/apis/authentication.k8s.io/v1/selfsubjectreviews"
REVIEW = {"apiVersion": "authentication.k8s.io/v1", "kind": "SelfSubjectReview"}


@pytest.fixture
def pair(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Replicas]:
    need.programs("etcd")
    monkeypatch.setenv("REMUDA_BOOTSTRAP_PASSWORD", PASSWORD)
    with EtcdCluster(members=1) as etcd:
        replicas = Replicas(tmp_path, etcd)
        for _ in range(2):
            replicas.add(controllers="-capi")
        replicas.start()
        yield replicas
        replicas.end()
        for replica in replicas.all:
            assert replica.tracebacks() == [], replica.told()


def logged_in(replica: Replica, password: str) -> str:
    body = {"username": "admin", "password": password, "responseType": "json"}
    answer = replica.ask("POST", "/v3-public/localProviders/local?action=login", body)
    return str(answer.json["token"]) if answer.status in (200, 201) else ""


def comes_in(replica: Replica, password: str) -> str:
    """The same once the server has heard of the user."""
    found: list[str] = []

    def known() -> bool:
        found.append(logged_in(replica, password))
        return bool(found[-1])

    eventually(known, 120, "nobody can log in")
    return found[-1]


def who(replica: Replica, token: str) -> str:
    """As whom the API of this server knows a token; empty when it does not."""
    answer = replica.endpoint.request(
        "POST",
        REVIEWS,
        b'{"apiVersion":"authentication.k8s.io/v1","kind":"SelfSubjectReview"}',
        {"Content-Type": "application/json", "Authorization": f"Bearer {token}"},
        anonymous=True,
    )
    return str(answer.json["status"]["userInfo"]["username"]) if answer.status == 201 else ""


def test_a_login_at_one_replica_counts_at_the_other(pair: Replicas) -> None:
    first, second = pair.all
    token = comes_in(first, PASSWORD)
    change = {"currentPassword": PASSWORD, "newPassword": NEW_PASSWORD}
    changed = first.ask("POST", "/v3/users?action=changepassword", change, Authorization=f"Bearer {token}")
    assert changed.status == 200, changed.raw
    fresh = comes_in(second, NEW_PASSWORD)
    # At once, though the other server's watch may not have told it yet.
    user = who(first, fresh)
    assert user
    # Here it is perhaps not told yet that the password was changed there.
    eventually(lambda: who(second, fresh) == user)
    leader = pair.wait_leader(first)
    other = second if leader is first else first
    leader.kill()
    pair.wait_leader(other, leader)
    assert who(other, fresh)
    # Made by whoever leads, which may be this one only now.
    eventually(lambda: other.ask("GET", "/apis/management.cattle.io/v3/clusters/local").status == 200, 120)
