"""`remuda provision create|rm`: what a Job runs to make a machine or to take it away, called as rancher-machine is.

:mod:`.arguments` reads the command line, :mod:`.program` does what it says with a driver (:mod:`remuda.machines.driver`), or by
way of the real rancher-machine for drivers that are not in Python (:mod:`.foreign`). What must not be forgotten is in a
:class:`.store.Store`: files that look as rancher-machine's do, kept in the machine's state Secret.
"""

from __future__ import annotations
