"""Informers, work queues and reconcilers on one Client."""
