from tests.pools.providers.kubernetes.conftest import begin

__all__ = ["begin"]
