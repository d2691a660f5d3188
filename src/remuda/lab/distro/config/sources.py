"""The configuration of a host: files, variables and arguments, merged as k3s merges them.

`config.yaml` comes first, then each `config.yaml.d/*.yaml` in the order of the names; a later file replaces what an earlier one
says of a key, unless it writes `key+`, which adds to it. What is said on the command line comes after all files: it replaces a
single value, and is added to a list. What the words mean is :mod:`.settings`' business.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from remuda.kube.encoding import yamlio

from ..errors import DistroError

Values = dict[str, Any]


class ConfigError(DistroError):
    """A configuration that can't be used; the message says where and why."""


def read(file: Path) -> Values:
    """`file` and what is in the directory of the same name with `.d` behind it. Nothing there is nothing said."""
    files = [file] if file.is_file() else []
    directory = file.with_name(f"{file.name}.d")
    if directory.is_dir():
        files += sorted(path for path in directory.iterdir() if path.suffix in (".yaml", ".yml") and path.is_file())
    return merged(_document(path) for path in files)


def merged(documents: Iterable[Mapping[str, Any]]) -> Values:
    found: Values = {}
    for document in documents:
        for key, value in document.items():
            name = key.removesuffix("+")
            if name == key or name not in found:
                found[name] = value
            else:
                found[name] = [*listed(found[name]), *listed(value)]
    return found


def with_arguments(values: Mapping[str, Any], arguments: Mapping[str, Any], lists: Iterable[str]) -> Values:
    """The files' values with those of the command line; of the keys in `lists` both hold."""
    several = frozenset(lists)
    found = dict(values)
    for key, value in arguments.items():
        found[key] = [*listed(found.get(key)), *listed(value)] if key in several else value
    return found


def listed(value: Any) -> list[str]:
    """A value as a list of words: one alone is a list of one, and a text may hold several with commas."""
    if value is None or value == "":
        return []
    if isinstance(value, list):
        return [str(each) for each in value if each is not None]
    return [str(value)]


def separated(value: Any) -> list[str]:
    """As :func:`listed`, for what may also be written with commas."""
    return [part.strip() for each in listed(value) for part in each.split(",") if part.strip()]


def truth(value: Any, key: str) -> bool:
    if isinstance(value, bool):
        return value
    text = str(value).strip().lower()
    if text in ("true", "1", "t", "yes"):
        return True
    if text in ("false", "0", "f", "no", ""):
        return False
    raise ConfigError(f"{key} is true or false, not {value!r}")


def number(value: Any, key: str) -> int:
    try:
        return int(str(value))
    except ValueError:
        raise ConfigError(f"{key} is a number, not {value!r}") from None


def _document(path: Path) -> Mapping[str, Any]:
    try:
        found = yamlio.loads(path.read_bytes())
    except (OSError, yamlio.YamlError) as error:
        raise ConfigError(f"{path} can't be read: {error}") from None
    if found is None:
        return {}
    if not isinstance(found, dict):
        raise ConfigError(f"{path} is not a list of settings with values")
    return found
