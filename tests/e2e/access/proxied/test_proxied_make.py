"""As in `tests/api`, through the proxy."""

from tests.api.test_kubectl_make import *  # noqa: F403
