"""The parts of controllers: informers, work queues, workers, leader election, events, patches; webhooks for our own types.

A controller is declared in `controller`, run by `lifecycle.Manager`; `docs/controllers.md` shows how to write one.
Not here: the controllers and the programs that run them (`app/`), the embedded API's admission chain (`apiserver/admission/`).
Begin with `controller`, then `lifecycle`.
"""

from .controller import Controller, Reconciler, Watch, any_change, changed, created_or_deleted, itself, label, owner, spec_change
from .events import NORMAL, WARNING, Recorder
from .informer import Informer, Informers, synced, without_managed_fields
from .leader_election import Elector, LeaseTerm, NotLeading
from .lifecycle import Manager, RunningController
from .metrics import Registry
from .reflector import Pauses, Reflector, Sink
from .work_queue import QueueClosed, WorkQueue
from .workers import DONE, Freshness, Result, Retry, Workers, logger

__all__ = [
    "DONE",
    "NORMAL",
    "WARNING",
    "Controller",
    "Elector",
    "Freshness",
    "Informer",
    "Informers",
    "LeaseTerm",
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
    "RunningController",
    "Sink",
    "Watch",
    "WorkQueue",
    "Workers",
    "any_change",
    "changed",
    "created_or_deleted",
    "itself",
    "label",
    "logger",
    "owner",
    "spec_change",
    "synced",
    "without_managed_fields",
]
