"""Informers, work queues and reconcilers on one Client."""

from .informer import Informer
from .queue import QueueClosed, WorkQueue
from .reflector import Reflector, Sink
from .workers import Result, Retry, Workers, logger

__all__ = ["Informer", "QueueClosed", "Reflector", "Result", "Retry", "Sink", "WorkQueue", "Workers", "logger"]
