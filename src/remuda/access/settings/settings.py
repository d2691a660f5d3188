"""Settings and features: every name with its default and its rule, and the value in force.

A setting's value comes from the `management.cattle.io/v3` Setting of its name, then from the environment (`REMUDA_` or Rancher's
`CATTLE_`, upper case, `_` for `-`), then it is the default. Empty means not set. A value that breaks its rule is ignored and
reported (`problem`), so that one bad variable does not keep the server from starting; a bad Setting is refused when it is
written (`problem_of`). Features, which are switches, work the same. Pure: objects and environment come in, values go out.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlsplit

from remuda import __version__
from remuda.kube.network.outbound import Policy

from . import validation
from .validation import Check

Obj = Mapping[str, Any]

PREFIXES = ("REMUDA_", "CATTLE_")
# Sources of an effective value.
STORED, ENVIRONMENT, DEFAULT = "db", "env", "default"
LONGEST = 1 << 20


@dataclass(frozen=True, slots=True)
class Known:
    """A setting that we know; `check` tests every value except the empty one."""

    name: str
    default: str = ""
    check: Check = validation.anything

    @property
    def variables(self) -> tuple[str, ...]:
        """The environment variables that set it; the first that is not empty counts."""
        ending = self.name.upper().replace("-", "_")
        return tuple(prefix + ending for prefix in PREFIXES)


@dataclass(frozen=True, slots=True)
class Effective:
    """The value in force, its source, and a sentence for each source whose value is invalid."""

    name: str
    value: str
    source: str
    default: str
    problems: tuple[str, ...] = ()


class SettingError(ValueError):
    """An unknown setting, or a value that its rule refuses; the text names the setting."""


# Our own agent's image, which `make images` makes and every server serves.
AGENT_REPOSITORY = "remuda/cluster-agent"
# The image of machine pools' Jobs that run in pods: likewise.
MACHINE_REPOSITORY = "remuda/machine"

_AFFINITY = (
    '{"nodeAffinity":{"requiredDuringSchedulingIgnoredDuringExecution":{"nodeSelectorTerms":[{"matchExpressions":'
    '[{"key":"beta.kubernetes.io/os","operator":"NotIn","values":["windows"]}]}]},'
    '"preferredDuringSchedulingIgnoredDuringExecution":['
    '{"preference":{"matchExpressions":[{"key":"node-role.kubernetes.io/controlplane","operator":"In","values":["true"]}]},"weight":100},'
    '{"preference":{"matchExpressions":[{"key":"node-role.kubernetes.io/control-plane","operator":"In","values":["true"]}]},"weight":100},'
    '{"preference":{"matchExpressions":[{"key":"node-role.kubernetes.io/master","operator":"In","values":["true"]}]},"weight":100},'
    '{"preference":{"matchExpressions":[{"key":"cattle.io/cluster-agent","operator":"In","values":["true"]}]},"weight":1}]}}'
)
# No server is asked unless a url is set: the release data in the program is enough to begin with.
_METADATA = '{"refresh-interval-minutes":"1440","url":""}'
_SYSTEM_AGENT = "https://github.com/rancher/system-agent/releases/download/v0.15.0/install.sh"
_WINS_AGENT = "https://github.com/rancher/wins/releases/latest/download/install.ps1"

OUTBOUND = "outbound-policy"
_CRT_TTL, _CRT_GRACE = "crt-default-ttl-minutes", "crt-default-grace-period-minutes"
_SHORT_TTL, _LONG_TTL = "system-agent-installer-token-short-ttl", "system-agent-installer-token-long-ttl"

# The version of Rancher whose clients are served: they choose their requests by it.
RANCHER_VERSION = "v2.13.0"
_BANNERS = '{"loginError":{"message":"","showMessage":"false"}}'
# Each part must be there, also where it is off.
_PERFORMANCE = (
    '{"inactivity":{"enabled":false,"threshold":900},"incrementalLoading":{"enabled":true,"threshold":1500},'
    '"manualRefresh":{"enabled":false,"threshold":1500},"disableWebsocketNotification":false,'
    '"garbageCollection":{"enabled":false,"enabledInterval":true,"interval":300,"enabledOnNavigate":true,"countThreshold":500,'
    '"ageThreshold":120},"forceNsFilterV2":{"enabled":false},"advancedWorker":{"enabled":false},"kubeAPI":{"warningHeader":'
    '{"separator":"299 - ","notificationBlockList":["299 - unknown field"]}},"serverPagination":{"enabled":true,'
    '"useDefaultStores":true}}'
)
_PRIORITY = '{"value":1000000000,"preemptionPolicy":"PreemptLowerPriority"}'
_DISRUPTION = '{"minAvailable":"0","maxUnavailable":"0"}'
_NAMESPACES = "cattle-global-data,cattle-system,fleet-local,kube-node-lease,kube-public,kube-system"
# Settings that Rancher's pages and programs read by name, and nothing else does.
_FOR_CLIENTS = (
    Known("eula-agreed"),
    Known("first-login", "false", validation.boolean),
    Known("hide-local-cluster", "false", validation.boolean),
    Known("imported-cluster-version-management", "false", validation.boolean),
    Known("k8s-version", "", validation.version),
    Known("kev2-operators", "[]"),
    Known("server-version", RANCHER_VERSION, validation.version),
    Known("system-namespaces", _NAMESPACES),
    Known("ui-banners", _BANNERS, validation.json_object),
    Known("ui-brand"),
    Known("ui-community-links", "false", validation.boolean),
    Known("ui-content-enabled", "false", validation.boolean),
    Known("ui-custom-links", "{}", validation.json_object),
    Known("ui-issues"),
    Known("ui-k8s-supported-versions-range"),
    Known("ui-performance", _PERFORMANCE, validation.json_object),
    Known("ui-pl", "Remuda"),
    Known("cluster-agent-default-pod-disruption-budget", _DISRUPTION, validation.json_object),
    Known("cluster-agent-default-priority-class", _PRIORITY, validation.json_object),
    Known("fleet-agent-default-affinity", _AFFINITY, validation.json_object),
    Known("fleet-agent-default-pod-disruption-budget", _DISRUPTION, validation.json_object),
    Known("fleet-agent-default-priority-class", _PRIORITY, validation.json_object),
)

SETTINGS: Mapping[str, Known] = {
    known.name: known
    for known in (
        Known("server-url", "", validation.https_origin),
        Known("internal-server-url", "", validation.https_origin),
        Known("cacerts", "", validation.certificates),
        Known("internal-cacerts", "", validation.certificates),
        Known("agent-image", f"{AGENT_REPOSITORY}:{__version__}", validation.image),
        Known("agent-tls-mode", "strict", validation.one_of("strict", "system-store")),
        Known("system-agent-version", "", validation.version),
        Known("system-agent-install-script", _SYSTEM_AGENT, validation.web_address),
        Known("wins-agent-install-script", _WINS_AGENT, validation.web_address),
        Known("system-agent-installer-image", "rancher/system-agent-installer-", validation.image_prefix),
        Known("system-agent-upgrade-image", "rancher/system-agent:v0.15.0-suc", validation.image),
        Known("wins-agent-upgrade-image", "", validation.image),
        Known("system-upgrade-controller-chart-version", "", validation.version),
        Known("system-agent-installer-token-ttl-enabled", "true", validation.boolean),
        Known(_SHORT_TTL, "30s", validation.duration),
        Known(_LONG_TTL, "30m", validation.duration),
        Known(_CRT_TTL, "43200", validation.whole_number(30)),
        Known(_CRT_GRACE, "180", validation.whole_number(10)),
        Known("auth-user-session-ttl-minutes", "960", validation.whole_number(1)),
        Known("auth-user-session-idle-ttl-minutes", "960", validation.whole_number(1)),
        Known("auth-token-max-ttl-minutes", "129600", validation.whole_number(0)),
        Known("kubeconfig-default-token-ttl-minutes", "43200", validation.whole_number(0)),
        Known("kubeconfig-generate-token", "true", validation.boolean),
        Known("password-min-length", "12", validation.whole_number(2, 256)),
        Known("machine-provision-image", f"{MACHINE_REPOSITORY}:{__version__}", validation.image),
        Known("delete-machine-on-failure-after", "0s", validation.duration),
        Known("whitelist-envvars", "HTTP_PROXY,HTTPS_PROXY,NO_PROXY", validation.variables),
        Known("fleet-default-workspace-name", "fleet-default", validation.label),
        Known("system-default-registry", "", validation.registry),
        Known("system-default-registry-pull-secrets", "", validation.names),
        Known("rke-metadata-config", _METADATA, validation.metadata_source),
        Known("rke2-default-version", "", validation.version),
        Known("k3s-default-version", "", validation.version),
        Known("rke2-provisioning-prime-default", "", validation.boolean),
        Known("system-agent-upgrader-install-concurrency", "5", validation.whole_number(1, 10_000)),
        Known("k3s-based-upgrader-uninstall-concurrency", "5", validation.whole_number(1, 10_000)),
        Known("cluster-autoscaler-chart-repository", "", validation.web_address),
        Known("cluster-autoscaler-image", "", validation.image),
        Known("imported-cluster-day2-ops-enabled", "true", validation.boolean),
        Known("cluster-agent-default-affinity", _AFFINITY, validation.json_object),
        Known(OUTBOUND, "", validation.outbound_policy),
        *_FOR_CLIENTS,
    )
}


def registry_at(server: str) -> str:
    """The registry of a server, as the beginning of an image's name."""
    host = urlsplit(server).netloc.lower()
    # A word without a dot or a port would be part of the image's path.
    return host if not host or set(host) & set(".:") or host == "localhost" else f"{host}:443"


def problem_of(name: str, value: str) -> str:
    """The reason why `value` is invalid for the setting, as a sentence that names it; "" if it is valid."""
    known = SETTINGS.get(name)
    if known is None:
        return f"there is no setting {_shown(name)}"
    return _problem(known, value, name)


def _problem(known: Known, value: str, called: str) -> str:
    if not value:
        return ""
    if len(value) > LONGEST or "\0" in value:
        return f"{called} must be text without NUL of at most {LONGEST} characters"
    found = known.check(value)
    return f"{called} {found}" if found else ""


def _shown(name: str) -> str:
    return repr(name if len(name) <= 80 else f"{name[:80]}…")


class Settings:
    """The settings in force, for a set of Setting objects and an environment at one moment."""

    __slots__ = ("_environment", "_stored")

    def __init__(self, stored: Iterable[Obj] = (), environment: Mapping[str, str] | None = None) -> None:
        self._stored = {str(_metadata(found).get("name", "")): found for found in stored}
        self._environment = environment or {}

    def effective(self, name: str) -> Effective:
        known = SETTINGS.get(name)
        if known is None:
            raise SettingError(f"there is no setting {_shown(name)}")
        problems: list[str] = []
        for source, called, value in self._said(known):
            problem = _problem(known, value, called)
            if not problem:
                return Effective(name, value, source, known.default, tuple(problems))
            problems.append(problem)
        return Effective(name, known.default, DEFAULT, known.default, tuple(problems))

    def _said(self, known: Known) -> Iterable[tuple[str, str, str]]:
        """The values that are set, in order of precedence: source, name for messages, text."""
        value = self._stored.get(known.name, {}).get("value")
        if isinstance(value, str) and value:
            yield STORED, known.name, value
        for variable in known.variables:
            if said := self._environment.get(variable):
                yield ENVIRONMENT, f"{known.name} (from {variable})", said

    def text(self, name: str) -> str:
        return self.effective(name).value

    def number(self, name: str) -> int:
        return int(self.text(name))

    def flag(self, name: str) -> bool:
        return self.text(name) == "true"

    def seconds(self, name: str) -> float:
        return validation.seconds(self.text(name))

    def outbound(self) -> Policy:
        """Addresses to which the server may connect for tenants."""
        return Policy.of(self.text(OUTBOUND))

    def administrators_outbound(self) -> Policy:
        """Addresses to which it may connect where only administrators set the address."""
        return Policy.for_administrators(self.text(OUTBOUND))

    def everything(self) -> list[Effective]:
        return [self.effective(name) for name in SETTINGS]

    def problems(self) -> list[str]:
        """Warnings for a person: ignored values, and values that do not fit each other."""
        found = [problem for effective in self.everything() for problem in effective.problems]
        if self.number(_CRT_GRACE) >= self.number(_CRT_TTL):
            found.append(f"{_CRT_GRACE} must be less than {_CRT_TTL}, which is {self.number(_CRT_TTL)}")
        if self.seconds(_SHORT_TTL) > self.seconds(_LONG_TTL):
            found.append(f"{_SHORT_TTL} must not be longer than {_LONG_TTL}, which is {self.text(_LONG_TTL)}")
        return found


def _metadata(found: Obj) -> Mapping[str, Any]:
    metadata = found.get("metadata")
    return metadata if isinstance(metadata, Mapping) else {}


# --- features ---------------------------------------------------------------------------------------------------------------
#
# A Feature's `status.lockedValue` decides, then its `spec.value`, then the environment (as in `fleet=false,turtles=true`), then
# its default.

LOCKED = "locked"
VARIABLES = ("REMUDA_FEATURES", "CATTLE_FEATURES")

FEATURES: Mapping[str, bool] = {
    **dict.fromkeys(
        (
            "rke2",
            "provisioningv2",
            "fleet",
            "multi-cluster-management",
            "turtles",
            "v2prov-etcd-snapshot-backpopulate",
            "provisioningv2-fleet-workspace-back-population",
            "imported-day-2-ops",
            "crt-token-ttl-rotation",
            "managed-system-upgrade-controller",
            "harvester",
            "pod-shell",
            "machine-shell",
        ),
        True,
    ),
    **dict.fromkeys(
        ("provisioningprebootstrap", "cluster-agent-scheduling-customization", "token-hashing", "cluster-autoscaling"), False
    ),
}


DESCRIPTIONS: Mapping[str, str] = {
    "rke2": "Provision clusters of RKE2 and K3s.",
    "provisioningv2": "Provision clusters declaratively.",
    "fleet": "Keep workspaces for clusters.",
    "multi-cluster-management": "Import and manage clusters.",
    "turtles": "Work with Cluster API providers.",
    "v2prov-etcd-snapshot-backpopulate": "Report snapshots that are found in clusters.",
    "provisioningv2-fleet-workspace-back-population": "Let an annotation choose a cluster's workspace.",
    "imported-day-2-ops": "Operate imported clusters, too.",
    "crt-token-ttl-rotation": "Rotate registration tokens when they expire.",
    "managed-system-upgrade-controller": "Keep the upgrade controller in clusters up to date.",
    "harvester": "Know Harvester clusters.",
    "pod-shell": "Allow shells in containers of clusters, through the proxy.",
    "machine-shell": "Allow shells on machines of node drivers, through the gateway.",
    "provisioningprebootstrap": "Write Secrets into a cluster before its agent connects.",
    "cluster-agent-scheduling-customization": "Let a cluster choose the nodes of its agent.",
    "token-hashing": "Keep hashes of tokens only. Always so here.",
    "cluster-autoscaling": "Scale clusters by their load.",
}


@dataclass(frozen=True, slots=True)
class EffectiveFeature:
    name: str
    value: bool
    source: str
    default: bool


def parse_features(text: str) -> tuple[dict[str, bool], list[str]]:
    """The switches in a list like `fleet=false,turtles=true`, and a sentence for each part that is invalid."""
    switched: dict[str, bool] = {}
    problems: list[str] = []
    for part in filter(None, (piece.strip() for piece in text.split(","))):
        name, _, value = part.partition("=")
        if name not in FEATURES:
            problems.append(f"there is no feature {name[:80]!r}")
        elif value not in ("true", "false"):
            problems.append(f"feature {name} must be true or false")
        elif switched.setdefault(name, value == "true") != (value == "true"):
            problems.append(f"feature {name} is set to both true and false")
    return switched, problems


class Features:
    """The state of the switches, for a set of Feature objects and an environment at one moment."""

    __slots__ = ("_environment", "_stored", "problems")

    def __init__(self, stored: Iterable[Obj] = (), environment: Mapping[str, str] | None = None) -> None:
        self._stored = {str((found.get("metadata") or {}).get("name", "")): found for found in stored}
        variable = next((name for name in VARIABLES if (environment or {}).get(name)), "")
        self._environment, found = parse_features((environment or {}).get(variable, ""))
        self.problems = tuple(f"{variable}: {problem}" for problem in found)

    def effective(self, name: str) -> EffectiveFeature:
        if name not in FEATURES:
            raise SettingError(f"there is no feature {name[:80]!r}")
        default = FEATURES[name]
        stored = self._stored.get(name, {})
        for source, value in (
            (LOCKED, _field(stored, "status", "lockedValue")),
            (STORED, _field(stored, "spec", "value")),
            (ENVIRONMENT, self._environment.get(name)),
        ):
            if value is not None:
                return EffectiveFeature(name, value, source, default)
        return EffectiveFeature(name, default, DEFAULT, default)

    def enabled(self, name: str) -> bool:
        return self.effective(name).value

    def everything(self) -> list[EffectiveFeature]:
        return [self.effective(name) for name in FEATURES]


def _field(found: Obj, part: str, name: str) -> bool | None:
    section = found.get(part)
    value = section.get(name) if isinstance(section, Mapping) else None
    return value if isinstance(value, bool) else None
