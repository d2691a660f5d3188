"""The YAML edge, with Kubernetes' reading of YAML: 1.1 booleans, but no dates, no base-60 numbers, no duplicate keys."""

from __future__ import annotations

import re
from collections.abc import Hashable, Iterator
from typing import Any

import yaml

try:
    from yaml import CSafeDumper as _BaseDumper
    from yaml import CSafeLoader as _BaseLoader
except ImportError:  # PyYAML built without libyaml
    from yaml import SafeDumper as _BaseDumper  # type: ignore[assignment]
    from yaml import SafeLoader as _BaseLoader  # type: ignore[assignment]


# A document deeper than this is refused, as in JSON; and so is one that aliases blow up to more values than this.
MAX_DEPTH = 256
MAX_ALIASED = 400_000


class YamlError(ValueError):
    """Text that is not YAML, or is YAML that has no place in an API object."""


class DuplicateKey(YamlError):
    def __init__(self, key: str, line: int) -> None:
        super().__init__(f"yaml: unmarshal errors:\n  {_repeated(key, line)}")
        self.key = key


def _repeated(key: str, line: int) -> str:
    return f'line {line}: key "{key}" already set in map'


class _Loader(_BaseLoader):
    """SafeLoader whose scalars resolve as Kubernetes' do, and which refuses duplicate keys (or notes them in `repeated`)."""

    repeated: list[str] | None = None
    depth = 0

    def descend_resolver(self, current_node: Any, current_index: Any) -> None:
        """Called for each node on the way down. libyaml's reader recurses in C: unchecked, nesting ends in a crash."""
        self.depth += 1
        if self.depth > MAX_DEPTH:
            raise YamlError("yaml: exceeded max depth")

    def ascend_resolver(self) -> None:
        self.depth -= 1

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Hashable, Any]:
        seen: set[str] = set()
        for key_node, _ in node.value:
            if key_node.tag == "tag:yaml.org,2002:merge":
                continue
            key = getattr(key_node, "value", None)
            if not isinstance(key, str):
                raise YamlError(f"line {node.start_mark.line + 1}: mapping keys must be scalars")
            if key in seen:
                if self.repeated is None:
                    raise DuplicateKey(key, key_node.start_mark.line + 1)
                self.repeated.append(_repeated(key, key_node.start_mark.line + 1))
            seen.add(key)
        self.flatten_mapping(node)
        # Not by way of a dict with the keys themselves, where 1 and true would be the same.
        return {
            _key_text(self.construct_object(key_node, deep=True)): self.construct_object(value_node, deep=deep)
            for key_node, value_node in node.value
        }


def _key_text(key: Hashable) -> str:
    if isinstance(key, bool):
        return "true" if key else "false"
    if key is None:
        raise YamlError("yaml: a mapping key must not be null")
    return key if isinstance(key, str) else str(key)


def _scalar_resolvers() -> dict[str, list[tuple[str, re.Pattern[str]]]]:
    integer = re.compile(r"^(?:[-+]?0b[0-1_]+|[-+]?0o?[0-7_]+|[-+]?(?:0|[1-9][0-9_]*)|[-+]?0x[0-9a-fA-F_]+)$")
    decimal = re.compile(
        r"^(?:[-+]?(?:[0-9][0-9_]*)\.[0-9_]*(?:[eE][-+]?[0-9]+)?|[-+]?[0-9][0-9_]*[eE][-+]?[0-9]+"
        r"|\.[0-9][0-9_]*(?:[eE][-+]?[0-9]+)?)$"
    )
    kept: dict[str, list[tuple[str, re.Pattern[str]]]] = {}
    for first, resolvers in yaml.SafeLoader.yaml_implicit_resolvers.items():
        for tag, pattern in resolvers:
            name = tag.rsplit(":", 1)[1]
            if name == "timestamp":
                continue
            chosen = {"int": integer, "float": decimal}.get(name, pattern)
            kept.setdefault(first, []).append((tag, chosen))
    return kept


_Loader.yaml_implicit_resolvers = _scalar_resolvers()


def _construct_int(loader: _Loader, node: yaml.ScalarNode) -> int:
    text = str(loader.construct_scalar(node)).replace("_", "")
    sign = -1 if text.startswith("-") else 1
    digits = text.lstrip("+-")
    if digits.startswith("0x"):
        return sign * int(digits[2:], 16)
    if digits.startswith("0b"):
        return sign * int(digits[2:], 2)
    if digits.startswith("0o"):
        return sign * int(digits[2:], 8)
    if len(digits) > 1 and digits.startswith("0"):
        return sign * int(digits, 8)
    return sign * int(digits)


_Loader.add_constructor("tag:yaml.org,2002:int", _construct_int)


# The last three are what PyYAML fails with at a value that is not what its tag says: `!!timestamp x`, `!!bool x`.
_UNREADABLE = (yaml.YAMLError, ValueError, RecursionError, AttributeError, LookupError, TypeError)


def loads_all(text: str | bytes) -> Iterator[Any]:
    """Each document of a stream; empty documents are skipped, as kubectl does."""
    try:
        for document in yaml.load_all(text, Loader=_Loader):
            if document is not None:
                if _has_aliases(text):
                    _check_aliases(document)
                yield document
    except _UNREADABLE as error:
        raise _explained(error) from None


def _check_aliases(value: Any) -> None:
    """Raises for a value that contains itself, or that is small and flat only because its parts are shared many times over."""
    measured: dict[int, tuple[int, int] | None] = {}

    def measure(each: Any) -> tuple[int, int]:
        """How many values there are in it, and how deep."""
        if not isinstance(each, dict | list):
            return 1, 0
        if id(each) in measured:
            known = measured[id(each)]
            if known is None:
                raise YamlError("yaml: an anchor's value contains itself")
            return known
        measured[id(each)] = None
        parts = [measure(part) for part in (each.values() if isinstance(each, dict) else each)]
        size, depth = 1 + sum(part[0] for part in parts), 1 + max((part[1] for part in parts), default=0)
        if size > MAX_ALIASED:
            raise YamlError("yaml: document contains excessive aliasing")
        if depth > MAX_DEPTH:
            raise YamlError("yaml: exceeded max depth")
        measured[id(each)] = size, depth
        return size, depth

    measure(value)


def _has_aliases(text: str | bytes) -> bool:
    return ("*" in text) if isinstance(text, str) else (b"*" in text)


def _explained(error: Exception) -> YamlError:
    """The error in the words of Go's YAML reader, which is what users of Kubernetes know."""
    if isinstance(error, YamlError):
        return error
    if isinstance(error, yaml.MarkedYAMLError):
        line = _line_of(error)
        where = f"line {line}: " if line else ""
        return YamlError(f"yaml: {where}{error.problem or 'unknown problem parsing YAML content'}")
    if isinstance(error, UnicodeDecodeError | yaml.reader.ReaderError):
        return YamlError("yaml: invalid leading UTF-8 octet")
    if isinstance(error, AttributeError | LookupError | TypeError):
        return YamlError("yaml: a value is not what its tag says")
    return YamlError("yaml: exceeded max depth" if isinstance(error, RecursionError) else f"yaml: {error}")


def _line_of(error: yaml.MarkedYAMLError) -> int:
    """Go counts lines from 0, except for what its scanner finds; a first line is not named at all."""
    if error.problem_mark is not None and error.problem_mark.line:
        return int(error.problem_mark.line) + isinstance(error, yaml.scanner.ScannerError)
    return int(error.context_mark.line) if error.context_mark is not None else 0


def loads(text: str | bytes) -> Any:
    """The first document, or None when there is none."""
    return next(loads_all(text), None)


def loads_reporting_duplicates(text: str | bytes) -> tuple[Any, list[str]]:
    """The first document with the last value of each key, and a line about every key that came again."""
    try:
        loader = _Loader(text)
        loader.repeated = []
        try:
            found = loader.get_data()
            if _has_aliases(text):
                _check_aliases(found)
            return found, loader.repeated
        finally:
            loader.dispose()
    except _UNREADABLE as error:
        raise _explained(error) from None


class _Dumper(_BaseDumper):
    def ignore_aliases(self, data: Any) -> bool:
        return True


_SHORT_BOOLEANS = frozenset(("y", "Y", "n", "N"))
_GO_NUMBER = re.compile(r"[-+]?(?:\.[0-9]+|[0-9]+(?:\.[0-9]*)?)(?:[eE][-+]?[0-9]+)?|0o[0-7]+")


def _would_be_read_otherwise(dumper: _Dumper, value: str) -> bool:
    """Text that is a number, a time, a truth value or nothing when it stands there without quotes; Go doubles them."""
    if value in _SHORT_BOOLEANS or _GO_NUMBER.fullmatch(value):
        return True
    found = dumper.resolve(yaml.ScalarNode, value, (True, False))  # type: ignore[no-untyped-call]
    return bool(found != "tag:yaml.org,2002:str")


def _represent_text(dumper: _Dumper, value: str) -> yaml.ScalarNode:
    style = "|" if "\n" in value else '"' if _would_be_read_otherwise(dumper, value) else None
    return dumper.represent_scalar("tag:yaml.org,2002:str", value, style=style)


_Dumper.add_representer(str, _represent_text)


def dumps(value: Any) -> str:
    return str(yaml.dump(value, Dumper=_Dumper, sort_keys=True, default_flow_style=False, allow_unicode=True, width=10**9))
