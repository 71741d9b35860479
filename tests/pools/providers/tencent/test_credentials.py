"""Credentials, the first import of the SDK, and what a refused account reports."""

import subprocess
import sys
from pathlib import Path

import pytest
from tencentcloud.common.credential import OIDCRoleArnCredential

from pools.providers.tencent import sdk
from pools.providers.tencent.provider import TencentProvider
from project.kernel.outbox.operations import Unauthorised
from tests.pools.providers.tencent.harness import forget_all
from tests.pools.providers.tencent.scene import Scene

NAMES = (
    "TENCENTCLOUD_SECRET_ID", "TENCENTCLOUD_SECRET_KEY", "TKE_ROLE_ARN", "TKE_REGION",
    "TKE_PROVIDER_ID", "TKE_WEB_IDENTITY_TOKEN_FILE",
)  # fmt: skip


@pytest.fixture
def bare(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> pytest.MonkeyPatch:
    """A machine outside of the cloud, without any credentials."""
    for name in NAMES:
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setattr(
        sdk.CVMRoleCredential, "_metadata_endpoint", "http://metadata.invalid/latest/meta-data/"
    )
    forget_all()
    return monkeypatch


def test_import_of_the_provider_imports_no_sdk() -> None:
    code = (
        "import django, os, sys; os.environ['DJANGO_SETTINGS_MODULE'] = 'project.settings.test';"
        "django.setup(); import pools.providers.tencent.provider;"
        "sys.exit(any(name.startswith('tencentcloud') for name in sys.modules))"
    )
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


def test_missing_credentials_are_a_named_error(bare: pytest.MonkeyPatch) -> None:
    with pytest.raises(Unauthorised, match="TENCENTCLOUD_SECRET_ID"):
        sdk.find_credential()


def test_credentials_come_from_the_environment_before_files(
    bare: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    (tmp_path / ".tencentcloud").mkdir()
    (tmp_path / ".tencentcloud" / "credentials").write_text(
        "[default]\nsecret_id = AKIDfile\nsecret_key = file\n"
    )
    assert sdk.find_credential()[1] == "key AKIDfile"
    bare.setenv("TENCENTCLOUD_SECRET_ID", "AKIDenv")
    bare.setenv("TENCENTCLOUD_SECRET_KEY", "env")
    assert sdk.find_credential()[1] == "key AKIDenv"


def test_role_of_a_tke_pod_comes_before_files(bare: pytest.MonkeyPatch, tmp_path: Path) -> None:
    (tmp_path / ".tencentcloud").mkdir()
    (tmp_path / ".tencentcloud" / "credentials").write_text(
        "[default]\nsecret_id = AKIDfile\nsecret_key = file\n"
    )
    (tmp_path / "token").write_text("jwt")
    role = "qcs::cam::uin/100000000001:roleName/berth"
    bare.setenv("TKE_ROLE_ARN", role)
    with pytest.raises(Unauthorised, match="TKE_REGION"):
        sdk.find_credential()
    bare.setenv("TKE_REGION", "ap-guangzhou")
    bare.setenv("TKE_PROVIDER_ID", "tke")
    bare.setenv("TKE_WEB_IDENTITY_TOKEN_FILE", str(tmp_path / "token"))
    credential, identity = sdk.find_credential()
    assert identity == f"role {role}"
    assert isinstance(credential, OIDCRoleArnCredential)


def test_wrong_key_is_refused_at_the_provider_and_heals_with_the_right_one(
    scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as wrong:
        wrong.setenv("TENCENTCLOUD_SECRET_KEY", "wrong")
        (fault,) = TencentProvider().check(scene.pool())
        assert fault.field == "provider"
        assert "SignatureFailure" in fault.message
        with pytest.raises(Unauthorised):
            scene.sync(scene.new_member())
    assert TencentProvider().check(scene.pool()) == []
    assert scene.sync(scene.new_member()).is_ready


def test_missing_right_is_named_with_its_action(scene: Scene) -> None:
    scene.world.allowed = {"DescribeLoadBalancers"}
    with pytest.raises(Unauthorised, match=r"CreateLoadBalancer failed .* docs/tencent\.md"):
        scene.sync(scene.new_member())
    (fault,) = TencentProvider().check(scene.pool())
    assert "DescribeQuota" in fault.message


def test_wrong_region_is_an_error_at_its_field(scene: Scene) -> None:
    scene.options = {"region": "ap-nowhere"}
    (fault,) = TencentProvider().check(scene.pool())
    assert fault.field == "provider.region"


def test_load_balancer_of_the_user_is_checked_in_advance(scene: Scene) -> None:
    classic = scene.world.add_balancer(forward=0)
    faults = TencentProvider().check(
        scene.pool(
            scene.use_existing(classic, 1),
            scene.use_existing(scene.world.add_balancer(), 2),
        )
    )
    assert ["classic" in fault.message for fault in faults] == [True]
    del scene.world.balancers[classic.id]
    (fault,) = TencentProvider().check(scene.pool(scene.use_existing(classic, 1)))
    assert fault.field == "provider.region" and classic.id in fault.message


def test_silent_cloud_is_no_fault_of_the_configuration(scene: Scene) -> None:
    scene.server.close()
    try:
        assert TencentProvider().check(scene.pool()) == []
    finally:
        scene.server.open()
