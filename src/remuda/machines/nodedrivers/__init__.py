"""Node drivers and their kinds: the drivers, the fields of each, and its three definitions (`<D>Config`, `<D>Machine`,
`<D>MachineTemplate`) that exist as long as it does (docs/reference/machines.md).

```
 NodeDriver ──► nodedriver ──► DynamicSchema <d>config, <d>credentialconfig ──► dynamicschema ──► three definitions
 builtin_drivers   flag_sources: flags of a Python driver,   schema_fields         machine_crds
                   of rancher-machine, or flags.json
```

The controllers are :mod:`.nodedriver` and :mod:`.dynamicschema`; :mod:`.admission` checks writes of drivers and of
cloud credentials. Not here: the drivers themselves (`..drivers`). Read :mod:`.nodedriver` first.
"""
