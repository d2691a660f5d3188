"""Command lines and lists in unit files: quotes, escapes, specifiers and variables (systemd.syntax(7)). Pure."""

from __future__ import annotations

import re
from collections.abc import Mapping

_ESCAPES = {"a": "\a", "b": "\b", "f": "\f", "n": "\n", "r": "\r", "t": "\t", "v": "\v", "s": " ", "\\": "\\", '"': '"', "'": "'"}
_BRACED = re.compile(r"\$\$|\$\{([A-Za-z_][A-Za-z0-9_]*)\}")
_WHOLE = re.compile(r"\$([A-Za-z_][A-Za-z0-9_]*)")
_SPECIFIER = re.compile(r"%(.)", re.DOTALL)


class WordError(ValueError):
    """A text whose quotes don't end."""


def split(text: str) -> list[str]:
    """The words of a text; a word may be in quotes, as a whole or in part."""
    found: list[str] = []
    word: list[str] | None = None
    quote = ""
    position = 0
    while position < len(text):
        letter = text[position]
        position += 1
        if letter == "\\" and position < len(text):
            word = word or []
            escaped, position = _escaped(text, position)
            word.append(escaped)
        elif quote:
            if letter == quote:
                quote = ""
            else:
                word = word or []
                word.append(letter)
        elif letter in "\"'":
            quote, word = letter, word if word is not None else []
        elif letter.isspace():
            if word is not None:
                found.append("".join(word))
            word = None
        else:
            word = word or []
            word.append(letter)
    if quote:
        raise WordError(f"a quotation mark is never closed: {text}")
    return found if word is None else [*found, "".join(word)]


def _escaped(text: str, position: int) -> tuple[str, int]:
    letter = text[position]
    if letter == "x" and re.fullmatch("[0-9a-fA-F]{2}", text[position + 1 : position + 3]):
        return chr(int(text[position + 1 : position + 3], 16)), position + 3
    # What is no escape stays as it is written, for the sake of regular expressions.
    return _ESCAPES.get(letter, "\\" + letter), position + 1


def specified(text: str, specifiers: Mapping[str, str]) -> str:
    """The text with its specifiers (`%n`) filled in; one that nobody knows stays."""
    return _SPECIFIER.sub(lambda found: "%" if found[1] == "%" else specifiers.get(found[1], found[0]), text)


def expanded(words: list[str], variables: Mapping[str, str]) -> list[str]:
    """The words with their variables: `${A}` anywhere is one word, a word `$A` becomes as many as its value has."""
    found: list[str] = []
    for word in words:
        whole = _WHOLE.fullmatch(word)
        if whole is not None:
            found.extend(split(variables.get(whole[1], "")))
        else:
            found.append(_BRACED.sub(lambda match: variables.get(match[1], "") if match[1] else "$", word))
    return found
