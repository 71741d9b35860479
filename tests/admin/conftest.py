import pytest
from django.contrib.auth.models import User
from django.test import Client


@pytest.fixture
def boss(client: Client, db: None) -> Client:
    client.force_login(User.objects.create_superuser("boss"))
    return client
