"""A plan and its application on a host: parse (``plan``), decide (pure), apply files, one-time and periodic instructions,
probes; journal and outputs.

Standard library only, Python 3.9.
Not here: the source of plans and the target of reports (``remote_mode``, ``local_mode``).
Read ``apply`` first, then ``decide``.
"""
