"""Who is asking: client certificates, tokens, nobody, and what each is told."""

from __future__ import annotations

import base64
import json
import re
import ssl
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.asymmetric.utils import decode_dss_signature

from tests.real import pki
from tests.real.cluster import RealCluster

from .callers import Caller, acting, issue, until, with_token
from .harness import OURS, REAL, SIDES, Pair, RemudaProcess, compare_answers

WHOAMI = "/apis/authentication.k8s.io/v1/selfsubjectreviews"
REVIEW = {"apiVersion": "authentication.k8s.io/v1", "kind": "SelfSubjectReview"}


class Signed(pki.Authority):
    """The CA of a running server, to sign clients of our own."""

    def __init__(self, directory: Path, cert: Path, key: Path) -> None:
        self._directory = directory
        loaded = serialization.load_pem_private_key(key.read_bytes(), None)
        assert isinstance(loaded, ec.EllipticCurvePrivateKey)
        self._key = loaded
        self._name = x509.load_pem_x509_certificate(cert.read_bytes()).subject


Certified = Callable[..., Caller]


@pytest.fixture
def certified(pair: Pair, real: RealCluster, remuda: RemudaProcess, tmp_path: Path) -> Certified:
    """Gives a caller with a client certificate for a user and groups, signed by each server's own CA."""

    def make(user: str, *groups: str) -> Caller:
        endpoints = {}
        sources = {
            OURS: (remuda.keys / "ca.crt", remuda.keys / "ca.key"),
            REAL: (real.ca_pem, real.data_dir / "ca.key"),
        }
        for side in SIDES:
            directory = tmp_path / side
            directory.mkdir(exist_ok=True)
            signed = Signed(directory, *sources[side]).client("client", user, groups)
            endpoints[side] = pair.endpoints[side].signed(sources[side][0], signed.cert, signed.key)
        return Caller(endpoints, pair.ns)

    return make


def without_fingerprints(body: Any) -> Any:
    """A certificate's fingerprint is an identity of each server's own."""
    return json.loads(re.sub(r"X509SHA256=[0-9a-f]{64}", "<fingerprint>", json.dumps(body)))


def test_a_certificate_names_user_and_groups(pair: Pair, certified: Certified) -> None:
    answer = certified("jane", "devs", "ops").post(WHOAMI, REVIEW, ignore=without_fingerprints)
    assert answer.json["status"]["userInfo"]["username"] == "jane"


def test_the_admin_certificate_is_a_master(pair: Pair) -> None:
    answer = pair.post(WHOAMI, REVIEW, compare=False)
    for side in SIDES:
        assert set(answer[side].json["status"]["userInfo"]["groups"]) == {"system:masters", "system:authenticated"}


def test_a_known_user_without_rights_is_forbidden(pair: Pair, certified: Certified) -> None:
    jane = certified("jane")
    assert jane.get("/api/v1/namespaces/{ns}/secrets").status == 403
    assert jane.get("/api/v1/nodes/a").status == 403


def test_a_certificate_of_another_ca_is_nobody(pair: Pair, tmp_path: Path) -> None:
    stranger = pki.Authority(tmp_path, "other-ca").client("client", "jane", ("system:masters",))
    statuses = []
    for side in SIDES:
        other = pair.endpoints[side].signed(tmp_path / "ca.crt", stranger.cert, stranger.key, verify=False)
        try:
            statuses.append(other.request("GET", f"/api/v1/namespaces/{pair.ns}/secrets").status)
        except (ssl.SSLError, ConnectionError, OSError):
            # A server may also refuse to speak with a stranger.
            statuses.append(401)
    assert statuses == [401, 401]


@pytest.mark.parametrize("path", ["/healthz", "/livez", "/readyz"])
def test_health_is_open_to_everybody(pair: Pair, path: str) -> None:
    # Health is a matter of the moment: a server whose store takes its time is not well meanwhile.
    both = until(lambda: pair.get(path, anonymous=True, compare=False), 200)
    compare_answers(both, f"GET {path}")
    assert both.ours.raw == both.real.raw


@pytest.mark.parametrize("path", ["/livez/ping", "/healthz/ping", "/readyz/ping"])
def test_single_checks_answer_the_administrator(pair: Pair, path: str) -> None:
    pair.get(path)


@pytest.mark.xfail(strict=True, reason="without credentials only health is answered; all else is 401, not 403")
@pytest.mark.parametrize("path", ["/api/v1/namespaces/{ns}/secrets", "/apis", "/version", "/metrics", "/nonsense"])
def test_nobody_gets_nothing_else(pair: Pair, path: str) -> None:
    pair.get(path, anonymous=True)


@pytest.mark.parametrize(
    "header",
    [
        "Bearer nonsense",
        "bearer nonsense",
        "Bearer a.b.c",
        "Bearer eyJhbGciOiJub25lIn0.eyJzdWIiOiJzeXN0ZW06YWRtaW4ifQ.",
        "Bearer " + "x" * 5000,
    ],
    ids=["word", "lower-case", "three-parts", "alg-none", "long"],
)
def test_a_token_that_is_none_is_unauthorized(pair: Pair, header: str) -> None:
    both = pair.get("/api/v1/namespaces/{ns}/secrets", headers={"Authorization": header}, anonymous=True)
    assert both.status == 401


def test_bad_tokens_are_refused_on_health_too(pair: Pair) -> None:
    pair.get("/healthz", headers={"Authorization": "Bearer nonsense"}, anonymous=True)


def test_a_good_certificate_counts_beside_a_bad_token(pair: Pair) -> None:
    assert pair.get("/api/v1/namespaces/{ns}/secrets", headers={"Authorization": "Bearer nonsense"}).status == 200


def test_a_token_with_one_letter_changed_is_unauthorized(pair: Pair) -> None:
    tokens = issue(pair)

    def tampered(side: str) -> str:
        head, payload, signature = tokens[side].split(".")
        return f"{head}.{payload}.{'A' if signature[10] != 'A' else 'B'}{signature[:10]}{signature[11:]}"

    assert with_token(pair, tampered).post(WHOAMI, REVIEW).status == 401


def test_a_token_of_the_other_server_is_unauthorized(pair: Pair) -> None:
    tokens = issue(pair)
    other = {OURS: tokens[REAL], REAL: tokens[OURS]}
    assert with_token(pair, other.__getitem__).post(WHOAMI, REVIEW).status == 401


def test_a_token_for_another_audience_is_unauthorized(pair: Pair) -> None:
    tokens = issue(pair, audiences=["vault"])
    assert with_token(pair, tokens.__getitem__).post(WHOAMI, REVIEW).status == 401


def test_a_token_says_who_it_is(pair: Pair) -> None:
    tokens = issue(pair)
    answer = with_token(pair, tokens.__getitem__).post(WHOAMI, REVIEW)
    assert answer.json["status"]["userInfo"]["username"] == f"system:serviceaccount:{pair.ns}:default"


def test_a_service_account_may_not_do_much(pair: Pair) -> None:
    caller = with_token(pair, issue(pair).__getitem__)
    assert caller.get("/api/v1/namespaces/{ns}/pods").status == 403
    assert caller.get("/api", ignore=lambda body: body["versions"]).status == 200
    assert caller.post("/apis/apps/v1/namespaces/{ns}/deployments", {}).status == 403


def test_a_token_dies_with_its_account(pair: Pair) -> None:
    accounts = "/api/v1/namespaces/{ns}/serviceaccounts"
    pair.post(accounts, {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": "short"}})
    caller = with_token(pair, issue(pair, "short").__getitem__)
    assert caller.post(WHOAMI, REVIEW).status == 201
    pair.delete(f"{accounts}/short")
    until(lambda: caller.post(WHOAMI, REVIEW, compare=False), 401)
    caller.post(WHOAMI, REVIEW)


def test_a_token_does_not_fit_a_new_account_of_the_same_name(pair: Pair) -> None:
    accounts = "/api/v1/namespaces/{ns}/serviceaccounts"
    body = {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": "again"}}
    pair.post(accounts, body)
    caller = with_token(pair, issue(pair, "again").__getitem__)
    pair.delete(f"{accounts}/again")
    pair.post(accounts, body)
    # This answer, not the next: a server that knew neither of them may hear of the first one now.
    compare_answers(until(lambda: caller.post(WHOAMI, REVIEW, compare=False), 401), f"POST {WHOAMI}")


def test_who_am_i_while_acting_as_another(pair: Pair) -> None:
    acting(pair, "jane").post(WHOAMI, REVIEW)
    acting(pair, "jane", ["devs", "ops"]).post(WHOAMI, REVIEW)


def test_who_am_i_takes_an_empty_body(pair: Pair) -> None:
    acting(pair, "jane").post(WHOAMI, {})
    acting(pair, "jane").post(WHOAMI + "?dryRun=All", REVIEW)


def test_401_names_the_scheme(pair: Pair) -> None:
    both = pair.get("/api", headers={"Authorization": "Bearer nonsense"}, anonymous=True)
    assert both.ours.headers.get("content-type") == both.real.headers.get("content-type")


# --- tokens that were signed with the right key, and are wrong all the same ------------------------------------------------

ISSUER = "https://kubernetes.default.svc.cluster.local"


def b64url(data: bytes) -> str:
    return base64.urlsafe_b64encode(data).rstrip(b"=").decode()


def forged(key: Path, claims: dict[str, Any], header: dict[str, Any]) -> str:
    """A token signed with the server's own key."""
    loaded = serialization.load_pem_private_key(key.read_bytes(), None)
    assert isinstance(loaded, ec.EllipticCurvePrivateKey)
    signed = ".".join(b64url(json.dumps(part).encode()) for part in (header, claims))
    first, second = decode_dss_signature(loaded.sign(signed.encode(), ec.ECDSA(hashes.SHA256())))
    return f"{signed}.{b64url(first.to_bytes(32, 'big') + second.to_bytes(32, 'big'))}"


@pytest.fixture
def keys(real: RealCluster, remuda: RemudaProcess) -> dict[str, Path]:
    return {OURS: remuda.keys / "service-account.key", REAL: real.service_account_key}


NOW = int(time.time())
WRONG: dict[str, dict[str, Any]] = {
    "right": {},
    "expired": {"exp": NOW - 120, "iat": NOW - 3600, "nbf": NOW - 3600},
    "not-yet": {"nbf": NOW + 3600, "exp": NOW + 7200},
    "other-issuer": {"iss": "https://example.com"},
    "no-issuer": {"iss": None},
    "other-audience": {"aud": ["vault"]},
    "audience-as-text": {"aud": ISSUER},
    "no-audience": {"aud": None},
    "no-subject": {"sub": None},
    "other-subject": {"sub": "system:serviceaccount:default:other"},
    "no-expiry": {"exp": None},
    "expiry-as-text": {"exp": "soon"},
    "no-claims-of-kubernetes": {"kubernetes.io": None},
    "other-account": {"kubernetes.io": {"namespace": "default", "serviceaccount": {"name": "missing", "uid": "x"}}},
    "other-uid": {"kubernetes.io": {"namespace": "default", "serviceaccount": {"name": "default", "uid": "x"}}},
    "claims-as-text": {"kubernetes.io": "text"},
}


def claims_of(token: str) -> dict[str, Any]:
    payload = token.split(".")[1]
    found: dict[str, Any] = json.loads(base64.urlsafe_b64decode(payload + "=" * (-len(payload) % 4)))
    return found


def header_of(token: str) -> dict[str, Any]:
    return claims_of(f".{token.split('.')[0]}.")


@pytest.mark.parametrize("wrong", WRONG)
def test_a_signed_token_must_say_the_right_things(pair: Pair, keys: dict[str, Path], wrong: str) -> None:
    tokens = issue(pair)

    def make(side: str) -> str:
        claims = {**claims_of(tokens[side]), **WRONG[wrong]}
        return forged(keys[side], {k: v for k, v in claims.items() if v is not None}, header_of(tokens[side]))

    made = {side: make(side) for side in SIDES}
    with_token(pair, made.__getitem__).post(WHOAMI, REVIEW)
    review = {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenReview"}
    pair.post(
        "/apis/authentication.k8s.io/v1/tokenreviews",
        lambda side: {**review, "spec": {"token": made[side]}},
        ignore=lambda body: {**body["status"], "error": bool(body["status"].get("error"))},
    )


@pytest.mark.parametrize(
    "change",
    [{"kid": None}, {"kid": "other"}, {"alg": "none"}, {"alg": "HS256"}, {"alg": "RS256"}, {"crit": ["x"]}, {"typ": "JWT"}],
    ids=str,
)
def test_a_signed_token_must_have_the_right_header(pair: Pair, keys: dict[str, Path], change: dict[str, Any]) -> None:
    tokens = issue(pair)

    def make(side: str) -> str:
        header = {k: v for k, v in {**header_of(tokens[side]), **change}.items() if v is not None}
        return forged(keys[side], claims_of(tokens[side]), header)

    with_token(pair, {side: make(side) for side in SIDES}.__getitem__).post(WHOAMI, REVIEW)
