"""Bytes and texts in and out: JSON and YAML as Kubernetes reads them, JSON patches and JSONPath, Go's formatting of values.

`jsonio` and `yamlio` are the only parsers in use; `gojson` and `go_format` repeat Go byte for byte.
Not here: strategic merge patch and server-side apply, which need types (`apiserver/apply/`), protobuf (`apiserver/scheme/`).
Begin with `jsonio`.
"""
