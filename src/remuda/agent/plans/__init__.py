"""A plan and its application on a host: parse (``plan``), decide (pure), apply files, one-time and periodic instructions,
probes; journal and outputs.

Where plans come from and where reports go is ``remote_mode``/``local_mode``.
Standard library only, Python 3.9.
Read ``apply`` first, then ``decide``.
"""
