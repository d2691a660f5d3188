"""The Pod Security Standards: for a level and a version, the rules that a pod violates, in the words of kube-apiserver.

A rule is one function per change of the standard; a namespace that pins a version gets the rules of that version. Privileged
has no rules; baseline has some; restricted adds more, of which a few replace a rule of baseline. :mod:`.pod_security` decides
which level applies, and what a violation means.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from functools import lru_cache, partial
from typing import Any, Final

from remuda.kube.errors import go_quote
from remuda.kube.objects import annotations_of, dig

Obj = dict[str, Any]

PRIVILEGED, BASELINE, RESTRICTED = LEVELS = ("privileged", "baseline", "restricted")
# In place of a minor version: all rules as they are today.
LATEST: Final = -1


@dataclass(frozen=True, slots=True)
class Violation:
    """`reason` is short and the same for many pods; `detail` names containers and values."""

    reason: str
    detail: str

    def __str__(self) -> str:
        return f"{self.reason} ({self.detail})"


# Gets a pod, or the template of one.
Rule = Callable[[Obj], Violation | None]


def violations(level: str, minor: int, pod: Obj) -> list[Violation]:
    """The violations by a pod or pod template of this level in version 1.`minor`."""
    return [found for rule in _rules(level, minor) if (found := rule(pod)) is not None]


# --- reading a pod --------------------------------------------------------------------------------------------------------


def _spec(pod: Obj) -> Obj:
    return pod.get("spec") or {}


def _containers(pod: Obj) -> Iterator[Obj]:
    for name in ("initContainers", "containers", "ephemeralContainers"):
        yield from _spec(pod).get(name) or ()


def _setting(holder: Obj, *path: str) -> Any:
    """A field of the security context of a pod's spec or of a container."""
    return dig(holder, "securityContext", *path)


def _is_windows(pod: Obj) -> bool:
    return bool(dig(pod, "spec", "os", "name") == "windows")


def _has_its_own_users(pod: Obj) -> bool:
    """The pod runs in a user namespace: its root is not the node's."""
    return _spec(pod).get("hostUsers") is False


# --- words ----------------------------------------------------------------------------------------------------------------


def _quoted(items: Iterable[str]) -> str:
    return ", ".join(f'"{item}"' for item in items)


def _plural(word: str, items: list[str] | set[str]) -> str:
    return word if len(items) == 1 else f"{word}s"


def _named(word: str, items: list[str]) -> str:
    return f"{_plural(word, items)} {_quoted(items)}"


def _setters(pod_does: bool, names: list[str]) -> str:
    """The violators of a rule for settings that a pod and its containers may have; empty without any."""
    return " and ".join([*(["pod"] if pod_does else []), *([_named("container", names)] if names else [])])


def _names(pod: Obj, violates: Callable[[Obj], bool]) -> list[str]:
    return [container.get("name") or "" for container in _containers(pod) if violates(container)]


# --- baseline -------------------------------------------------------------------------------------------------------------

_APPARMOR = "container.apparmor.security.beta.kubernetes.io/"
_SECCOMP, _SECCOMP_POD = "container.seccomp.security.alpha.kubernetes.io/", "seccomp.security.alpha.kubernetes.io/pod"
# The types of profiles that only take rights away.
_PROFILES = ("RuntimeDefault", "Localhost")
_CAPABILITIES = frozenset(
    (
        "AUDIT_WRITE", "CHOWN", "DAC_OVERRIDE", "FOWNER", "FSETID", "KILL", "MKNOD", "NET_BIND_SERVICE", "SETFCAP", "SETGID",
        "SETPCAP", "SETUID", "SYS_CHROOT",
    )
)  # fmt: skip
_SELINUX_1_0 = frozenset(("", "container_t", "container_init_t", "container_kvm_t"))
_SELINUX_1_31 = _SELINUX_1_0 | {"container_engine_t"}
_SYSCTLS_1_0 = frozenset(
    (
        "kernel.shm_rmid_forced",
        "net.ipv4.ip_local_port_range",
        "net.ipv4.ip_unprivileged_port_start",
        "net.ipv4.ping_group_range",
        "net.ipv4.tcp_syncookies",
    )
)
_SYSCTLS_1_27 = _SYSCTLS_1_0 | {"net.ipv4.ip_local_reserved_ports"}
_SYSCTLS_1_29 = _SYSCTLS_1_27 | {
    "net.ipv4.tcp_fin_timeout",
    "net.ipv4.tcp_keepalive_intvl",
    "net.ipv4.tcp_keepalive_probes",
    "net.ipv4.tcp_keepalive_time",
}
_SYSCTLS_1_32 = _SYSCTLS_1_29 | {"net.ipv4.tcp_rmem", "net.ipv4.tcp_wmem"}


def _apparmor(pod: Obj) -> Violation | None:
    def bad(holder: Obj) -> bool:
        profile = _setting(holder, "appArmorProfile")
        return profile is not None and profile.get("type") not in _PROFILES

    holders = [_spec(pod), *_containers(pod)]
    values = sorted({_setting(holder, "appArmorProfile").get("type") or "" for holder in holders if bad(holder)})
    setters = _setters(bad(_spec(pod)), _names(pod, bad))
    annotations = sorted(
        f"{key}={go_quote(value)}"
        for key, value in annotations_of(pod).items()
        if key.startswith(_APPARMOR) and value not in ("", "runtime/default") and not value.startswith("localhost/")
    )
    if annotations:
        setters = " and ".join(filter(None, (setters, _plural("annotation", annotations))))
        values += annotations
    if not setters:
        return None
    return Violation(
        _plural("forbidden AppArmor profile", values), f"{setters} must not set AppArmor profile type to {_quoted(values)}"
    )


def _added(container: Obj, allowed: frozenset[str]) -> list[str]:
    """The added capabilities that are not allowed."""
    return [each for each in _setting(container, "capabilities", "add") or () if each not in allowed]


def _adds(pod: Obj, allowed: frozenset[str]) -> str:
    names = _names(pod, lambda container: bool(_added(container, allowed)))
    if not names:
        return ""
    values = sorted({each for container in _containers(pod) for each in _added(container, allowed)})
    return f"{_named('container', names)} must not include {_quoted(values)} in securityContext.capabilities.add"


def _capabilities(pod: Obj) -> Violation | None:
    detail = _adds(pod, _CAPABILITIES)
    return Violation("non-default capabilities", detail) if detail else None


def _host_namespaces(pod: Obj) -> Violation | None:
    found = [f"{field}=true" for field in ("hostNetwork", "hostPID", "hostIPC") if _spec(pod).get(field)]
    return Violation("host namespaces", ", ".join(found)) if found else None


def _host_paths(pod: Obj) -> Violation | None:
    names = [volume.get("name") or "" for volume in _spec(pod).get("volumes") or () if volume.get("hostPath") is not None]
    return Violation("hostPath volumes", _named("volume", names)) if names else None


def _host_ports(pod: Obj) -> Violation | None:
    def ports(container: Obj) -> list[str]:
        return [str(port["hostPort"]) for port in container.get("ports") or () if port.get("hostPort")]

    names = _names(pod, lambda container: bool(ports(container)))
    if not names:
        return None
    found = sorted({port for container in _containers(pod) for port in ports(container)})
    return Violation("hostPort", f"{_named('container', names)} {_use(names)} {_plural('hostPort', found)} {', '.join(found)}")


def _use(subjects: list[str]) -> str:
    return "uses" if len(subjects) == 1 else "use"


def _probed_hosts(pod: Obj) -> Violation | None:
    def hosts(container: Obj) -> set[str]:
        probes = [container.get(name) for name in ("livenessProbe", "readinessProbe", "startupProbe")]
        handlers = [dig(container, "lifecycle", name) for name in ("postStart", "preStop")]
        return {
            host
            for each in (*probes, *handlers)
            for action in ("httpGet", "tcpSocket")
            if each and (host := dig(each, action, "host"))
        }

    names = sorted(set(_names(pod, lambda container: bool(hosts(container)))))
    if not names:
        return None
    found = sorted({host for container in _containers(pod) for host in hosts(container)})
    words = _named("probe or lifecycle host", found)
    return Violation("probe or lifecycle host", f"{_named('container', names)} {_use(names)} {words}")


def _privileged(pod: Obj) -> Violation | None:
    names = _names(pod, lambda container: bool(_setting(container, "privileged")))
    return (
        Violation("privileged", f"{_named('container', names)} must not set securityContext.privileged=true") if names else None
    )


def _proc_mount(pod: Obj) -> Violation | None:
    def bad(container: Obj) -> bool:
        return _setting(container, "procMount") not in (None, "Default")

    names = _names(pod, bad)
    if not names:
        return None
    values = sorted({_setting(container, "procMount") for container in _containers(pod) if bad(container)})
    return Violation("procMount", f"{_named('container', names)} must not set securityContext.procMount to {_quoted(values)}")


def _selinux(allowed: frozenset[str], pod: Obj) -> Violation | None:
    def options(holder: Obj) -> Obj:
        return _setting(holder, "seLinuxOptions") or {}

    def bad_type(holder: Obj) -> bool:
        return (options(holder).get("type") or "") not in allowed

    def bad(holder: Obj) -> bool:
        return bad_type(holder) or bool(options(holder).get("user") or options(holder).get("role"))

    setters = _setters(bad(_spec(pod)), _names(pod, bad))
    if not setters:
        return None
    holders = [_spec(pod), *_containers(pod)]
    types = sorted({options(holder)["type"] for holder in holders if bad_type(holder)})
    problems = [_named("type", types)] if types else []
    problems += [f"{part} may not be set" for part in ("user", "role") if any(options(holder).get(part) for holder in holders)]
    return Violation("seLinuxOptions", f"{setters} set forbidden securityContext.seLinuxOptions: {'; '.join(problems)}")


def _seccomp_annotations(pod: Obj) -> Violation | None:
    given = annotations_of(pod)
    keys = [_SECCOMP_POD, *(f"{_SECCOMP}{container.get('name')}" for container in _containers(pod))]
    found = sorted({f"{key}={go_quote(given[key])}" for key in keys if key in given and not _is_known_profile(given[key])})
    return Violation("seccompProfile", f"forbidden {_plural('annotation', found)} {', '.join(found)}") if found else None


def _is_known_profile(annotation: str) -> bool:
    return annotation in ("runtime/default", "docker/default") or annotation.startswith("localhost/")


def _seccomp(pod: Obj) -> Violation | None:
    def bad(holder: Obj) -> bool:
        profile = _setting(holder, "seccompProfile")
        return profile is not None and profile.get("type") not in _PROFILES

    setters = _setters(bad(_spec(pod)), _names(pod, bad))
    if not setters:
        return None
    holders = [_spec(pod), *_containers(pod)]
    values = sorted({_setting(holder, "seccompProfile").get("type") or "" for holder in holders if bad(holder)})
    return Violation("seccompProfile", f"{setters} must not set securityContext.seccompProfile.type to {_quoted(values)}")


def _sysctls(allowed: frozenset[str], pod: Obj) -> Violation | None:
    names = [each.get("name") or "" for each in _setting(_spec(pod), "sysctls") or ()]
    found = [name for name in names if name not in allowed]
    return Violation("forbidden sysctls", ", ".join(found)) if found else None


def _host_process(pod: Obj) -> Violation | None:
    def bad(holder: Obj) -> bool:
        return bool(_setting(holder, "windowsOptions", "hostProcess"))

    setters = _setters(bad(_spec(pod)), _names(pod, bad))
    if not setters:
        return None
    return Violation("hostProcess", f"{setters} must not set securityContext.windowsOptions.hostProcess=true")


# --- restricted -----------------------------------------------------------------------------------------------------------

_VOLUMES = frozenset(
    (
        "configMap", "csi", "downwardAPI", "emptyDir", "ephemeral", "image", "persistentVolumeClaim", "projected", "secret",
    )
)  # fmt: skip
_BIND = frozenset(("NET_BIND_SERVICE",))


def _no_escalation(pod: Obj) -> Violation | None:
    names = _names(pod, lambda container: _setting(container, "allowPrivilegeEscalation") is not False)
    if not names:
        return None
    detail = f"{_named('container', names)} must set securityContext.allowPrivilegeEscalation=false"
    return Violation("allowPrivilegeEscalation != false", detail)


def _few_capabilities(pod: Obj) -> Violation | None:
    names = _names(pod, lambda container: "ALL" not in (_setting(container, "capabilities", "drop") or ()))
    missing = f'{_named("container", names)} must set securityContext.capabilities.drop=["ALL"]' if names else ""
    details = [each for each in (missing, _adds(pod, _BIND)) if each]
    return Violation("unrestricted capabilities", "; ".join(details)) if details else None


def _few_volumes(pod: Obj) -> Violation | None:
    def kind(volume: Obj) -> str:
        """The field that says what kind of volume it is."""
        return next((field for field, value in volume.items() if field != "name" and value is not None), "unknown")

    bad = [volume for volume in _spec(pod).get("volumes") or () if kind(volume) not in _VOLUMES]
    if not bad:
        return None
    names, kinds = [volume.get("name") or "" for volume in bad], sorted({kind(volume) for volume in bad})
    detail = f"{_named('volume', names)} {_use(names)} {_named('restricted volume type', kinds)}"
    return Violation("restricted volume types", detail)


def _not_root(pod: Obj) -> Violation | None:
    def given(holder: Obj) -> bool | None:
        found: bool | None = _setting(holder, "runAsNonRoot")
        return found

    reason = "runAsNonRoot != true"
    if setters := _setters(given(_spec(pod)) is False, _names(pod, lambda container: given(container) is False)):
        return Violation(reason, f"{setters} must not set securityContext.runAsNonRoot=false")
    names = _names(pod, lambda container: given(container) is None) if not given(_spec(pod)) else []
    if not names:
        return None
    return Violation(reason, f"pod or {_named('container', names)} must set securityContext.runAsNonRoot=true")


def _not_user_0(pod: Obj) -> Violation | None:
    def bad(holder: Obj) -> bool:
        return bool(_setting(holder, "runAsUser") == 0)

    setters = _setters(bad(_spec(pod)), _names(pod, bad))
    return Violation("runAsUser=0", f"{setters} must not set runAsUser=0") if setters else None


def _seccomp_required(pod: Obj) -> Violation | None:
    if (found := _seccomp(pod)) is not None:
        return found
    if _setting(_spec(pod), "seccompProfile") is not None:
        return None
    names = _names(pod, lambda container: _setting(container, "seccompProfile") is None)
    if not names:
        return None
    types = " or ".join(f'"{each}"' for each in _PROFILES)
    detail = f"pod or {_named('container', names)} must set securityContext.seccompProfile.type to {types}"
    return Violation("seccompProfile", detail)


# --- the standards --------------------------------------------------------------------------------------------------------


def _unless(exempt: Callable[[Obj], bool], rule: Rule) -> Rule:
    return lambda pod: None if exempt(pod) else rule(pod)


@dataclass(frozen=True, slots=True)
class _Series:
    """A rule through the versions, oldest first, each with the minor version that it begins with.

    In the restricted level it is used in place of the rule of baseline that it `replaces`.
    """

    changes: tuple[tuple[int, Rule], ...]
    replaces: str = ""

    def at(self, minor: int) -> Rule | None:
        return next((rule for since, rule in reversed(self.changes) if minor == LATEST or minor >= since), None)


# In the order of kube-apiserver's messages.
_BASELINE = {
    "appArmorProfile": _Series(((0, _apparmor),)),
    "capabilities": _Series(((0, _capabilities),)),
    "hostNamespaces": _Series(((0, _host_namespaces),)),
    "hostPathVolumes": _Series(((0, _host_paths),)),
    "hostPorts": _Series(((0, _host_ports),)),
    "hostProbesAndHostLifecycle": _Series(((34, _probed_hosts),)),
    "privileged": _Series(((0, _privileged),)),
    "procMount": _Series(((0, _proc_mount), (35, _unless(_has_its_own_users, _proc_mount)))),
    "seLinuxOptions": _Series(((0, partial(_selinux, _SELINUX_1_0)), (31, partial(_selinux, _SELINUX_1_31)))),
    "seccompProfile": _Series(((0, _seccomp_annotations), (19, _seccomp))),
    "sysctls": _Series(
        (
            (0, partial(_sysctls, _SYSCTLS_1_0)),
            (27, partial(_sysctls, _SYSCTLS_1_27)),
            (29, partial(_sysctls, _SYSCTLS_1_29)),
            (32, partial(_sysctls, _SYSCTLS_1_32)),
        )
    ),
    "windowsHostProcess": _Series(((0, _host_process),)),
}
_RESTRICTED = (
    _Series(((8, _no_escalation), (25, _unless(_is_windows, _no_escalation)))),
    _Series(((22, _few_capabilities), (25, _unless(_is_windows, _few_capabilities))), replaces="capabilities"),
    _Series(((35, _proc_mount),), replaces="procMount"),
    _Series(((0, _few_volumes),), replaces="hostPathVolumes"),
    _Series(((0, _not_root), (35, _unless(_has_its_own_users, _not_root)))),
    _Series(((23, _not_user_0), (35, _unless(_has_its_own_users, _not_user_0)))),
    _Series(((19, _seccomp_required), (25, _unless(_is_windows, _seccomp_required))), replaces="seccompProfile"),
)


@lru_cache(256)
def _rules(level: str, minor: int) -> tuple[Rule, ...]:
    if level == PRIVILEGED:
        return ()
    stricter = [series for series in _RESTRICTED if level == RESTRICTED and series.at(minor) is not None]
    replaced = {series.replaces for series in stricter}
    series = [*(each for name, each in _BASELINE.items() if name not in replaced), *stricter]
    return tuple(rule for each in series if (rule := each.at(minor)) is not None)
