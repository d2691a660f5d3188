"""Secret fields of machine configs, templates and machines: kept in Secrets, shown as markers.

:mod:`.markers` is what an object shows instead of a value. :mod:`.vault` keeps the values. :mod:`.admission` replaces values by
markers in every write. :mod:`.machinesecrets` moves values that older versions left in objects, and removes those that no object
refers to any more. Which fields are secret is :mod:`..nodedrivers.secrecy`; the program of a Job gets the values by
:mod:`..machineprovision.machine_inputs`.
"""
