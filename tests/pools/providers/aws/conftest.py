"""Fixtures of the provider aws: one server for the run, an empty cloud for each test."""

from collections.abc import Iterator

import pytest

from tests.pools.providers.aws.elbv2_cloud import Cloud
from tests.pools.providers.aws.harness import use_cloud
from tests.pools.providers.aws.scene import AwsScene


@pytest.fixture
def cloud() -> Cloud:
    return Cloud()


@pytest.fixture
def scene(cloud: Cloud) -> Iterator[AwsScene]:
    with use_cloud(cloud) as address:
        yield AwsScene(cloud, address)
