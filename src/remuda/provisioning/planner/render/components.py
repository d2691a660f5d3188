"""The controller manager and the scheduler: where they keep their certificates and on which ports they listen.

Both are told explicitly, because the agent's probes ask them over TLS and must know the port and the certificate. What the
user says about either is kept. :mod:`.probes` reads back what this module wrote.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from .context import Config, Ground, strings

_CERT_FILE, _CERT_DIRECTORY, _PORT = "tls-cert-file", "cert-dir", "secure-port"


@dataclass(frozen=True, slots=True)
class Component:
    name: str
    port: int

    @property
    def argument(self) -> str:
        return f"{self.name}-arg"

    @property
    def mounts(self) -> str:
        return f"{self.name}-extra-mount"


CONTROLLER_MANAGER = Component("kube-controller-manager", 10257)
SCHEDULER = Component("kube-scheduler", 10259)
BOTH = (CONTROLLER_MANAGER, SCHEDULER)


def add(ground: Ground, config: Config) -> None:
    """Tell both components of a control plane where their certificates and ports are."""
    for component in BOTH:
        arguments = strings(config.get(component.argument))
        if not value(arguments, _CERT_FILE):
            directory = value(arguments, _CERT_DIRECTORY)
            if not directory:
                directory = ground.tls(component.name)
                arguments = [*arguments, f"{_CERT_DIRECTORY}={directory}"]
            _mount(ground, component, directory, config)
        if not value(arguments, _PORT):
            arguments = [*arguments, f"{_PORT}={component.port}"]
        config[component.argument] = arguments


def listening(ground: Ground, component: Component, config: Config) -> tuple[str, str]:
    """The port of a component, and the path of the certificate that it shows."""
    arguments = strings(config.get(component.argument))
    directory = value(arguments, _CERT_DIRECTORY) or ground.tls(component.name)
    certificate = value(arguments, _CERT_FILE) or f"{directory}/{component.name}.crt"
    # A user names the paths of an ordinary host.
    return value(arguments, _PORT) or str(component.port), ground.layout.below(certificate)


def value(arguments: Iterable[str], name: str) -> str:
    """What `name=…` among a component's arguments says; the last word counts, as it does for the component."""
    said = [argument.removeprefix("--").partition("=") for argument in arguments]
    return next((content for key, _, content in reversed(said) if key == name), "")


def _mount(ground: Ground, component: Component, directory: str, config: Config) -> None:
    if not ground.runtime.runs_static_pods:
        return
    mount = f"{directory}:{directory}"
    mounted = strings(config.get(component.mounts))
    config[component.mounts] = mounted if mount in mounted else [*mounted, mount]
