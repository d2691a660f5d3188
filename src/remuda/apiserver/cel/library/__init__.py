"""The functions of CEL: `signatures` lists every overload, the other modules implement them.

`standard` is CEL's own, `strings`, `lists` its extensions, `kubernetes` and `network` what Kubernetes adds, `timestamps` as
Go's time package.
What a call costs is `../compiler/call_costs`. Begin with `signatures`.
"""
