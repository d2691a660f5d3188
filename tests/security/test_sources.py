"""What the sources may not do anywhere, found by reading them: a new place has to be looked at by somebody, and listed here."""

from __future__ import annotations

import ast
import re
from collections import Counter
from functools import cache
from pathlib import Path

import remuda

HOME = Path(remuda.__file__).parent
SECRET = re.compile(r"(token|secret|password|passwd|passphrase|bearer|csrf|cookie|signature|proof|hmac|mac|credential)s?$", re.I)
# Where it may be worth to parse a file at all: all of them would take ten times as long.
NAMED = re.compile(r"token|secret|passw|passphrase|bearer|csrf|cookie|signature|proof|mac\b|credential", re.I)
UNSAFE = re.compile(
    r"SSLContext|CERT_NONE|shell=|extractall|unpack_archive|\b(?:eval|exec|system|popen|mktemp)\(|pickle|marshal|yaml\.\w*load|_shell\("
)
# Compared with == though they are called so: by the digest of what was shown, or nothing that anybody outside can try.
COMPARED = {
    # Digests, of what was shown and of what is kept.
    "gateway/registration/registration_tokens.py: digest(token) == wanted",
    "provisioning/nodes/host_registration.py: _shown_by(token) != [digest(text)]",
    # What this server wrote, with what it is about to write.
    "access/clusters/clusterregistrationtoken.py: issued.token != found.token",
    "apiserver/keys/encryption.py: keys.setdefault(name, secret) != secret",
    "lab/sim/distribution.py: member.config.get('token') != self._tokens[1]",
    "lab/sim/distribution.py: tokens != self._tokens",
    # What this server keeps, with what else it keeps.
    "lab/distro/server_identity.py: own.agent_password == own.password",
    "lab/distro/cluster/encryption_keys.py: password != before",
    "lab/distro/cluster/encryption_keys.py: state.agent_password == before",
    # Names and marks, which are public.
    "apiserver/server.py: prefix == secrets",
    "machines/drivers/amazonec2/key_pairs.py: client.read(pair).get(client.TOKEN) == machine.token",
    "machines/drivers/container/driver.py: seen.labels.get(_TOKEN) == machine.token",
    "cli/remote/orphans.py: namespace == global_credentials",
    "provisioning/etcd/s3/bucket.py: page.continuation == query.get('continuation-token')",
}
# Where nobody's certificate is looked at, and why that is right.
UNVERIFIED = {
    "agent/http_client.py": "a plan's probe, a registry's configuration or a kubeconfig says so",
    "lab/distro/supervisor_client.py": "the CA is fetched, and believed by the hash in the token",
    "tunnel/client.py": "the CA is fetched, and believed by its checksum",
    "client/tls.py": "a kubeconfig says insecure-skip-tls-verify",
    "hosts/curl.py": "the user says --insecure",
    "provisioning/etcd/s3/bucket.py": "the cluster's S3 place says skipSSLVerify",
}
# Who makes a context for listening; tests/security/test_tls.py tries each.
LISTENERS = {"apiserver/http/listener.py", "gateway/server/serving_certificate.py", "runtime/webhook_server.py"}
UNSAFE_CALLS = {
    "eval",
    "exec",
    "os.system",
    "os.popen",
    "pickle.load",
    "pickle.loads",
    "marshal.loads",
    "yaml.load",
    "yaml.unsafe_load",
    "yaml.full_load",
    "asyncio.create_subprocess_shell",
    "tempfile.mktemp",
}


@cache
def _read() -> tuple[dict[str, str], dict[type[ast.AST], list[tuple[str, ast.AST]]]]:
    """All texts, and of all of them the nodes that are looked at, in one walk."""
    texts, nodes = {}, {kind: [] for kind in (ast.Compare, ast.Call, ast.Attribute)}  # type: ignore[var-annotated]
    for path in sorted(HOME.rglob("*.py")):
        name = str(path.relative_to(HOME))
        texts[name] = path.read_text()
        compared = any(NAMED.search(line) for line in texts[name].splitlines() if "==" in line or "!=" in line)
        if not compared and not UNSAFE.search(texts[name]):
            continue
        for node in ast.walk(ast.parse(texts[name])):
            if type(node) in nodes:
                nodes[type(node)].append((name, node))
    return texts, nodes


def _nodes(kind: type[ast.AST]) -> list[tuple[str, ast.AST]]:
    return _read()[1][kind]


def _called(node: ast.expr) -> str:
    """What a side of a comparison is called: its last word."""
    match node:
        case ast.Name(id=name) | ast.Attribute(attr=name):
            return name
        case ast.Call(func=ast.Attribute(attr="get"), args=[ast.Constant(value=str(name)), *_]):
            return name
        case ast.Call(func=ast.Attribute(value=inner, attr="encode" | "decode" | "strip" | "lower")):
            return _called(inner)
        case ast.Call(func=ast.Attribute() as function, args=[]):
            return _called(function)
        case ast.Call(func=ast.Name(id="str" | "bytes" | "digest" | "shown" | "_digest_of" | "_shown_by"), args=[first, *_]):
            return _called(first)
        case ast.Subscript(slice=ast.Constant(value=str(name))):
            return name
        case ast.Subscript(value=inner):
            return _called(inner)
    return ""


def _fixed(node: ast.expr) -> bool:
    """A word of the program itself, which is nobody's secret."""
    match node:
        case ast.Constant():
            return True
        case ast.Name(id=name) | ast.Attribute(attr=name):
            return name.isupper()
        case ast.Tuple(elts=parts) | ast.Set(elts=parts) | ast.List(elts=parts):
            return all(_fixed(part) for part in parts)
    return False


def _is_count(node: ast.expr) -> bool:
    return isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in ("len", "bool", "type", "name_of")


def test_secrets_are_compared_in_constant_time_or_by_their_hash() -> None:
    found = set()
    for name, node in _nodes(ast.Compare):
        assert isinstance(node, ast.Compare)
        sides = [node.left, *node.comparators]
        if not any(isinstance(operator, ast.Eq | ast.NotEq) for operator in node.ops) or any(map(_fixed, sides)):
            continue
        if any(map(_is_count, sides)) or not any(SECRET.search(_called(side)) for side in sides):
            continue
        found.add(f"{name}: {ast.unparse(node)}")
    assert found - COMPARED == set(), "compare with hmac.compare_digest, or say in COMPARED why not"
    assert found >= COMPARED, "what is not there any more need not be listed"


def test_every_place_without_tls_verification_is_listed() -> None:
    found = {name for name, node in _nodes(ast.Attribute) if isinstance(node, ast.Attribute) and node.attr == "CERT_NONE"}
    assert found == UNVERIFIED.keys()


def test_every_context_is_made_for_tls_1_2_and_newer() -> None:
    """Also by the words that would allow older ones."""
    made = Counter(name for name, node in _nodes(ast.Call) if ast.unparse(node.func) == "ssl.SSLContext")  # type: ignore[attr-defined]
    for name, text in _read()[0].items():
        assert made[name] <= text.count("minimum_version = ssl.TLSVersion.TLSv1_"), name
        assert not re.search(r"TLSVersion\.(TLSv1(_1)?\b|SSL|MINIMUM)|PROTOCOL_(TLSv1|SSL)|OP_LEGACY|SECLEVEL=[01]", text), name
    # One place makes those that listen, for all who do.
    assert {name for name, text in _read()[0].items() if "PROTOCOL_TLS_SERVER" in text} == {"kube/network/tls.py"}
    assert {name for name, text in _read()[0].items() if "tls.server_context()" in text} == LISTENERS


def test_nothing_that_others_send_is_run() -> None:
    for name, node in _nodes(ast.Call):
        assert isinstance(node, ast.Call)
        called = ast.unparse(node.func)
        assert called not in UNSAFE_CALLS, f"{name}: {called}"
        assert not any(word.arg == "shell" and not _is_false(word.value) for word in node.keywords), name
        # Archives are read member by member, by what decides where each may go.
        assert not called.endswith((".extractall", ".unpack_archive")), f"{name}: {called}"


def _is_false(node: ast.expr) -> bool:
    return isinstance(node, ast.Constant) and node.value is False
