"""Taking secrets out of text twice: by their form (:mod:`remuda.kube.redaction`), and by what the server's Secrets really hold.

The second finds what has no form: a chosen password, a key that a provider calls by a name of its own. Values are
known as words and as phrases, plain and encoded. A word is looked up, so it costs the same however many are known; phrases, which
have blanks in them, are few. Short ones are left alone: hiding every `admin` would hide everything else, too.
"""

from __future__ import annotations

import base64
import binascii
import json
import re
from collections.abc import Iterable, Iterator, Mapping
from typing import Any
from urllib.parse import quote

from remuda.kube.redaction import HIDDEN, redacted

__all__ = ["HIDDEN", "SHORTEST", "Scrubber"]

SHORTEST = 6
_LONGEST_PHRASE = 4096
_MOST_PHRASES = 10_000
_DEEPEST = 8
_WORD = re.compile(r"[^\s\"'`,;<>(){}\[\]\\]{6,}")
# What a word of a text may be put together from: `key=value`, `user:password@host`, `/path/value`.
_PART = re.compile(r"[^=:@/&?|#]+")
_USERINFO = re.compile(r"(?<=://)[^/\s@\"']+@")
_SECRET_NAME = re.compile(
    r"(?i)passw|passphrase|secret|token|api[-_]?key|access[-_]?key|private[-_]?key|credential|htpasswd|auth$"
)
_SAID = re.compile(
    r"(?i)\b([\w.-]*(?:password|passwd|passphrase|secret|token|api[-_]?key|access[-_]?key|private[-_]?key|credential)[\w.-]*)"
    r"(\\?[\"']?\s*[:=]\s*\\?[\"']?)([^\s\"',;\\]+)"
)
# As printed at a server's first start.
_FIRST = re.compile(r"(?i)(\bpassword(?: is)? )([^\s,;]{8,})(?= \(|$|,)")
_OPTION = re.compile(r"(?i)(--[\w-]*(?:token|password|secret|key))([= ])(?!-)([^\s\"']+)")
# What is said by such names without being secret: a file, a switch, a number.
_HARMLESS = re.compile(r"(?i)/|(true|false|none|null|\d{1,5})\]?$|\[hidden\]")
# The next word of a sentence, as in `failed to fetch anonymous token: Get "https://…"`. Passwords are words, too.
_NEXT_WORD, _MAY_BE_WORDS = re.compile(r"[A-Za-z]{1,20}"), re.compile(r"(?i)passw|passphrase")
# Of a Secret: where it belongs, and what is public.
_PUBLIC_KEYS = frozenset(("namespace", "ca.crt", "tls.crt", "ca", "cacerts", "server", "last-apply-time"))
_BEGIN, _END = re.compile(r"-----BEGIN [A-Z0-9 ]{0,30}PRIVATE KEY-----"), re.compile(r"-----END [A-Z0-9 ]{0,30}PRIVATE KEY-----")


class Scrubber:
    def __init__(self) -> None:
        self._words: set[str] = set()
        self._phrases: dict[str, None] = {}
        self._longest_first: list[str] | None = None
        # There were more phrases than are looked for.
        self.overflowed = False

    # --- what is known ------------------------------------------------------------------------------------------------------

    def learn(self, value: str) -> None:
        """A secret, as it is; or a file with secrets in it."""
        value = value.strip()
        if len(value) < SHORTEST or ("-----BEGIN CERTIFICATE-----" in value and "PRIVATE KEY" not in value):
            return
        self._words.update((value, *_encoded(value)))
        if value[:1] in "{[" and self._learn_json(value):
            return
        if "\n" in value:
            for line in value.splitlines():
                self._learn_line(line.strip().removeprefix("- "))
        elif not _is_word(value) and len(value) <= _LONGEST_PHRASE:
            if len(self._phrases) >= _MOST_PHRASES:
                self.overflowed = True
                return
            # Also as a log of JSON lines has it.
            self._phrases.update(dict.fromkeys((value, json.dumps(value)[1:-1], quote(value, safe=""))))
            self._longest_first = None

    def learn_data(self, data: Mapping[str, Any]) -> None:
        """The `data` of a Secret: base64 of anything."""
        for key, text in data.items():
            if key not in _PUBLIC_KEYS and isinstance(text, str) and len(text) >= SHORTEST:
                self._words.add(text)
                self._learn_decoded(text)

    def forget(self, names: Iterable[str]) -> None:
        """Words that are not secret and must stay readable: names of namespaces and clusters."""
        self._words.difference_update(names)

    def _learn_decoded(self, text: str) -> bool:
        try:
            self.learn(base64.b64decode(text, validate=True).decode())
        except (binascii.Error, ValueError):
            return False
        return True

    def _learn_line(self, line: str) -> None:
        """Learn secrets of a file: a key's lines, a kubeconfig's `token: …`. The text before the colon is not secret."""
        name, colon, rest = line.partition(": ")
        value = rest.strip("\"' ") if colon else line
        if colon and _SECRET_NAME.search(name):
            self.learn(value)
        # A word of a configuration may be any word of the language; a long one with digits or capitals is a key.
        elif len(value) >= 20 and _is_word(value) and re.search(r"\d|[a-z][A-Z]", value):
            self._words.update((value, *_encoded(value)))

    def _learn_json(self, text: str) -> bool:
        """True if it is a document: a password may begin like one."""
        try:
            self._learn_value("", json.loads(text), _DEEPEST)
        except (ValueError, RecursionError):
            return False
        return True

    def _learn_value(self, name: str, value: Any, depth: int) -> None:
        """Learn secrets of a document, such as a host's plan: values with a secret's name, and files in base64."""
        if isinstance(value, dict) and depth:
            for key, each in value.items():
                self._learn_value(str(key), each, depth - 1)
        elif isinstance(value, list) and depth:
            for each in value:
                self._learn_value(name, each, depth - 1)
        elif isinstance(value, str) and len(value) >= SHORTEST:
            if _SECRET_NAME.search(name) or "\n" in value:
                self.learn(value)
            elif "=" in value and _SECRET_NAME.search(value.partition("=")[0]):
                # Of an environment.
                self.learn(value.partition("=")[2])
            elif len(value) >= 16 and not self._learn_decoded(value):
                self._learn_line(value)

    # --- what is hidden -----------------------------------------------------------------------------------------------------

    def text(self, text: str) -> str:
        """The text without them."""
        for phrase in self._sorted_phrases():
            if phrase in text:
                text = text.replace(phrase, HIDDEN)
        if self._words:
            text = _WORD.sub(self._without_known, text)
        text = _USERINFO.sub(f"{HIDDEN}@", text)
        text = _OPTION.sub(_without_said, text)
        text = _FIRST.sub(rf"\1{HIDDEN}", text)
        return redacted(_SAID.sub(_without_said, text))

    def value(self, value: Any) -> Any:
        """The same for a document: every text in it, keys too."""
        if isinstance(value, str):
            return self.text(value)
        if isinstance(value, dict):
            return {self.text(str(key)): self.value(each) for key, each in value.items()}
        if isinstance(value, list | tuple):
            return [self.value(each) for each in value]
        return value

    def lines(self, lines: Iterable[str]) -> Iterator[str]:
        """The same for a log, in which a key may go over many lines."""
        inside = False
        for line in lines:
            if inside:
                inside = not _END.search(line)
                continue
            if (begin := _BEGIN.search(line)) is not None and not _END.search(line):
                inside = True
                line = f"{line[: begin.start()]}{HIDDEN}"
            yield self.text(line)

    def _sorted_phrases(self) -> list[str]:
        """One after the other they are found ten times as fast as by one pattern of them all."""
        if self._longest_first is None:
            self._longest_first = sorted(self._phrases, key=len, reverse=True)
        return self._longest_first

    def _without_known(self, found: re.Match[str]) -> str:
        word = found[0]
        if word in self._words or word.rstrip(".:!?=") in self._words:
            return HIDDEN
        return _PART.sub(lambda part: HIDDEN if part[0] in self._words else part[0], word)


def _is_word(text: str) -> bool:
    return _WORD.fullmatch(text) is not None and _PART.fullmatch(text) is not None


def _encoded(value: str) -> tuple[str, ...]:
    content = value.encode()
    found = (base64.b64encode(content).decode(), base64.urlsafe_b64encode(content).decode(), content.hex())
    return (*found, *(each.rstrip("=") for each in found[:2]))


def _without_said(found: re.Match[str]) -> str:
    return found[0] if _HARMLESS.match(found[3]) or _is_sentence(found) else f"{found[1]}{found[2]}{HIDDEN}"


def _is_sentence(found: re.Match[str]) -> bool:
    """The colon ends a part of a sentence, which goes on after the next word."""
    if not found[2].endswith(": ") or _MAY_BE_WORDS.search(found[1]) or not _NEXT_WORD.fullmatch(found[3]):
        return False
    return found.string[found.end() : found.end() + 1] == " "
