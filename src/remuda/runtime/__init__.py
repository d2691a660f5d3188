"""Informers, work queues and controllers on one Client; `docs/controllers.md` shows how to write one."""

from .controller import Controller, Reconciler, Watch, any_change, itself, label, owner, spec_change
from .events import NORMAL, WARNING, Recorder
from .freshness import Freshness
from .informer import Informer, without_managed_fields
from .informers import Informers, synced
from .leader import Elector, NotLeading, Term
from .lifecycle import Manager, Working
from .metrics import Registry
from .queue import QueueClosed, WorkQueue
from .reflector import Pauses, Reflector, Sink
from .workers import DONE, Result, Retry, Workers, logger

__all__ = [
    "DONE",
    "NORMAL",
    "WARNING",
    "Controller",
    "Elector",
    "Freshness",
    "Informer",
    "Informers",
    "Manager",
    "NotLeading",
    "Pauses",
    "QueueClosed",
    "Reconciler",
    "Recorder",
    "Reflector",
    "Registry",
    "Result",
    "Retry",
    "Sink",
    "Term",
    "Watch",
    "WorkQueue",
    "Workers",
    "Working",
    "any_change",
    "itself",
    "label",
    "logger",
    "owner",
    "spec_change",
    "synced",
    "without_managed_fields",
]
