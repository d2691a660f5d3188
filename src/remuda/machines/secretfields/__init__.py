"""Secret fields of machine configs, templates and machines: kept in Secrets, shown as markers.

:mod:`.markers` defines the markers that objects show. :mod:`.vault` keeps the values. :mod:`.admission` replaces values by
markers in every write. :mod:`.machinesecrets` moves values that older versions left in objects, and removes unused ones. Not
here: which fields are secret (:mod:`..nodedrivers.secrecy`), how a Job gets the values
(:mod:`..machineprovision.machine_inputs`). Read :mod:`.markers` first.
"""
