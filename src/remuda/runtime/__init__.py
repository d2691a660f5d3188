"""Informers, work queues and reconcilers on one Client."""

from .controller import Controller, Result, Retry
from .informer import Informer
from .queue import QueueClosed, WorkQueue
from .reflector import Reflector, Sink

__all__ = ["Controller", "Informer", "QueueClosed", "Reflector", "Result", "Retry", "Sink", "WorkQueue"]
