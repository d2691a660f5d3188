"""The YAML edge, with Kubernetes' reading of YAML: 1.1 booleans, but no dates, no base-60 numbers, no duplicate keys."""

from __future__ import annotations

import math
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


# A document deeper than this is refused, as in JSON; and so is one that aliases expand to more values, or more text, than this.
MAX_DEPTH = 256
MAX_ALIASED = 400_000
MAX_ALIASED_TEXT = 8 * 1024 * 1024
# Each value costs some microseconds, here and in later code.
MAX_VALUES = 300_000
_MERGE = "tag:yaml.org,2002:merge"


class YamlError(ValueError):
    """Text that is not YAML, or YAML that is not allowed in an API object."""


class DuplicateKey(YamlError):
    def __init__(self, key: str, line: int) -> None:
        super().__init__(f"yaml: unmarshal errors:\n  {_repeated(key, line)}")
        self.key = key


def _repeated(key: str, line: int) -> str:
    return f'line {line}: key "{key}" already set in map'


class _Loader(_BaseLoader):
    """SafeLoader whose scalars resolve as Kubernetes' do, and which refuses duplicate keys (or records them in `repeated`)."""

    repeated: list[str] | None = None
    depth = 0
    merged = 0
    values = 0

    def descend_resolver(self, current_node: Any, current_index: Any) -> None:
        """Called for each node on the way down. libyaml's reader recurses in C: unchecked, nesting ends in a crash."""
        self.depth += 1
        if self.depth > MAX_DEPTH:
            raise YamlError("yaml: exceeded max depth")
        self.values += 1
        if self.values > MAX_VALUES:
            raise YamlError(f"yaml: document has more than {MAX_VALUES} values: send it as JSON")

    def ascend_resolver(self) -> None:
        self.depth -= 1

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Hashable, Any]:
        seen: set[str] = set()
        for key_node, _ in node.value:
            if key_node.tag == _MERGE:
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
        # Not through a dict with the keys themselves, where 1 and true would be the same.
        return {
            _key_text(self.construct_object(key_node, deep=True)): self.construct_object(value_node, deep=deep)
            for key_node, value_node in node.value
        }

    def flatten_mapping(self, node: yaml.MappingNode) -> None:
        """Replace `<<` by the mappings that it names. Counted, since merges of merges grow as fast as aliases of aliases."""
        taken: list[tuple[yaml.Node, yaml.Node]] = []
        kept: list[tuple[yaml.Node, yaml.Node]] = []
        for key_node, value_node in node.value:
            if key_node.tag != _MERGE:
                if key_node.tag == "tag:yaml.org,2002:value":
                    key_node.tag = "tag:yaml.org,2002:str"
                kept.append((key_node, value_node))
                continue
            sources = reversed(value_node.value) if isinstance(value_node, yaml.SequenceNode) else [value_node]
            for source in sources:
                if not isinstance(source, yaml.MappingNode):
                    raise YamlError(
                        f"yaml: line {key_node.start_mark.line + 1}: map merge requires map or sequence of maps as the value"
                    )
                self.flatten_mapping(source)
                self.merged += len(source.value)
                if self.merged > MAX_ALIASED:
                    raise YamlError("yaml: document contains excessive aliasing")
                taken.extend(source.value)
        node.value = taken + kept if taken else kept


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


_BASES = {"0x": 16, "0b": 2, "0o": 8}
# A whole number with more digits exceeds every float, in every base. (Python would read hexadecimal ones without limit.)
_LONGEST = 250


def _construct_int(loader: _Loader, node: yaml.ScalarNode) -> int | float | str:
    """A whole number; like Go's reader, a float when it is too large, and text when there is no such float."""
    text = str(loader.construct_scalar(node)).replace("_", "")
    digits = text.lstrip("+-")
    prefixed = digits[:2] in _BASES
    if len(digits) > _LONGEST:
        return text if prefixed else _finite(text)
    base = _BASES.get(digits[:2], 8 if len(digits) > 1 and digits.startswith("0") else 10)
    return int(digits[2:] if prefixed else digits, base) * (-1 if text.startswith("-") else 1)


def _construct_float(loader: _Loader, node: yaml.ScalarNode) -> float | str:
    return _finite(str(loader.construct_scalar(node)).replace("_", ""))


def _finite(text: str) -> float | str:
    value = float(text)
    return value if math.isfinite(value) else text


_Loader.add_constructor("tag:yaml.org,2002:int", _construct_int)
_Loader.add_constructor("tag:yaml.org,2002:float", _construct_float)


# PyYAML raises the last three for a value that does not match its tag: `!!timestamp x`, `!!bool x`.
_UNREADABLE = (yaml.YAMLError, ValueError, RecursionError, AttributeError, LookupError, TypeError)


def loads_all(text: str | bytes) -> Iterator[Any]:
    """Each document of a stream; empty documents are skipped, as kubectl does."""
    try:
        loader = _Loader(text)
        try:
            while loader.check_data():  # type: ignore[no-untyped-call]
                # The limits are for a document: a stream of them may be long.
                loader.values = loader.merged = 0
                document = loader.get_data()
                if document is not None:
                    if _has_aliases(text):
                        _check_aliases(document)
                    yield document
        finally:
            loader.dispose()
    except _UNREADABLE as error:
        raise _explained(error) from None


def _check_aliases(value: Any) -> None:
    """Raises for a value that contains itself, or that is small only because its parts are shared many times."""
    measured: dict[int, tuple[int, int, int] | None] = {}

    def measure(each: Any) -> tuple[int, int, int]:
        """The number of values in it, its depth, and the length of its text."""
        if not isinstance(each, dict | list):
            return 1, 0, len(each) if isinstance(each, str) else 0
        if id(each) in measured:
            known = measured[id(each)]
            if known is None:
                raise YamlError("yaml: an anchor's value contains itself")
            return known
        measured[id(each)] = None
        parts = [measure(part) for part in (each.values() if isinstance(each, dict) else each)]
        size, depth = 1 + sum(part[0] for part in parts), 1 + max((part[1] for part in parts), default=0)
        text = sum(part[2] for part in parts) + (sum(map(len, each)) if isinstance(each, dict) else 0)
        if size > MAX_ALIASED or text > MAX_ALIASED_TEXT:
            raise YamlError("yaml: document contains excessive aliasing")
        if depth > MAX_DEPTH:
            raise YamlError("yaml: exceeded max depth")
        measured[id(each)] = size, depth, text
        return size, depth, text

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
    """The first document with the last value of each key, and a line about every repeated key."""
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
    """True for text that would be a number, a time, a boolean or null without quotes; Go double-quotes it."""
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
