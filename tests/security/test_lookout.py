"""Who looks for secrets in logs finds them, in every place and shape, and does not repeat them."""

from __future__ import annotations

import base64
import json
from pathlib import Path

import pytest

from remuda.apiserver.keys.encryption import Envelope, parse_keys, render_keys
from remuda.kube.clock import Entropy
from tests.lookout import Lookout

TOKEN = Entropy(3).token_text(54)
JWT = f"eyJhbGciOiJFUzI1NiJ9.eyJzdWIiOiJ4In0.{Entropy(4).token_text(86)}"
PEM = "-----BEGIN PRIVATE KEY-----\n{}\n-----END PRIVATE KEY-----\n"
KEY = "MIGHAgEAMBMGByqGSM49AgEGCCqGSM49AwEHBG0wawIBAQQgdH3uX9" + "k2bZ" * 20
WORDS = "correct horse battery staple"


@pytest.mark.parametrize(
    ("secret", "line"),
    [
        (TOKEN, f"info remuda: somebody came with token-abcde:{TOKEN}"),
        (TOKEN, f"GET /v3/import/{TOKEN}_c-m-abcdefgh.yaml"),
        (TOKEN, f'{{"message":"wrong token {TOKEN[:40]}…"}}'),
        (JWT, f"Authorization: Bearer {JWT}"),
        (PEM.format("\n".join(KEY[at : at + 64] for at in range(0, len(KEY), 64))), KEY[:64]),
        (WORDS, f"the password is {WORDS}!"),
    ],
    ids=["a token", "in an address", "cut off", "a JWT", "a key", "with spaces"],
)
def test_a_secret_in_a_log_is_found_and_not_repeated(secret: str, line: str, tmp_path: Path) -> None:
    looking = Lookout()
    looking.learn(secret, "it")
    log = tmp_path / "serve.log"
    log.write_text(f"one\n{line}\nthree\n")
    looking.logs[log] = "test_something"
    (found,) = looking.leaks()
    assert found.startswith(f"test_something: {log}:2: a secret (it): ")
    assert not any(known.decode() in found for known in (*looking.heads, *looking.phrases))


def test_what_is_no_secret_is_not_found(tmp_path: Path) -> None:
    looking = Lookout()
    for word in ("short", "x" * 54, "-----BEGIN CERTIFICATE-----\nMIIB\n-----END CERTIFICATE-----\n"):
        looking.learn(word, "it")
    looking.learn_secret({"data": {"namespace": base64.b64encode(b"a-namespace-of-some-length").decode()}}, "it")
    log = tmp_path / "serve.log"
    log.write_text(f"short {'x' * 60} MIIB a-namespace-of-some-length\n")
    looking.logs[log] = "t"
    assert looking.leaks() == []


def test_what_a_server_kept_is_known_by_its_own_keys(tmp_path: Path) -> None:
    import sqlite3

    keys = render_keys([("k1", Entropy(5).token_bytes(32))])
    (tmp_path / "encryption.yaml").write_text(keys)
    secret = {"kind": "Secret", "data": {"token": base64.b64encode(TOKEN.encode()).decode()}}
    path = "/registry/secrets/default/one"
    connection = sqlite3.connect(tmp_path / "state.db")
    connection.execute("CREATE TABLE log (key TEXT, value BLOB)")
    sealed = Envelope(parse_keys(keys), Entropy(6)).seal(path, json.dumps(secret).encode())
    connection.execute("INSERT INTO log VALUES (?, ?)", (path, sealed))
    connection.commit()
    connection.close()
    (tmp_path / "audit").mkdir()
    (tmp_path / "audit" / "audit.log").write_text(f'{{"path": "/v3/{TOKEN}"}}\n')
    looking = Lookout()
    looking.directories[tmp_path] = "t"
    assert [line.rpartition("secret ")[2].partition(":")[0] for line in looking.leaks()] == ["(Secret default/one, field token)"]
