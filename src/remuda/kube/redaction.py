"""Removal of secrets from text that will be stored: paths, queries, agents' names, reasons.

By position (an import's address, a query's `token`), and by form anywhere: our tokens, registration tokens, K3s' join tokens,
JSON web tokens, the value after Bearer or Basic. It rather hides too much, but a pattern says where its secret begins and ends:
lines of hosts explain failures, so image tags and ordinary words must stay (`tests/unit/kube/harmless_lines.txt`). Callers
choose the text, so every pattern takes time in proportion to its length. The audit log
(:mod:`remuda.gateway.server.audit_log`) passes everything through here.
"""

from __future__ import annotations

import re
from urllib.parse import unquote

HIDDEN = "[hidden]"

# Kubernetes' alphabet without vowels and look-alikes, of which all our random secrets are made.
_ALPHABET = "bcdfghjklmnpqrstvwxz2456789"
_IMPORT = re.compile(r"(/v3/import/)([^/?#\s]*)", re.IGNORECASE)
_IMPORT_END = re.compile(r"_(c-[a-z0-9-]{1,20}|local)\.yaml")
_QUERY = re.compile(r"([?&;])([^=?&;#\s]*)=([^&;#\s]+)")
_SECRET_NAMES = re.compile(r"token|secret|passw|pwd|key|auth|bearer|code|credential|sig|session|jwt", re.IGNORECASE)
_SCHEME = re.compile(r"(authorization\W{1,4})?\b(bearer|basic)(\s+|%20|\+)([^\s,;]+)", re.IGNORECASE)
# After Bearer or Basic in a sentence, or in the name of a unit of systemd.
_WORD = re.compile(r"[\"'(]?(?:[A-Za-z]?[a-z]{0,20}|[A-Z]{1,20})[.:!?)\"']{0,3}")
_COOKIE = re.compile(r"\b(R_SESS|CSRF)=[^;\s]+")
_DOTTED = re.compile(r"(?<![A-Za-z0-9_-])[A-Za-z0-9_-]+(?:\.[A-Za-z0-9_-]*)+")
# Names of tokens may be shown, the part after the colon may not (the colon may be encoded, once or twice).
_NAMED = re.compile(r"(?<![A-Za-z0-9.-])([A-Za-z0-9.-]+)(?::|%3a|%253a)([^\s,;&\"']+)", re.IGNORECASE)
_TOKEN_NAMES = re.compile(r"token-[a-z0-9]{5,}|(?:kubeconfig|agent)-u(?:ser)?-[a-z0-9.-]+|u-[a-z0-9]{10}", re.IGNORECASE)
# K3s' and RKE2's join tokens: the hash of the CA may be shown, the password may not.
_JOIN = re.compile(r"(\bK10[0-9a-f]{64}::)[^\s,;\"']+")
# A variable, an argument or a member of JSON whose name ends so; a path is none of them.
_ASSIGNED = re.compile(
    r"((?:token|passw(?:or)?d|secret[_-]?(?:access[_-]?)?key|access[_-]?key)(?:=|\\?\"\s?:\s?|:\s)[\\\"']{0,2})(?![/$\[<{])([^\s,;&\"'\\]{6,})",
    re.IGNORECASE,
)
_RANDOM_LENGTH = 40
_RANDOM = re.compile(rf"[{_ALPHABET}]{{{_RANDOM_LENGTH},}}")
_PRIVATE_KEY = re.compile(
    r"-----BEGIN [A-Z0-9 ]{0,30}PRIVATE KEY-----.*?(?:-----END [A-Z0-9 ]{0,30}PRIVATE KEY-----|\Z)", re.DOTALL
)


def redacted(text: str) -> str:
    """The text with everything hidden that looks like a secret."""
    return text if _is_harmless(text) else _hidden(text)


def _is_harmless(text: str) -> bool:
    """True if no pattern below can match: the path of an ordinary request, which is redacted for each of them.

    Each pattern but the last needs one of these. Only ASCII: other letters may equal ours when case is ignored.
    """
    if not text.isascii() or "=" in text or ":" in text or "%" in text or "eyJ" in text or "-----BEGIN" in text:
        return False
    lower = text.lower()
    if "/import/" in lower or "bearer" in lower or "basic" in lower:
        return False
    return len(text) < _RANDOM_LENGTH or _RANDOM.search(text) is None


def _hidden(text: str) -> str:
    text = _PRIVATE_KEY.sub(HIDDEN, text)
    text = _IMPORT.sub(_without_import, text)
    text = _QUERY.sub(_without_value, text)
    text = _SCHEME.sub(_without_credential, text)
    text = _COOKIE.sub(rf"\1={HIDDEN}", text)
    text = _DOTTED.sub(_without_jwt, text)
    text = _JOIN.sub(rf"\1{HIDDEN}", text)
    text = _ASSIGNED.sub(_without_assigned, text)
    text = _NAMED.sub(_without_token, text)
    return _RANDOM.sub(HIDDEN, text)


def _without_import(found: re.Match[str]) -> str:
    """The match with its token hidden; the ending that names the cluster may stay."""
    ending = _IMPORT_END.search(found[2])
    return found[1] + HIDDEN + (ending[0] if ending else "") if found[2] else found[0]


def _without_value(found: re.Match[str]) -> str:
    # Twice, since some servers decode twice.
    name = unquote(unquote(found[2]))
    return f"{found[1]}{found[2]}={HIDDEN}" if _SECRET_NAMES.search(name) else found[0]


def _without_credential(found: re.Match[str]) -> str:
    if not found[1] and _WORD.fullmatch(found[4]):
        return found[0]
    return f"{found[1] or ''}{found[2]} {HIDDEN}"


def _without_assigned(found: re.Match[str]) -> str:
    # `token: waiting` is a sentence; a secret has digits, or is no word of one case.
    return found[0] if _WORD.fullmatch(found[2]) and not found[1].endswith("=") else f"{found[1]}{HIDDEN}"


def _without_jwt(found: re.Match[str]) -> str:
    # `{"` in base64.
    return HIDDEN if "eyJ" in found[0] else found[0]


def _without_token(found: re.Match[str]) -> str:
    return f"{found[1]}:{HIDDEN}" if _TOKEN_NAMES.fullmatch(found[1]) else found[0]
