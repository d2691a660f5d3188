"""Informers, work queues and reconcilers on one Client."""

from .informer import Informer, without_managed_fields
from .informers import Informers, synced
from .queue import QueueClosed, WorkQueue
from .reflector import Pauses, Reflector, Sink
from .workers import Result, Retry, Workers, logger

__all__ = [
    "Informer",
    "Informers",
    "Pauses",
    "QueueClosed",
    "Reflector",
    "Result",
    "Retry",
    "Sink",
    "WorkQueue",
    "Workers",
    "logger",
    "synced",
    "without_managed_fields",
]
