"""Node drivers and the kinds that they bring: which drivers there are, what fields each has, and the three definitions
(`<D>Config`, `<D>Machine`, `<D>MachineTemplate`) that come and go with it (protocols.md §6).

```
 NodeDriver ──► nodedriver ──► DynamicSchema <d>config, <d>credentialconfig ──► dynamicschema ──► three definitions
 builtin_drivers   flag_sources: flags of a Python driver,   schema_fields         machine_crds
                   of rancher-machine, or flags.json
```

The controllers are :mod:`.nodedriver` and :mod:`.dynamicschema`; :mod:`.admission` says what may be written,
:mod:`.credential_admission` what a cloud credential must have. Not here: the drivers themselves (`..drivers`).
Read :mod:`.nodedriver` first.
"""
