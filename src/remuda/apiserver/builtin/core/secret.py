"""Secrets: their types and the keys each type needs, `stringData`, and immutability."""

from __future__ import annotations

import base64
import binascii
import json

from cryptography import x509
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat, load_pem_private_key

from remuda.kube.errors import forbidden_field, invalid_value, required, too_long

from ...registry import object_meta
from ...registry.strategy import AGE, NAME, Strategy, at, column, length
from .. import checks
from ..checks import Errors, Obj, sub

MAX_SIZE = 1024 * 1024
_LOCKED = "field is immutable when `immutable` is set"
_ACCOUNT = "kubernetes.io/service-account.name"


def _default(obj: Obj) -> None:
    texts = obj.pop("stringData", None)
    if texts:
        data = dict(obj.get("data") or {})
        for key, text in texts.items():
            data[key] = base64.b64encode(text.encode()).decode()
        obj["data"] = data
    if not obj.get("type"):
        obj["type"] = "Opaque"


def decoded_size(value: str | None) -> int:
    """The decoded size of a base64 text, in bytes."""
    text = value or ""
    return len(text) // 4 * 3 - (text.count("=", -2) if text else 0)


def _bytes(value: str | None) -> bytes:
    try:
        return base64.b64decode(value or "")
    except (binascii.Error, ValueError):
        return b""


def _validate(obj: Obj) -> Errors:
    errors = checks.meta_errors(obj, True, object_meta.subdomain_name)
    data = obj.get("data") or {}
    total = 0
    for key, value in data.items():
        errors += checks.config_key(key, f"data[{key}]")
        total += decoded_size(value)
    if total > MAX_SIZE:
        errors.append(too_long("data", MAX_SIZE))
    return errors + _type_errors(obj, data)


def _type_errors(obj: Obj, data: Obj) -> Errors:
    match obj.get("type"):
        case "kubernetes.io/service-account-token":
            if not (sub(obj, "metadata").get("annotations") or {}).get(_ACCOUNT):
                return [required(f"metadata.annotations[{_ACCOUNT}]")]
        case "kubernetes.io/dockercfg":
            return _json_errors(data, ".dockercfg")
        case "kubernetes.io/dockerconfigjson":
            return _json_errors(data, ".dockerconfigjson")
        case "kubernetes.io/basic-auth":
            if "username" not in data and "password" not in data:
                return [required("data[username]"), required("data[password]")]
        case "kubernetes.io/ssh-auth":
            if not data.get("ssh-privatekey"):
                return [required("data[ssh-privatekey]")]
        case "kubernetes.io/tls":
            return [required(f"data[{key}]") for key in ("tls.crt", "tls.key") if key not in data]
    return []


def _json_errors(data: Obj, key: str) -> Errors:
    if key not in data:
        return [required(f"data[{key}]")]
    why = go_json_problem(_bytes(data[key]))
    return [invalid_value(f"data[{key}]", "<secret contents redacted>", why)] if why else []


def go_json_problem(raw: bytes) -> str:
    """Go's error when `raw` is not a JSON object, else ""."""
    text = raw.decode("utf-8", "replace")
    try:
        value = json.loads(text)
    except json.JSONDecodeError as error:
        if not text.strip() or error.pos >= len(text):
            return "unexpected end of JSON input"
        return _go_syntax_problem(text, error.pos)
    except RecursionError:
        return "exceeded max depth"
    if value is None or isinstance(value, dict):
        return ""
    kind = {bool: "bool", int: "number", float: "number", str: "string", list: "array"}[type(value)]
    return f"json: cannot unmarshal {kind} into Go value of type map[string]interface {{}}"


def _go_syntax_problem(text: str, position: int) -> str:
    for literal in ("true", "false", "null"):
        if text[position] != literal[0]:
            continue
        for offset in range(1, len(literal)):
            found = text[position + offset : position + offset + 1]
            if not found:
                return "unexpected end of JSON input"
            if found != literal[offset]:
                return f"invalid character {_go_char(found)} in literal {literal} (expecting '{literal[offset]}')"
    return f"invalid character {_go_char(text[position])} looking for beginning of value"


def _go_char(char: str) -> str:
    return {"'": "'\\''", '"': "'\"'"}.get(char, f"'{char}'")


def _prepare_for_update(obj: Obj, old: Obj) -> None:
    if not obj.get("type"):
        obj["type"] = old.get("type") or "Opaque"


def _validate_update(obj: Obj, old: Obj) -> Errors:
    errors = checks.meta_update_errors(obj, old)
    errors += checks.immutable(obj.get("type"), old.get("type"), "type")
    if old.get("immutable"):
        if not obj.get("immutable"):
            errors.append(forbidden_field("immutable", _LOCKED))
        if (obj.get("data") or {}) != (old.get("data") or {}):
            errors.append(forbidden_field("data", _LOCKED))
    return errors + _validate(obj)


def _warnings(obj: Obj, old: Obj | None) -> list[str]:
    if obj.get("type") != "kubernetes.io/tls":
        return []
    data = obj.get("data") or {}
    problem = _key_pair_problem(_bytes(data.get("tls.crt")), _bytes(data.get("tls.key")))
    return [problem] if problem else []


def _key_pair_problem(certificate: bytes, key: bytes) -> str:
    """The error of Go's tls package for an invalid key pair."""
    if b"-----BEGIN" not in certificate:
        return "tls: failed to find any PEM data in certificate input"
    if b"-----BEGIN CERTIFICATE-----" not in certificate:
        return (
            "tls: failed to find certificate PEM data in certificate input, but did find a private key; PEM inputs may have "
            "been switched"
        )
    if b"-----BEGIN" not in key:
        return "tls: failed to find any PEM data in key input"
    try:
        parsed = x509.load_pem_x509_certificate(certificate)
    except ValueError:
        return "x509: malformed certificate"
    try:
        private = load_pem_private_key(key, None)
    except (ValueError, TypeError):
        return "tls: failed to parse private key"
    form = (Encoding.DER, PublicFormat.SubjectPublicKeyInfo)
    if private.public_key().public_bytes(*form) != parsed.public_key().public_bytes(*form):
        return "tls: private key does not match public key"
    return ""


STRATEGY = Strategy(
    default=_default,
    validate=_validate,
    prepare_for_update=_prepare_for_update,
    validate_update=_validate_update,
    warnings=_warnings,
    name_problems=object_meta.subdomain_name,
    fields=lambda obj: {"type": obj.get("type") or ""},
    field_names=frozenset(("type",)),
    columns=(
        NAME,
        column("Type", at("type"), "The type of the secret."),
        column("Data", length("data"), "The number of keys of the secret."),
        AGE,
    ),
)
