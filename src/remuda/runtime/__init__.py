"""Informers, work queues and reconcilers on one Client."""

from .controller import Controller, Result
from .informer import Informer
from .queue import QueueClosed, WorkQueue

__all__ = ["Controller", "Informer", "QueueClosed", "Result", "WorkQueue"]
