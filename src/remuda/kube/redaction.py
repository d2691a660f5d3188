"""Removal of secrets from text that will be stored: paths, queries, agents' names, reasons.

By position (an import's address, a query's `token`), and by form anywhere: our tokens, registration tokens, JSON web
tokens, the value after Bearer or Basic. It rather hides too much. Callers choose the text, so every pattern takes
time in proportion to its length. The audit log (:mod:`remuda.gateway.server.audit_log`) passes everything through here.
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
_SCHEME = re.compile(r"\b(bearer|basic)(\s+|%20|\+)[^\s,;]+", re.IGNORECASE)
_COOKIE = re.compile(r"\b(R_SESS|CSRF)=[^;\s]+")
_DOTTED = re.compile(r"(?<![A-Za-z0-9_-])[A-Za-z0-9_-]+(?:\.[A-Za-z0-9_-]*)+")
# Names of tokens may be shown, the part after the colon may not (the colon may be encoded, once or twice).
_NAMED = re.compile(r"(?<![A-Za-z0-9.-])([A-Za-z0-9.-]+)(?::|%3a|%253a)([^\s,;&\"']+)", re.IGNORECASE)
_TOKEN_NAMES = re.compile(r"token-|kubeconfig-|agent-|u-", re.IGNORECASE)
_RANDOM = re.compile(rf"[{_ALPHABET}]{{40,}}")
_PRIVATE_KEY = re.compile(
    r"-----BEGIN [A-Z0-9 ]{0,30}PRIVATE KEY-----.*?(?:-----END [A-Z0-9 ]{0,30}PRIVATE KEY-----|\Z)", re.DOTALL
)


def redacted(text: str) -> str:
    """The text with everything hidden that looks like a secret."""
    text = _PRIVATE_KEY.sub(HIDDEN, text)
    text = _IMPORT.sub(_without_import, text)
    text = _QUERY.sub(_without_value, text)
    text = _SCHEME.sub(rf"\1 {HIDDEN}", text)
    text = _COOKIE.sub(rf"\1={HIDDEN}", text)
    text = _DOTTED.sub(_without_jwt, text)
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


def _without_jwt(found: re.Match[str]) -> str:
    # `{"` in base64.
    return HIDDEN if "eyJ" in found[0] else found[0]


def _without_token(found: re.Match[str]) -> str:
    return f"{found[1]}:{HIDDEN}" if _TOKEN_NAMES.search(found[1]) else found[0]
