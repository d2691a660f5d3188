"""Every setting by its name, and the command line with them: k3s' names, so that k3s' documentation holds.

A setting may be in a file as well as on the command line; :mod:`.settings` gives them their meaning.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import Any

from remuda.access.settings import validation
from remuda.kube.encoding import yamlio

from .. import DistroError


class Kind(StrEnum):
    TEXT = "text"
    TRUTH = "truth"
    NUMBER = "number"
    # May be repeated.
    LIST = "list"


_TEXTS = (
    "agent-token advertise-address bind-address cluster-cidr cluster-dns cluster-domain cluster-reset-restore-path config "
    "data-dir etcd-binary etcd-snapshot-dir etcd-snapshot-name etcd-snapshot-schedule-cron etcdutl-binary log node-name release "
    "root server service-cidr service-node-port-range token token-file agent-token-file write-kubeconfig write-kubeconfig-mode "
    "write-kubeconfig-group secrets-encryption-provider system-default-registry private-registry name output "
    "cloud-provider-name lb-server-port provider-id etcd-s3-access-key etcd-s3-bucket etcd-s3-bucket-lookup-type "
    "etcd-s3-config-secret etcd-s3-endpoint etcd-s3-endpoint-ca etcd-s3-folder etcd-s3-proxy etcd-s3-region etcd-s3-secret-key "
    "etcd-s3-session-token etcd-s3-timeout new-token path"
)
_TRUTHS = (
    "cluster-init cluster-reset debug demo-etcd disable-agent disable-apiserver disable-cloud-controller "
    "disable-controller-manager disable-etcd disable-kube-proxy disable-scheduler etcd-disable-snapshots etcd-expose-metrics "
    "etcd-s3 etcd-s3-insecure etcd-s3-skip-ssl-verify etcd-snapshot-compress force secrets-encryption embedded-registry "
    "tls-san-security selinux prime"
)
_NUMBERS = "etcd-s3-retention etcd-snapshot-retention https-listen-port snapshot-retention supervisor-port v"
_LISTS = (
    "disable etcd-arg kube-apiserver-arg kube-controller-manager-arg kube-scheduler-arg kubelet-arg kube-proxy-arg "
    "node-external-ip node-ip node-label node-taint service tls-san"
)

KINDS: Mapping[str, Kind] = {
    **dict.fromkeys(_TEXTS.split(), Kind.TEXT),
    **dict.fromkeys(_TRUTHS.split(), Kind.TRUTH),
    **dict.fromkeys(_NUMBERS.split(), Kind.NUMBER),
    **dict.fromkeys(_LISTS.split(), Kind.LIST),
}
LISTS = frozenset(name for name, kind in KINDS.items() if kind is Kind.LIST)
_SHORT = {"c": "config", "d": "data-dir", "s": "server", "t": "token", "o": "output", "f": "force"}


@dataclass(frozen=True, slots=True)
class CommandLine:
    """A command line: its words (the command and its object), and its settings."""

    words: tuple[str, ...]
    values: Mapping[str, Any]


def parse(arguments: Sequence[str]) -> CommandLine:
    """Raises ConfigError for an unknown setting."""
    words: list[str] = []
    values: dict[str, Any] = {}
    rest = list(arguments)
    while rest:
        word = rest.pop(0)
        if not word.startswith("-") or word == "-":
            words.append(word)
            continue
        name, equals, value = word.lstrip("-").partition("=")
        # `-s` is the service of `certificate rotate`, as in k3s.
        name = "service" if name == "s" and words[:1] == ["certificate"] else _SHORT.get(name, name)
        if name == "s3" or name.startswith("s3-"):
            # The short names of `etcd-snapshot`, as in k3s.
            name = f"etcd-{name}"
        _say(values, name, value if equals else None, rest)
    return CommandLine(tuple(words), values)


def _say(values: dict[str, Any], name: str, value: str | None, rest: list[str]) -> None:
    kind = KINDS.get(name)
    if kind is None:
        raise ConfigError(f"there is no option --{name}")
    if value is None and kind is Kind.TRUTH:
        value = "true"
    if value is None:
        if not rest:
            raise ConfigError(f"--{name} needs a value")
        value = rest.pop(0)
    if kind is Kind.LIST:
        values.setdefault(name, []).append(value)
    else:
        values[name] = value


# --- component arguments --------------------------------------------------------------------------------------------------
#
# Values of `kubelet-arg`, `kube-controller-manager-arg` and the like: arguments of programs that simulated clusters do not run.
#
# A few have a meaning here; the others are ignored.


def said(values: Mapping[str, Any], option: str) -> dict[str, str]:
    """Values by name, without the dashes; the last one of a repeated argument counts."""
    listed = values.get(option) or ()
    words = [listed] if isinstance(listed, str) else listed
    return {name: value for name, _, value in (str(each).removeprefix("--").partition("=") for each in words)}


def seconds(values: Mapping[str, Any], option: str, name: str, default: float) -> float:
    """A duration above zero. Raises ConfigError."""
    text = said(values, option).get(name)
    if text is None:
        return default
    if problem := validation.duration(text):
        raise ConfigError(f"{option}: {name} {problem}")
    if not validation.seconds(text):
        raise ConfigError(f"{option}: {name} must be more than nothing")
    return validation.seconds(text)


# --- sources --------------------------------------------------------------------------------------------------------------
#
# The configuration of a host: files, variables and arguments, merged as k3s merges them.
#
# `config.yaml` comes first, then each `config.yaml.d/*.yaml` in the order of the names; a later file replaces the value of a key
# in an earlier one, unless it writes `key+`, which adds to it. The command line comes after all files: it replaces a single
# value, and adds to a list. :mod:`.settings` gives the values their meaning.

Values = dict[str, Any]


class ConfigError(DistroError):
    """A configuration that can't be used; the message says where and why."""


def read(file: Path) -> Values:
    """`file` and the files in the directory of the same name with `.d` appended. Empty if there are none."""
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
    """The files' values with those of the command line; both for the keys in `lists`."""
    several = frozenset(lists)
    found = dict(values)
    for key, value in arguments.items():
        found[key] = [*listed(found.get(key)), *listed(value)] if key in several else value
    return found


def listed(value: Any) -> list[str]:
    """A value as a list of words; a single one is a list of one."""
    if value is None or value == "":
        return []
    if isinstance(value, list):
        return [str(each) for each in value if each is not None]
    return [str(value)]


def separated(value: Any) -> list[str]:
    """As :func:`listed`, for values that may also be separated by commas."""
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
