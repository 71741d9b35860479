from tests.api.conftest import caller

__all__ = ["caller"]
