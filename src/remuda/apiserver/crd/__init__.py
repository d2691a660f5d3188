"""CustomResourceDefinitions: what one may say, what becomes of it, and how its objects are served.

CEL and the schema compiler take a fifth of a server's start to load, and one without definitions never needs them. So whatever
every server loads (:mod:`.definition_strategy`, :mod:`.conditions`, :mod:`..discovery.openapi_schemas`,
:mod:`remuda.apiserver.crd.custom_resources`) imports them late, with the first definition that comes along; match conditions of
webhooks, which are CEL too, do the same.
"""
