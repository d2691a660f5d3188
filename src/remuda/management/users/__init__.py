"""Users, their passwords and their tokens: how they are kept, made, judged, and cleaned up after.

:mod:`.people`, :mod:`.tokens`, :mod:`.tokenhashes` and :mod:`.passwords` are pure; :mod:`.keeping` has the Secrets of passwords,
:mod:`.first` makes the first administrator, :mod:`.controllers` let tokens go, and :mod:`.admission` says what may be written of
either kind. How a caller shows a token, and how one logs in, is the gateway's business (:mod:`remuda.gateway.identity`).
"""
