"""ServiceAccount tokens: what an attacker may try with one, then what honest users do."""

from __future__ import annotations

import base64
import dataclasses
import hmac
import json
from typing import Any

import pytest
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import ec
from hypothesis import given
from hypothesis import strategies as st
from joserfc import jws
from joserfc.jwk import ECKey

from remuda.apiserver.auth.authenticator import BadCredentials, Credentials, Identity
from remuda.apiserver.auth.service_accounts import LAST_USED, ServiceAccountAuthenticator
from remuda.apiserver.auth.token_issuer import EXTENDED_SECONDS, PROJECTED_SECONDS, TokenIssuer
from remuda.apiserver.auth.token_keys import ISSUER, TokenKeys, openid_configuration, peek
from remuda.kube.authorization.users import split_service_account
from remuda.kube.clock import Entropy, VirtualClock, rfc3339
from remuda.kube.errors import ApiError
from tests.unit.kube.authorization.stored import Obj, Stored, plain


def new_pem() -> bytes:
    return ec.generate_private_key(ec.SECP256R1()).private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.TraditionalOpenSSL, serialization.NoEncryption()
    )


PEM, OTHER_PEM = new_pem(), new_pem()
CRYPTO_FAILURE = "go-jose/go-jose: error in cryptographic primitive"


class House:
    """A ServiceAccount `robot` in namespace `a`, with the objects its tokens may be bound to."""

    def __init__(self, *, audiences: tuple[str, ...] = (ISSUER,)) -> None:
        self.clock = VirtualClock()
        self.stored = Stored(
            plain("ServiceAccount", "robot", "a"),
            plain("ServiceAccount", "robot", "b", uid="other"),
            plain("Pod", "p", "a", spec={"serviceAccountName": "robot", "nodeName": "n"}),
            plain("Pod", "alien", "a", spec={"serviceAccountName": "default"}),
            plain("Pod", "homeless", "a", spec={"serviceAccountName": "robot", "nodeName": "gone"}),
            plain("Node", "n"),
            plain("Secret", "s", "a"),
        )
        self.keys = TokenKeys(PEM)
        self.used: list[tuple[str, str]] = []
        self.issuer = TokenIssuer(self.keys, self.stored, self.clock, Entropy(), ISSUER, audiences)
        self.door = ServiceAccountAuthenticator(self.keys, self.stored, self.clock, [ISSUER], audiences, self._note, capacity=8)

    def _note(self, secret: Obj, today: str) -> None:
        self.used.append((secret["metadata"]["name"], today))

    def token(self, namespace: str = "a", **spec: Any) -> str:
        return str(self.issuer.issue(namespace, "robot", {"spec": spec})["status"]["token"])

    async def identity(self, token: str, *audiences: str) -> Identity:
        found = await self.door.identify(Credentials(bearer=token, audiences=audiences))
        assert found is not None
        return found

    async def refusal(self, token: str, *audiences: str) -> str:
        """Why the token is refused; "" when it is not even looked at."""
        try:
            found = await self.door.identify(Credentials(bearer=token, audiences=audiences))
        except BadCredentials as error:
            assert (error.code, error.message) == (401, "Unauthorized")
            return error.why
        assert found is None, "the token was accepted"
        return ""

    def legacy(self, name: str = "legacy") -> str:
        account = self.stored.get("", "serviceaccounts", "a", "robot")
        assert account is not None
        secret = plain("Secret", name, "a", type="kubernetes.io/service-account-token")
        token = self.issuer.legacy_token(account, secret)
        self.stored.put({**secret, "data": {"token": base64.b64encode(token.encode()).decode()}})
        return token


def claims_of(token: str) -> Obj:
    found = peek(token)
    assert found is not None
    return dict(found.payload)


def header_of(token: str) -> Obj:
    found = peek(token)
    assert found is not None
    return dict(found.header)


def encode(part: Obj | bytes) -> str:
    content = part if isinstance(part, bytes) else json.dumps(part).encode()
    return base64.urlsafe_b64encode(content).decode().rstrip("=")


def signed(claims: Obj, pem: bytes = PEM, **header: Any) -> str:
    return jws.serialize_compact({"alg": "ES256", **header}, json.dumps(claims).encode(), ECKey.import_key(pem), ["ES256"])


def public_pem() -> bytes:
    key = serialization.load_pem_private_key(PEM, None)
    return key.public_key().public_bytes(serialization.Encoding.PEM, serialization.PublicFormat.SubjectPublicKeyInfo)


def keyed_with(secret: bytes, claims: Obj) -> str:
    """A token signed symmetrically with something public, for servers that trust the header's algorithm."""
    content = f"{encode({'alg': 'HS256'})}.{encode(claims)}"
    return f"{content}.{encode(hmac.digest(secret, content.encode(), 'sha256'))}"


@pytest.fixture
def house() -> House:
    return House()


# -- forging -----------------------------------------------------------------------------------------------------------


async def test_a_token_without_signature_is_refused(house: House) -> None:
    token = house.token()
    for algorithm in ("none", "None", "NONE", "", "ES256"):
        forged = f"{encode({'alg': algorithm})}.{token.split('.')[1]}."
        assert await house.refusal(forged) == CRYPTO_FAILURE


async def test_a_token_of_another_key_is_refused(house: House) -> None:
    claims = claims_of(house.token())
    assert await house.refusal(signed(claims, OTHER_PEM)) == CRYPTO_FAILURE
    own_id = header_of(house.token())["kid"]
    assert await house.refusal(signed(claims, OTHER_PEM, kid=own_id)) == CRYPTO_FAILURE


async def test_a_key_that_comes_with_the_token_is_not_used(house: House) -> None:
    claims = claims_of(house.token())
    embedded = ECKey.import_key(OTHER_PEM).as_dict(private=False)
    assert await house.refusal(signed(claims, OTHER_PEM, jwk=embedded)) == CRYPTO_FAILURE


async def test_the_public_key_as_a_shared_secret_is_refused(house: House) -> None:
    claims = claims_of(house.token())
    public = public_pem()
    for secret in (public, public.strip(), base64.urlsafe_b64encode(public)):
        assert await house.refusal(keyed_with(secret, claims)) == CRYPTO_FAILURE


async def test_an_unknown_key_id_is_refused(house: House) -> None:
    claims = claims_of(house.token())
    assert await house.refusal(signed(claims, kid="another")) == "invalid signature, no keys found"


async def test_unknown_critical_headers_are_refused(house: House) -> None:
    header, payload, signature = house.token().split(".")
    changed = encode({**json.loads(base64.urlsafe_b64decode(header + "==")), "crit": ["exp"], "exp": 1})
    assert await house.refusal(f"{changed}.{payload}.{signature}") == CRYPTO_FAILURE


@pytest.mark.parametrize(
    ("claim", "value"),
    [
        ("exp", 9_999_999_999),
        ("aud", ["other"]),
        ("sub", "system:serviceaccount:kube-system:admin"),
        ("kubernetes.io", {"namespace": "b", "serviceaccount": {"name": "robot", "uid": "other"}}),
    ],
)
async def test_a_changed_claim_is_refused(house: House, claim: str, value: Any) -> None:
    header, payload, signature = house.token().split(".")
    changed = {**json.loads(base64.urlsafe_b64decode(payload + "==")), claim: value}
    assert await house.refusal(f"{header}.{encode(changed)}.{signature}") == CRYPTO_FAILURE


@pytest.mark.parametrize(
    "text", ["abc", "a.b", "a.b.c", "a.b.c.d", "..", "{}", "ä.ö.ü", "e30.e30.e30", "e30.W10.", " . . ", "\udcff.a.b"]
)
async def test_what_is_no_token_of_ours_is_left_to_others(house: House, text: str) -> None:
    assert await house.refusal(text) == ""


async def test_another_issuers_token_is_left_to_others(house: House) -> None:
    assert await house.refusal(signed({**claims_of(house.token()), "iss": "https://elsewhere"})) == ""


async def test_a_bound_token_does_not_pass_as_a_legacy_one_nor_the_other_way(house: House) -> None:
    """Both are signed by the same key; each must still satisfy its own kind's checks."""
    bound = claims_of(house.token())
    assert await house.refusal(signed({**bound, "iss": "kubernetes/serviceaccount"})) == "namespace claim is missing"
    legacy = claims_of(house.legacy())
    assert "not found" in await house.refusal(signed({**legacy, "iss": ISSUER, "aud": [ISSUER]}))


@given(st.binary(max_size=40), st.integers(0, 2), st.integers(0, 400))
async def test_no_change_of_any_byte_passes(noise: bytes, part: int, at: int) -> None:
    house = House()
    parts = house.token().split(".")
    text = base64.urlsafe_b64encode(noise).decode().rstrip("=")
    at = at % len(parts[part])
    changed = parts[part][:at] + text + parts[part][at + len(text) :]
    if _bits(changed) == _bits(parts[part]):
        return
    parts[part] = changed
    await house.refusal(".".join(parts))


def _bits(part: str) -> bytes:
    try:
        return base64.urlsafe_b64decode(part + "=" * (-len(part) % 4))
    except ValueError:
        return part.encode()


# -- bound tokens ------------------------------------------------------------------------------------------------------


async def test_a_fresh_token_names_its_account_and_groups(house: House) -> None:
    token = house.token()
    found = await house.identity(token)
    assert dataclasses.asdict(found.user) == {
        "name": "system:serviceaccount:a:robot",
        "uid": "uid-of-robot",
        "groups": ("system:serviceaccounts", "system:serviceaccounts:a", "system:authenticated"),
        "extra": {"authentication.kubernetes.io/credential-id": [f"JTI={claims_of(token)['jti']}"]},
    }
    assert found.audiences == (ISSUER,)


async def test_it_expires_a_minute_after_its_time_and_not_before(house: House) -> None:
    token = house.token(expirationSeconds=600)
    await house.clock.advance(659)
    await house.identity(token)
    await house.clock.advance(2)
    assert await house.refusal(token) == "service account token has expired"


async def test_a_token_from_the_future_is_refused(house: House) -> None:
    token = house.token()
    await house.clock.advance(-61)
    assert await house.refusal(token) == "service account token is not valid yet"
    claims = {**claims_of(token), "nbf": 0}
    assert await house.refusal(signed(claims)) == "service account token is issued in the future"


@pytest.mark.parametrize("remembered", [False, True])
async def test_deleting_the_account_revokes_the_token_at_once(house: House, remembered: bool) -> None:
    token = house.token()
    if remembered:
        await house.identity(token)
    house.stored.remove("ServiceAccount", "a", "robot")
    assert await house.refusal(token) == 'serviceaccounts "robot" not found'
    house.stored.put(plain("ServiceAccount", "robot", "a", uid="recreated"))
    assert await house.refusal(token) == "service account UID (recreated) does not match claim (uid-of-robot)"


async def test_an_account_that_is_being_deleted_keeps_its_tokens_for_a_minute(house: House) -> None:
    token = house.token()
    account = plain("ServiceAccount", "robot", "a")
    account["metadata"]["deletionTimestamp"] = rfc3339(house.clock.time())
    house.stored.put(account)
    await house.identity(token)
    await house.clock.advance(62)
    assert await house.refusal(token) == "service account a/robot has been deleted"


async def test_the_same_name_in_another_namespace_is_another_account(house: House) -> None:
    token = house.token("b")
    assert (await house.identity(token)).user.name == "system:serviceaccount:b:robot"
    house.stored.remove("ServiceAccount", "b", "robot")
    assert await house.refusal(token) == 'serviceaccounts "robot" not found'


@pytest.mark.parametrize(
    ("kind", "resource", "namespace", "name"),
    [("Secret", "secrets", "a", "s"), ("Pod", "pods", "a", "p"), ("Node", "nodes", "", "n")],
)
async def test_a_token_ends_with_the_object_it_is_bound_to(
    house: House, kind: str, resource: str, namespace: str, name: str
) -> None:
    token = house.token(boundObjectRef={"kind": kind, "apiVersion": "v1", "name": name})
    await house.identity(token)
    kept = house.stored.get("", resource, namespace, name)
    assert kept is not None
    house.stored.put({**kept, "metadata": {**kept["metadata"], "deletionTimestamp": rfc3339(house.clock.time() - 120)}})
    assert await house.refusal(token) == "service account token has been invalidated"
    house.stored.remove(kind, namespace, name)
    assert await house.refusal(token) == "service account token has been invalidated"
    house.stored.put({**kept, "metadata": {**kept["metadata"], "uid": "new"}})
    word = kind.lower()
    expected = f"{word} UID (new) does not match service account {word} ref claim (uid-of-{name})"
    assert await house.refusal(token) == expected


async def test_a_pods_token_tells_the_pod_and_its_node_and_outlives_the_node(house: House) -> None:
    token = house.token(boundObjectRef={"kind": "Pod", "apiVersion": "v1", "name": "p"})
    extra = (await house.identity(token)).user.extra
    assert {key.split("/")[1]: value[0] for key, value in extra.items() if "credential" not in key} == {
        "pod-name": "p", "pod-uid": "uid-of-p", "node-name": "n", "node-uid": "uid-of-n",
    }  # fmt: skip
    house.stored.remove("Node", "", "n")
    await house.identity(token)
    homeless = house.token(boundObjectRef={"kind": "Pod", "apiVersion": "v1", "name": "homeless"})
    assert claims_of(homeless)["kubernetes.io"]["node"] == {"name": "gone"}


# -- audiences ---------------------------------------------------------------------------------------------------------


async def test_a_token_for_others_does_not_open_this_api(house: House) -> None:
    token = house.token(audiences=["vault", "x"])
    expected = f'token audiences ["vault" "x"] is invalid for the target audiences ["{ISSUER}"]'
    assert await house.refusal(token) == expected
    assert (await house.identity(token, "vault", "y")).audiences == ("vault",)
    assert "is invalid for" in await house.refusal(token, "y")


async def test_a_remembered_token_is_still_asked_for_its_audience(house: House) -> None:
    token = house.token()
    await house.identity(token)
    assert "is invalid for" in await house.refusal(token, "elsewhere")


# -- legacy tokens -----------------------------------------------------------------------------------------------------


async def test_a_legacy_token_counts_while_its_secret_holds_it(house: House) -> None:
    token = house.legacy()
    found = await house.identity(token)
    assert (found.user.name, found.user.uid, found.user.extra) == ("system:serviceaccount:a:robot", "uid-of-robot", {})
    house.stored.put(plain("Secret", "legacy", "a", data={"token": base64.b64encode(b"other").decode()}))
    assert await house.refusal(token) == "Token does not match server's copy"
    house.stored.put(plain("Secret", "legacy", "a", data={"token": "!!"}))
    assert await house.refusal(token) == "Token does not match server's copy"
    house.stored.put(plain("Secret", "legacy", "a"))
    assert await house.refusal(token) == "Token does not match server's copy"
    house.stored.remove("Secret", "a", "legacy")
    assert await house.refusal(token) == "Token has been invalidated"


async def test_a_legacy_token_ends_with_its_account(house: House) -> None:
    token = house.legacy()
    house.stored.put(plain("ServiceAccount", "robot", "a", uid="recreated"))
    assert await house.refusal(token) == "ServiceAccount UID (recreated) does not match claim (uid-of-robot)"
    house.stored.remove("ServiceAccount", "a", "robot")
    assert await house.refusal(token) == 'serviceaccounts "robot" not found'


async def test_a_legacy_token_is_for_this_api_only(house: House) -> None:
    assert "is invalid for the target audiences" in await house.refusal(house.legacy(), "vault")


@pytest.mark.parametrize("subject", ["", "robot", "system:serviceaccount:b:robot", "system:serviceaccount:a:robot:x"])
async def test_a_legacy_token_must_agree_with_its_subject(house: House, subject: str) -> None:
    claims = {**claims_of(house.legacy()), "sub": subject}
    assert await house.refusal(signed(claims)) in ("sub claim is invalid", "sub claim is missing")


async def test_a_marked_legacy_token_is_refused_and_its_use_noted_once_a_day(house: House) -> None:
    token = house.legacy()
    await house.identity(token)
    today = rfc3339(house.clock.time())[:10]
    assert house.used == [("legacy", today)]
    secret = house.stored.get("", "secrets", "a", "legacy")
    assert secret is not None
    labels = {LAST_USED: today, "kubernetes.io/legacy-token-invalid-since": today}
    house.stored.put({**secret, "metadata": {**secret["metadata"], "labels": labels}})
    assert "has been marked invalid" in await house.refusal(token)
    assert len(house.used) == 1


async def test_the_cache_of_verified_tokens_is_bounded(house: House) -> None:
    tokens = [house.token() for _ in range(12)]
    for token in [*tokens, *tokens]:
        await house.identity(token)
    assert len(house.door._verified) == 8


async def test_a_retired_key_still_opens_and_no_longer_signs() -> None:
    old, new = House(), House()
    token = old.token()
    new.keys = TokenKeys(OTHER_PEM, lambda: PEM)
    new.door = ServiceAccountAuthenticator(new.keys, new.stored, new.clock, [ISSUER], [ISSUER])
    await new.identity(token)
    assert len(new.keys.key_set()["keys"]) == 2
    assert peek(new.keys.sign({})) != peek(old.keys.sign({}))


# -- TokenRequest ------------------------------------------------------------------------------------------------------


def test_a_token_request_is_answered_with_everything_filled_in(house: House) -> None:
    found = house.issuer.issue("a", "robot", {"spec": {}})
    now = house.clock.time()
    token = found["status"].pop("token")
    assert found == {
        "kind": "TokenRequest",
        "apiVersion": "authentication.k8s.io/v1",
        "metadata": {"name": "robot", "namespace": "a", "uid": "uid-of-robot", "creationTimestamp": rfc3339(now)},
        "spec": {"audiences": [ISSUER], "expirationSeconds": 3600, "boundObjectRef": None},
        "status": {"expirationTimestamp": rfc3339(now + 3600)},
    }
    claims = claims_of(token)
    assert {key: claims[key] for key in ("iss", "aud", "exp", "iat", "nbf", "sub")} == {
        "iss": ISSUER, "aud": [ISSUER], "exp": int(now) + 3600, "iat": int(now), "nbf": int(now),
        "sub": "system:serviceaccount:a:robot",
    }  # fmt: skip
    assert claims["kubernetes.io"] == {"namespace": "a", "serviceaccount": {"name": "robot", "uid": "uid-of-robot"}}
    assert set(header_of(token)) == {"alg", "kid"}


def ref(kind: str, name: str, version: str = "v1", uid: str = "") -> Obj:
    return {"boundObjectRef": {"kind": kind, "apiVersion": version, "name": name, **({"uid": uid} if uid else {})}}


@pytest.mark.parametrize(
    ("body", "code", "text"),
    [
        ({"spec": {"expirationSeconds": 599}}, 422,
         'TokenRequest.authentication.k8s.io "" is invalid: spec.expirationSeconds: Invalid value: 599: '
         "may not specify a duration less than 10 minutes"),
        ({"spec": {"expirationSeconds": 2**32 + 1}}, 422,
         'TokenRequest.authentication.k8s.io "" is invalid: spec.expirationSeconds: Invalid value: 4294967297: '
         "may not specify a duration larger than 2^32 seconds"),
        ({"metadata": {"name": "x"}, "spec": {}}, 422,
         'TokenRequest.authentication.k8s.io "robot" is invalid: metadata.name: Invalid value: "x": '
         "must match the service account name if specified"),
        ({"metadata": {"namespace": "x"}, "spec": {}}, 422,
         'TokenRequest.authentication.k8s.io "robot" is invalid: metadata.namespace: Invalid value: "x": '
         "must match the service account namespace if specified"),
        ({"metadata": {"uid": "x"}, "spec": {}}, 409,
         'Operation cannot be fulfilled on TokenRequest.authentication.k8s.io "robot": the UID in the token request (x) '
         "does not match the UID of the service account (uid-of-robot)"),
        ({"spec": ref("Pod", "nope")}, 404, 'pods "nope" not found'),
        ({"spec": ref("Secret", "nope")}, 404, 'secrets "nope" not found'),
        ({"spec": ref("Node", "nope")}, 404, 'nodes "nope" not found'),
        ({"spec": ref("Pod", "alien")}, 400,
         'cannot bind token for serviceaccount "robot" to pod running with different serviceaccount name.'),
        ({"spec": ref("ConfigMap", "x")}, 400, "cannot bind token to object of type /v1, Kind=ConfigMap"),
        ({"spec": ref("Pod", "p", "apps/v1")}, 400, "cannot bind token to object of type apps/v1, Kind=Pod"),
        ({"spec": ref("Pod", "p", uid="old")}, 409,
         'Operation cannot be fulfilled on Pod "p": the UID in the bound object reference (old) does not match the UID in '
         "record. The object might have been deleted and then recreated"),
    ],
)  # fmt: skip
def test_a_bad_token_request_is_refused_with_the_real_servers_words(house: House, body: Obj, code: int, text: str) -> None:
    with pytest.raises(ApiError) as caught:
        house.issuer.issue("a", "robot", body)
    assert (caught.value.code, caught.value.message) == (code, text)


def test_an_account_that_is_not_there_gets_no_token(house: House) -> None:
    with pytest.raises(ApiError, match='serviceaccounts "nobody" not found'):
        house.issuer.issue("a", "nobody", {"spec": {}})


async def test_a_projected_token_lives_a_year_and_says_when_it_should_have_been_renewed(house: House) -> None:
    found = house.issuer.issue("a", "robot", {"spec": {"expirationSeconds": PROJECTED_SECONDS, **ref("Pod", "p")}})
    claims = claims_of(found["status"]["token"])
    assert claims["exp"] - claims["iat"] == EXTENDED_SECONDS
    assert claims["kubernetes.io"]["warnafter"] == claims["iat"] + PROJECTED_SECONDS
    assert found["status"]["expirationTimestamp"] == rfc3339(claims["iat"] + PROJECTED_SECONDS)
    other = claims_of(house.token(expirationSeconds=PROJECTED_SECONDS, audiences=["vault"], **ref("Pod", "p")))
    assert other["exp"] - other["iat"] == PROJECTED_SECONDS


def test_the_discovery_documents_let_others_check_tokens(house: House) -> None:
    assert openid_configuration(ISSUER, "https://h:1/") == {
        "issuer": ISSUER,
        "jwks_uri": "https://h:1/openid/v1/jwks",
        "response_types_supported": ["id_token"],
        "subject_types_supported": ["public"],
        "id_token_signing_alg_values_supported": ["ES256"],
    }
    (published,) = house.keys.key_set()["keys"]
    assert set(published) == {"use", "kty", "kid", "crv", "alg", "x", "y"}, "and nothing private"
    token = house.token()
    assert published["kid"] == header_of(token)["kid"]
    assert jws.deserialize_compact(token, ECKey.import_key(published), ["ES256"]).payload


@pytest.mark.parametrize(
    "name",
    [
        "",
        "bob",
        "system:serviceaccount:",
        "system:serviceaccount:a",
        "system:serviceaccount:a:b:c",
        "system:serviceaccount:A:b",
        "system:serviceaccount:a:_",
        "system:serviceaccount::b",
    ],
)
def test_names_that_are_no_service_accounts(name: str) -> None:
    assert split_service_account(name) is None
