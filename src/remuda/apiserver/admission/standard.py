"""The chain every Remuda API server runs: kube-apiserver's default plug-ins in its order, our hooks, then webhooks."""

from __future__ import annotations

from remuda.kube.clock import Clock, Entropy, Rng

from ..source import ObjectSource
from ..webhook_client import WebhookClient
from . import Plugin
from .chain import Chain, Hooks
from .defaults import (
    CertificateSubjectRestriction,
    DefaultTolerationSeconds,
    Priority,
    StorageObjectInUseProtection,
    TaintNodesByCondition,
)
from .matching import Kinds
from .namespaces import NamespaceLifecycle
from .serviceaccounts import ServiceAccounts
from .webhooks import MutatingWebhooks, ValidatingWebhooks


def standard_chain(
    source: ObjectSource,
    clock: Clock,
    rng: Rng,
    entropy: Entropy,
    *,
    kinds: Kinds,
    client: WebhookClient,
    hooks: Hooks | None = None,
) -> Chain:
    plugins: list[Plugin] = [
        NamespaceLifecycle(source),
        ServiceAccounts(source, clock, rng),
        TaintNodesByCondition(),
        Priority(source),
        DefaultTolerationSeconds(),
        StorageObjectInUseProtection(),
        CertificateSubjectRestriction(),
    ]
    if hooks is not None:
        plugins.append(hooks)
    plugins.append(MutatingWebhooks(source, kinds, client, entropy))
    plugins.append(ValidatingWebhooks(source, kinds, client, entropy))
    return Chain(plugins)
