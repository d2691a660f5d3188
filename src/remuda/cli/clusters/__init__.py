"""Looking at clusters from the command line: `remuda cluster`, `remuda machine` and `remuda explain`.

:mod:`.looking` reads what the server has into a :class:`~.sight.Sight`. The rest is pure: :mod:`.states` judges, :mod:`.trees`
draws, :mod:`.chains` follows what is waited for, :mod:`.advice` says what to do about it. :mod:`.screen` keeps a picture
up to date.
"""
