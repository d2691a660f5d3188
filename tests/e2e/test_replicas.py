"""Three servers on one etcd are one Kubernetes: same keys, same state, one leader, and none of them is missed when it goes."""

from __future__ import annotations

import base64
import contextlib
import random
import signal
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.real import need
from tests.real.etcd import EtcdCluster

from .replicas import TOKEN, Follower, Patient, Replica, Replicas, running
from .serving import config_map, eventually

# Three servers, three members of etcd and their clients want more than two processors have on a busy day.
pytestmark = [pytest.mark.real, pytest.mark.replicated, pytest.mark.timeout(900)]

MAPS = "/api/v1/namespaces/default/configmaps"


@pytest.fixture(scope="module")
def etcd() -> Iterator[EtcdCluster]:
    need.programs("etcd")
    with EtcdCluster(members=3) as cluster:
        yield cluster


@pytest.fixture
def make(tmp_path: Path, etcd: EtcdCluster) -> Iterator[Callable[..., Replicas]]:
    made: list[Replicas] = []

    def begin(*options: str, **changes: str) -> Replicas:
        found = Replicas(tmp_path / f"set{len(made)}", etcd, *options, **changes)
        found.directory.mkdir()
        made.append(found)
        return found

    yield begin
    for each in made:
        each.end()
    etcd.restore()
    for each in made:
        for replica in each.all:
            assert replica.tracebacks() == [], replica.told()


def three(replicas: Replicas) -> tuple[Replica, Replica, Replica]:
    found = (replicas.add(), replicas.add(), replicas.add())
    replicas.start()
    return found


# --- one Kubernetes -------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("keys", ["token", "directory"])
def test_three_servers_share_keys_and_state(make: Callable[..., Replicas], keys: str) -> None:
    replicas = make(keys=keys)
    if keys == "directory":
        # The first makes the keys; then somebody copies them.
        replicas.start(replicas.add())
        replicas.add(), replicas.add()
        replicas.start(*replicas.all[1:])
        one, two, three_ = replicas.all
    else:
        one, two, three_ = three(replicas)
    files = [(each.directory / "pki" / "ca.crt").read_bytes() for each in replicas.all]
    assert len(set(files)) == 1
    assert len({(each.directory / "pki" / "serving.key").read_bytes() for each in replicas.all}) == 3
    for each in replicas.all:
        assert not (each.directory / "pki" / "ca.key").exists()
        assert not (each.directory / "state.db").exists()
        assert each.kubeconfig.stat().st_mode & 0o777 == 0o600
    # The administrator of one is the administrator of all.
    endpoint = two.endpoint
    endpoint.context.load_cert_chain(one.directory / "pki" / "admin.crt", one.directory / "pki" / "admin.key")
    assert endpoint.request("GET", "/api/v1/nodes").status == 200
    # A token that one has signed is good at all.
    account = "/api/v1/namespaces/default/serviceaccounts/default"
    for each in replicas.all:
        # A server that is asked for it knows it from then on, also when it is shown a token.
        eventually(lambda each=each: each.ask("GET", account).status == 200)  # type: ignore[misc]
    token = one.ask("POST", f"{account}/token", {"spec": {}}).json["status"]["token"]
    for each in replicas.all:
        review = {"apiVersion": "authentication.k8s.io/v1", "kind": "SelfSubjectReview"}
        anonymous = each.endpoint
        anonymous.context = anonymous.anonymous_context
        answer = anonymous.request(
            "POST",
            "/apis/authentication.k8s.io/v1/selfsubjectreviews",
            str(review).replace("'", '"').encode(),
            {"Authorization": f"Bearer {token}", "Content-Type": "application/json"},
        )
        assert answer.json["status"]["userInfo"]["username"] == "system:serviceaccount:default:default", answer.body
    # What one has encrypted all can read, and nobody who only has etcd.
    secret = {"metadata": {"name": "s"}, "data": {"password": base64.b64encode(b"hunter2").decode()}}
    assert one.ask("POST", "/api/v1/namespaces/default/secrets", secret).status == 201
    for each in replicas.all:
        found = each.ask("GET", "/api/v1/namespaces/default/secrets/s").json
        assert base64.b64decode(found["data"]["password"]) == b"hunter2"
    kept = replicas.stored("/registry/secrets/default/s")
    assert kept is not None
    assert kept["value"].startswith(b"k8s:enc:aesgcm:v1:key1:")
    noted = replicas.stored("/remuda/keys")
    assert noted is not None
    assert b"PRIVATE" not in noted["value"]
    # It starts again with the same.
    assert three_.stop() == 0, three_.told()
    three_.start()
    assert (three_.directory / "pki" / "ca.crt").read_bytes() == files[0]


def test_what_one_has_written_all_read_at_once_and_see_in_order(make: Callable[..., Replicas]) -> None:
    all_ = three(make())
    # What the leader makes there, so that all that follows is ours.
    eventually(lambda: all_[0].ask("GET", f"{MAPS}/kube-root-ca.crt").status == 200)
    since = all_[0].ask("GET", MAPS).json["metadata"]["resourceVersion"]
    followers = [Follower([each], MAPS, since) for each in all_]
    for follower in followers:
        follower.start()
    rng = random.Random(7)
    names = [f"c{number:03}" for number in range(150)]
    for name in names:
        writer, reader = rng.choice(all_), rng.choice(all_)
        assert writer.ask("POST", MAPS, config_map(name, by="one")).status == 201
        assert reader.ask("GET", f"{MAPS}/{name}").status == 200, "it was acknowledged"
        listed = rng.choice(all_).ask("GET", f"{MAPS}?fieldSelector=metadata.name={name}").json["items"]
        assert [item["metadata"]["name"] for item in listed] == [name]
    for follower in followers:
        eventually(lambda follower=follower: len(follower.seen) >= len(names))  # type: ignore[misc]
        follower.enough.set()
        assert [name for name, _ in follower.seen if name in names] == names
    assert len({tuple(follower.seen) for follower in followers}) == 1


def test_increments_through_all_of_them_lose_nothing(make: Callable[..., Replicas]) -> None:
    all_ = three(make())
    assert all_[0].ask("POST", MAPS, config_map("sum", count="0")).status == 201

    def work(number: int, stop: threading.Event) -> None:
        endpoint = all_[number % 3]
        for _ in range(25):
            while True:
                obj = endpoint.ask("GET", f"{MAPS}/sum").json
                obj["data"]["count"] = str(int(obj["data"]["count"]) + 1)
                answer = endpoint.ask("PUT", f"{MAPS}/sum", obj)
                if answer.status == 200:
                    break
                assert answer.status == 409, answer.body

    count = 3
    with contextlib.contextmanager(running)(work, count):
        eventually(lambda: all_[2].ask("GET", f"{MAPS}/sum").json["data"]["count"] == str(25 * count), 300)


def test_a_server_with_another_token_or_other_keys_is_refused(make: Callable[..., Replicas], tmp_path: Path) -> None:
    replicas = make()
    replicas.start(replicas.add())
    other = replicas.add()
    (replicas.directory / "token").write_text(TOKEN + "!")
    done = other.run()
    assert done.returncode == 1
    assert done.stderr.splitlines()[-1].startswith(
        "remuda: the key material in etcd (/remuda/keys) was sealed with another token"
    )
    position = other.sharing.index("--token-file")
    other.sharing[position : position + 2] = ["--pki-dir", str(tmp_path / "new")]
    done = other.run()
    assert done.returncode == 1
    assert "has no keys, but other servers have worked on this etcd" in done.stderr
    assert not (tmp_path / "new").exists()


# --- who leads ------------------------------------------------------------------------------------------------------------------


def _namespace(replica: Replica, name: str) -> None:
    assert replica.ask("POST", "/api/v1/namespaces", {"metadata": {"name": name}}).status == 201


def _has_account(replica: Replica, name: str) -> bool:
    return replica.ask("GET", f"/api/v1/namespaces/{name}/serviceaccounts/default").status == 200


def test_after_a_leader_was_killed_another_leads(make: Callable[..., Replicas]) -> None:
    # Longer than elsewhere: the one that follows must not lose its lease again because it has to wait for its turn.
    replicas = make("--leader-elect-lease-duration=15s", "--leader-elect-renew-deadline=12s")
    all_ = three(replicas)
    leader = replicas.wait_leader(all_[0])
    others = [each for each in all_ if each is not leader]
    before, fence = others[0].lease["leaseTransitions"], replicas.fence()
    leader.kill()
    began = time.monotonic()
    _namespace(others[0], "orphan")
    following = replicas.wait_leader(others[0], leader)
    print(f"another leads after {time.monotonic() - began:.1f} s")
    assert following in others
    eventually(lambda: _has_account(others[1], "orphan"))
    assert others[0].lease["leaseTransitions"] == before + 1
    assert replicas.fence() > fence
    # The one that was killed comes back, and waits.
    leader.start()
    _namespace(leader, "later")
    eventually(lambda: _has_account(leader, "later"))
    assert replicas.leader(leader) is following


def test_a_leader_that_stops_clean_is_followed_at_once(make: Callable[..., Replicas]) -> None:
    replicas = make("--leader-elect-lease-duration=3600s", "--leader-elect-renew-deadline=3000s")
    all_ = three(replicas)
    leader = replicas.wait_leader(all_[0])
    other = next(each for each in all_ if each is not leader)
    assert leader.stop() == 0, leader.told()
    # Long before the lease would have ended.
    replicas.wait_leader(other, leader, seconds=180)
    _namespace(other, "next")
    eventually(lambda: _has_account(other, "next"))


def test_a_leader_that_was_paused_writes_nothing_when_it_wakes(make: Callable[..., Replicas]) -> None:
    """Only the first makes service accounts, so that each of them says who has written it, and its revision when."""
    # Longer than elsewhere: nobody but who is paused must lose a lease, however long they have to wait for their turn.
    replicas = make("--leader-elect-lease-duration=10s", "--leader-elect-renew-deadline=8s")
    first = replicas.add(controllers="-capi,-access")
    replicas.start(first)
    eventually(lambda: replicas.leader(first) is first)
    second = replicas.add(controllers="-capi,-access,-serviceaccount-controller")
    replicas.start(second)
    rng = random.Random(3)
    late: list[str] = []
    for turn in range(2):
        # It has its hands full when it is stopped.
        names = [f"t{turn}-{number:03}" for number in range(40)]
        moment = rng.randrange(10, 30)
        for number, name in enumerate(names):
            _namespace(second, name)
            if number == moment:
                first.signal(signal.SIGSTOP)
        replicas.wait_leader(second, first)
        eventually(lambda: (replicas.stored("/remuda/fences/remuda-controllers") or {}).get("value") == _holder(second))
        fence = replicas.fence()
        first.signal(signal.SIGCONT)
        # Long enough for all that it has in its queues, and for a few of its retries.
        time.sleep(3)
        assert replicas.leader(second) is second
        accounts = second.ask("GET", "/api/v1/serviceaccounts").json["items"]
        late += [item["metadata"]["namespace"] for item in accounts if int(item["metadata"]["resourceVersion"]) > fence]
        assert late == [], f"written after revision {fence}, when another led"
        assert len([item for item in accounts if item["metadata"]["namespace"].startswith(f"t{turn}-")]) < len(names)
        # And back: what was left is done when it is its turn again.
        assert second.stop() == 0, second.told()
        eventually(lambda: replicas.leader(first) is first)
        eventually(lambda names=names: all(_has_account(first, name) for name in names), 180)  # type: ignore[misc]
        second.start()
    assert "does not lead" not in "".join(first.tracebacks())


def _holder(asked: Replica) -> bytes:
    return str(asked.lease.get("holderIdentity")).encode()


# --- none is missed -------------------------------------------------------------------------------------------------------------


def test_a_rolling_restart_under_load_loses_no_request(make: Callable[..., Replicas], seed: int) -> None:
    replicas = make("--shutdown-delay-duration=1s")
    all_ = three(replicas)
    assert all_[0].ask("POST", MAPS, config_map("slots")).status == 201
    since = all_[0].ask("GET", MAPS).json["metadata"]["resourceVersion"]
    follower = Follower(list(all_), MAPS, since)
    follower.start()
    writers = 4
    made: list[list[str]] = [[] for _ in range(writers)]
    added = [0] * writers
    clients = [Patient(all_, seed + number) for number in range(writers)]

    def work(number: int, stop: threading.Event) -> None:
        client = clients[number]
        while not stop.is_set():
            name = f"w{number}-{len(made[number]):05}"
            client.create(MAPS, config_map(name))
            made[number].append(name)
            client.increment(f"{MAPS}/slots", f"slot{number}")
            added[number] += 1
            # Servers that start need a processor, too.
            time.sleep(0.02)

    with contextlib.contextmanager(running)(work, writers):
        time.sleep(1)
        for replica in (*all_, all_[0]):
            assert replica.stop() == 0, replica.told()
            before = sum(map(len, made))
            eventually(lambda before=before: sum(map(len, made)) > before, why="the others did not go on")  # type: ignore[misc]
            replica.start()
        time.sleep(1)
    troubles = [trouble for client in clients for trouble in client.troubles]
    print(f"{sum(map(len, made))} creates, {sum(added)} increments, {len(troubles)} tries that had to be repeated")
    names = {name for each in made for name in each}
    held = [item["metadata"]["name"] for item in all_[1].ask("GET", MAPS).json["items"]]
    assert len(held) == len(set(held))
    assert names == {name for name in held if name.startswith("w")}
    slots = all_[2].ask("GET", f"{MAPS}/slots").json["data"]
    assert [int(slots[f"slot{number}"]) for number in range(writers)] == added
    assert not [trouble for trouble in troubles if trouble.startswith(("500", "504"))], troubles
    eventually(lambda: {name for name, _ in follower.seen} >= names)
    follower.enough.set()
    assert follower.relisted == 0
    assert len(follower.seen) == len(set(follower.seen)), "nothing was told twice"
    assert [revision for _, revision in follower.seen] == sorted(revision for _, revision in follower.seen)
    # Whoever leads by now, works.
    _namespace(all_[1], "afterwards")
    eventually(lambda: _has_account(all_[2], "afterwards"))


def test_servers_that_are_killed_under_load_lose_nothing_that_was_acknowledged(make: Callable[..., Replicas], seed: int) -> None:
    replicas = make()
    all_ = three(replicas)
    writers = 4
    made: list[list[str]] = [[] for _ in range(writers)]
    clients = [Patient(all_, seed + number) for number in range(writers)]

    def work(number: int, stop: threading.Event) -> None:
        while not stop.is_set():
            name = f"k{number}-{len(made[number]):05}"
            clients[number].create(MAPS, config_map(name))
            made[number].append(name)
            time.sleep(0.02)

    with contextlib.contextmanager(running)(work, writers):
        for replica in all_:
            time.sleep(0.5)
            replica.kill()
            time.sleep(0.5)
            replica.start()
    names = {name for each in made for name in each}
    for each in all_:
        held = [item["metadata"]["name"] for item in each.ask("GET", MAPS).json["items"]]
        assert names <= set(held)
        assert len(held) == len(set(held))


# --- etcd is away ---------------------------------------------------------------------------------------------------------------


def test_without_a_quorum_it_is_alive_but_not_ready_and_comes_back(make: Callable[..., Replicas], etcd: EtcdCluster) -> None:
    replicas = make()
    one = replicas.add()
    replicas.start()
    etcd.pause(0)
    etcd.pause(1)
    try:
        eventually(lambda: one.ask("GET", "/readyz").status == 500)
        assert "[-]etcd failed" in one.ask("GET", "/readyz?verbose").raw.decode()
        assert one.ask("GET", "/livez").status == 200
        answer = one.ask("GET", f"{MAPS}/x")
        assert answer.status in (503, 504), answer.body
    finally:
        etcd.restore()
    eventually(lambda: one.ask("GET", "/readyz").status == 200)
    assert one.ask("POST", MAPS, config_map("back")).status == 201
    _namespace(one, "back")
    eventually(lambda: _has_account(one, "back"))


def test_a_server_that_starts_before_etcd_waits_for_it_and_may_be_stopped_meanwhile(
    make: Callable[..., Replicas], etcd: EtcdCluster
) -> None:
    replicas = make()
    one = replicas.add()
    for index in range(3):
        etcd.stop(index)
    starting = threading.Thread(target=one.start, daemon=True)
    starting.start()
    eventually(lambda: one.log.exists() and "trying again, for " in one.told())
    assert "connection refused" in one.told()
    etcd.restore()
    starting.join(250)
    # The members have just come back: one that was ready may find them without a leader once more.
    eventually(one.ready)
    assert one.stop() == 0
    for index in range(3):
        etcd.stop(index)
    before = one.told().count("trying again")
    with contextlib.suppress(RuntimeError):
        threading.Thread(target=_start_quietly, args=(one,), daemon=True).start()
    eventually(lambda: one.told().count("trying again") > before)
    assert one.stop() == 0, one.told()


def _start_quietly(replica: Replica) -> None:
    with contextlib.suppress(RuntimeError):
        replica.start()
