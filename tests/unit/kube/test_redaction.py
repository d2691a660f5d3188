"""Secrets are hidden in lines of hosts, and what explains a failure stays readable."""

from __future__ import annotations

import hashlib
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from remuda.kube.clock import Entropy
from remuda.kube.redaction import HIDDEN, _hidden, redacted

HARMLESS = [
    line
    for line in (Path(__file__).parent / "harmless_lines.txt").read_text(encoding="utf-8").splitlines()
    if line and not line.startswith("# ")
]
SECRET = Entropy(7).token_text(54)
CA, HEX = (hashlib.sha256(each).hexdigest() for each in (b"ca", b"password"))
JWT = "eyJhbGciOiJSUzI1NiJ9.eyJpc3MiOiJrdWJlcm5ldGVzIn0.c2lnbmF0dXJl"

# Lines of the same programs, with a secret in them that no administrator wants in a status or a support bundle.
SECRETS = [
    (f"K3S_TOKEN={SECRET} sh install.sh", SECRET),
    (f'level=info msg="To join: k3s server -s https://10.0.0.5:6443 -t K10{CA}::server:{HEX[:32]}"', HEX[:32]),
    (f'level=fatal msg="invalid token K10{CA}::node:pass-word.1"', "pass-word.1"),
    (f"[INFO]  env: K3S_AGENT_TOKEN={HEX[:40]}", HEX[:40]),
    (f"k3s server --agent-token={HEX[:32]} --cluster-init", HEX[:32]),
    (f'{{"token": "{HEX[:32]}", "server": "https://10.0.0.5:6443"}}', HEX[:32]),
    (f'msg="config {{\\"agent-token\\":\\"{HEX[:32]}\\"}}"', HEX[:32]),
    (f"token: {HEX[:32]}", HEX[:32]),
    ("etcd-s3-secret-key=wJalrXUtnFEMI/K7MDENG/bPxRfiCYEXAMPLEKEY", "wJalrXUtnFEMI/K7MDENG"),
    ("AWS_SECRET_ACCESS_KEY=wJalrXUtnFEMI/K7MDENG/bPxRfiCYEXAMPLEKEY", "wJalrXUtnFEMI/K7MDENG"),
    ("export REGISTRY_PASSWORD=correcthorse", "correcthorse"),
    (f'curl -H "Authorization: Bearer token-abcde:{SECRET}" https://10.0.0.2:8443/v3', SECRET),
    ("Authorization: Basic dXNlcjpwYXNz", "dXNlcjpwYXNz"),
    ("authorization: basic secretword", "secretword"),
    ("retrying with Bearer abc123def", "abc123def"),
    (f"GET https://10.0.0.2:8443/v3/import/{SECRET}_c-m-abcdefgh.yaml 200", SECRET),
    (f"user u-abcdefghij:{HEX[:40]} is not known", HEX[:40]),
    (f"kubeconfig-u-abcde12345.c-m-abcdefgh:{HEX[:40]}", HEX[:40]),
    (f"agent-u-abcde:{HEX[:40]}", HEX[:40]),
    (f"the API answered 401 for {JWT}", JWT),
    (f"stv-cluster-{SECRET}", SECRET),
    ("https://minio.example.com/b/o?X-Amz-Signature=abcdef&X-Amz-Date=20261118", "=abcdef&"),
    ("-----BEGIN EC PRIVATE KEY-----\\nMHcCAQEEIB\\n-----END EC PRIVATE KEY-----", "MHcCAQEEIB"),
]


def test_harmless_lines_stay_as_they_are() -> None:
    assert len(HARMLESS) > 300
    changed = [(line, redacted(line)) for line in HARMLESS if redacted(line) != line]
    assert changed == []


@pytest.mark.parametrize(("line", "secret"), SECRETS, ids=[line[:40] for line, _ in SECRETS])
def test_secrets_are_hidden_in_lines(line: str, secret: str) -> None:
    hidden = redacted(line)
    assert secret not in hidden and HIDDEN in hidden
    assert redacted(hidden) == hidden


@pytest.mark.parametrize("line", HARMLESS[::7])
def test_a_secret_after_a_harmless_line_is_hidden(line: str) -> None:
    assert redacted(f"{line} token-abcde:{SECRET}") == f"{line} token-abcde:{HIDDEN}"


_PARTS = ("/api/v1/pods", "?", "token", "=", ":", "%3a", "%", "eyJ", ".", "-----BEGIN PRIVATE KEY-----", "/v3/import/", "\n", "é")
_WORDS = (
    "/V3/IMPORT/",
    "Bearer ",
    "ba\u017fic ",
    "BASIC+",
    "R_SESS",
    "secret",
    " ",
    "a1",
    SECRET[:20],
    SECRET[20:40],
    "u-abcde12345",
)


@given(st.lists(st.sampled_from(_PARTS + _WORDS), max_size=8).map("".join))
def test_a_text_that_no_pattern_is_tried_on_is_one_that_none_would_change(text: str) -> None:
    assert redacted(text) == _hidden(text)
