"""A cluster behind a proxy: a real tunnel, and every failure on the way."""

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import urllib3

from project.kernel.kubernetes import client, oidc, proxies
from project.kernel.kubernetes import request as kubernetes_request
from project.kernel.outbox.operations import Misconfigured, ProviderError
from tests.kernel.kubernetes.slow_server import LASTS, LIMIT
from tests.kubernetes_cluster.clusters import RealKube
from tests.kubernetes_cluster.connect_proxy import Proxy
from tests.kubernetes_cluster.namespace import Space

Change = Callable[..., client.Api]
ALL = "berth.dev/x!=y"


@pytest.fixture
def clean(monkeypatch: pytest.MonkeyPatch) -> pytest.MonkeyPatch:
    """An environment that names no proxy."""
    for name in ("HTTPS_PROXY", "HTTP_PROXY", "NO_PROXY", "ALL_PROXY"):
        monkeypatch.delenv(name, raising=False)
        monkeypatch.delenv(name.lower(), raising=False)
    return monkeypatch


@pytest.fixture
def plain(tmp_path: Path, clean: pytest.MonkeyPatch) -> Iterator[Proxy]:
    proxy = Proxy(tmp_path)
    yield proxy
    client.forget()
    proxy.close()


@pytest.fixture
def secure(tmp_path: Path, clean: pytest.MonkeyPatch) -> Iterator[Proxy]:
    proxy = Proxy(tmp_path, is_secure=True)
    clean.setenv("SSL_CERT_FILE", proxy.authority)  # what this machine trusts
    yield proxy
    client.forget()
    proxy.close()


@pytest.fixture(params=["plain", "secure"])
def proxy(request: pytest.FixtureRequest) -> Proxy:
    found: Proxy = request.getfixturevalue(request.param)
    return found


@pytest.fixture
def space(real_kube: RealKube) -> Iterator[Space]:
    space = Space(real_kube)
    space.make()
    yield space
    space.remove()


@pytest.fixture
def reach(
    real_kube: RealKube, space: Space, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Change:
    """The API server, through a kubeconfig with more fields of its cluster."""

    def reach(**more: Any) -> client.Api:
        config = json.loads(real_kube.kubeconfig.read_text())
        for cluster in config["clusters"]:
            cluster["cluster"] = {
                name: value
                for name, value in (cluster["cluster"] | more).items()
                if value is not None
            }
        (tmp_path / "config").write_text(json.dumps(config))
        monkeypatch.setenv("BERTH_KUBECONFIG", str(tmp_path / "config"))
        client.forget()
        return client.api_for({"context": "admin", "namespace": space.name})

    return reach


@pytest.fixture
def elsewhere(real_kube: RealKube, plain: Proxy) -> dict[str, str]:
    """Fields of a kubeconfig with a server name that only the proxy knows."""
    host, _, port = address(real_kube).partition(":")
    plain.leads["api.inside.example:6443"] = (host, int(port))
    return {"server": "https://api.inside.example:6443", "tls-server-name": "127.0.0.1"}


def address(world: RealKube) -> str:
    return world.url.removeprefix("https://")


def test_all_calls_use_the_proxy_of_the_kubeconfig(
    reach: Change, real_kube: RealKube, space: Space, proxy: Proxy
) -> None:
    api = reach(**{"proxy-url": proxy.url})
    before = {pod["metadata"]["name"] for pod in api.list_pods(ALL)}
    version = api.find_version(ALL)
    stream = api.watch_pods(ALL, version, 60, 30.0)
    events = iter(stream)
    space.create_pod("lab-1")
    assert (
        next(event["object"]["metadata"]["name"] for event in events if event["type"] == "ADDED")
        == "lab-1"
    )
    stream.break_off()
    with pytest.raises(kubernetes_request.GONE):
        list(events)
    stream.close()
    assert {pod["metadata"]["name"] for pod in api.list_pods(ALL)} == before | {"lab-1"}
    pod = api.get_pod("lab-1")
    assert pod is not None
    api.delete_pod(pod, 0)
    assert set(proxy.asked) == {address(real_kube)}
    assert len(proxy.asked) == 2, "one tunnel for the watch, one for all the others"


def test_cut_tunnel_is_reopened(reach: Change, proxy: Proxy) -> None:
    api = reach(**{"proxy-url": proxy.url})
    assert api.list_pods(ALL) == []
    stream = api.watch_pods(ALL, api.find_version(ALL), 60, 30.0)
    proxy.cut()
    with pytest.raises(kubernetes_request.GONE):
        list(stream)
    stream.close()
    assert api.list_pods(ALL) == []
    assert len(proxy.asked) == 2, "the watch went through the one of the calls before it"


def test_proxy_resolves_the_server_name_and_tls_checks_it(
    reach: Change, elsewhere: dict[str, str], plain: Proxy
) -> None:
    """In another network, whose names this machine cannot look up. The certificate is checked
    for the configured name.
    """
    told = elsewhere | {"proxy-url": plain.url}
    assert reach(**told).list_pods(ALL) == []
    assert plain.asked == ["api.inside.example:6443"]
    with pytest.raises(Misconfigured, match="certificate of the cluster is not trusted"):
        reach(**(told | {"tls-server-name": "somebody.else"})).list_pods(ALL)


@pytest.mark.parametrize("name", ["HTTPS_PROXY", "https_proxy"])
def test_proxy_of_the_environment_is_used(
    reach: Change, elsewhere: dict[str, str], plain: Proxy, clean: pytest.MonkeyPatch, name: str
) -> None:
    clean.setenv(name, plain.address)  # as many write it; kubectl takes that, too
    assert reach(**elsewhere).list_pods(ALL) == []
    assert plain.asked == ["api.inside.example:6443"]


def test_server_on_this_machine_is_reached_without_the_environment_proxy(
    reach: Change, plain: Proxy, clean: pytest.MonkeyPatch
) -> None:
    """A tunnel, or a cluster in a container, on a machine whose environment names a proxy."""
    clean.setenv("HTTPS_PROXY", plain.url)
    assert reach().list_pods(ALL) == []
    assert plain.asked == []


@pytest.mark.parametrize(
    ("server", "told", "is_out"),
    [
        ("https://api.example.com", "", False),
        ("https://api.example.com", "*", True),
        ("https://api.example.com", "example.com", True),
        ("https://api.example.com", ".example.com", True),
        ("https://api.example.com", " other.org , *.EXAMPLE.com ", True),
        ("https://example.com", ".example.com", False),
        ("https://example.com", "example.com", True),
        ("https://badexample.com", "example.com", False),
        ("https://api.example.com", "api.example.com:443", True),
        ("https://api.example.com:6443", "api.example.com:443", False),
        ("https://api.example.com:6443", "api.example.com:6443", True),
        ("https://10.1.2.3:6443", "10.0.0.0/8", True),
        ("https://11.1.2.3:6443", "10.0.0.0/8", False),
        ("https://10.1.2.3:6443", "10.1.2.3", True),
        ("https://10.1.2.3:6443", "10.1.2", False),
        ("https://api.example.com", "10.0.0.0/8,nonsense/99", False),
        ("https://[fd00::1]:6443", "fd00::/8", True),
        ("https://[fd00::1]:6443", "[fd00::1]:6443", True),
        ("https://[fd00::1]:6443", "fd00::1", True),
        ("https://127.0.0.1:6443", "", True),
        ("https://[::1]:6443", "", True),
        ("https://localhost:6443", "", True),
    ],
)
def test_no_proxy_matches_hosts_like_go(server: str, told: str, is_out: bool) -> None:
    """As Go does it, and so kubectl."""
    assert proxies.is_left_out(server, told) == is_out


@pytest.mark.parametrize(
    "more", [{"NO_PROXY": ".example"}, {"HTTPS_PROXY": ""}], ids=["left out", "of another scheme"]
)
def test_unusable_proxy_that_does_not_apply_is_ignored(
    clean: pytest.MonkeyPatch, more: dict[str, str]
) -> None:
    for name, value in (
        {"HTTPS_PROXY": "socks5://127.0.0.1:1080", "ALL_PROXY": "socks5://127.0.0.1:1080"} | more
    ).items():
        clean.setenv(name, value)
    assert proxies.of_environment("https://api.inside.example:6443") == ""


def test_proxy_of_the_kubeconfig_overrides_the_environment(
    reach: Change, plain: Proxy, clean: pytest.MonkeyPatch
) -> None:
    """Red where NO_PROXY counts for it, too: the private network that it names is not
    this cluster's.
    """
    clean.setenv("HTTPS_PROXY", "http://127.0.0.1:1")
    clean.setenv("NO_PROXY", "127.0.0.0/8")
    assert reach(**{"proxy-url": plain.url}).list_pods(ALL) == []
    assert len(plain.asked) == 1


@pytest.mark.parametrize("where", ["kubeconfig", "environment"])
def test_proxy_password_is_sent_and_appears_in_no_error(
    reach: Change, elsewhere: dict[str, str], plain: Proxy, clean: pytest.MonkeyPatch, where: str
) -> None:
    plain.wants = "berth:p@ss w/ört€"
    url = plain.url.replace("://", "://berth:p%40ss%20w%2F%C3%B6rt%E2%82%AC@")
    if where == "environment":
        clean.setenv("HTTPS_PROXY", url)
    api = reach(**(elsewhere | ({"proxy-url": url} if where == "kubeconfig" else {})))
    assert api.list_pods(ALL) == []
    plain.wants = "berth:another"
    plain.cut()
    with pytest.raises(
        ProviderError, match=r"the proxy http://127.0.0.1:\d+ .*407 Proxy Authentication Required"
    ) as caught:
        api.list_pods(ALL)
    error: BaseException | None = caught.value
    while error is not None:
        assert not any(word in f"{error} {error!r}" for word in ("p@ss", "p%40ss"))
        error = error.__cause__ or error.__context__


def test_identity_provider_is_reached_through_the_environment_proxy(
    plain: Proxy, clean: pytest.MonkeyPatch
) -> None:
    """Where only the proxy leads outside, tokens would never be renewed."""
    clean.setenv("HTTPS_PROXY", plain.url)
    plain.refusal = "403 Forbidden"
    with pytest.raises(urllib3.exceptions.ProxyError, match="403 Forbidden"):
        oidc._request("GET", "https://idp.inside.example/.well-known/openid-configuration", {})
    assert plain.asked == ["idp.inside.example:443"]
    clean.setenv("HTTPS_PROXY", "socks5://127.0.0.1:1080")
    with pytest.raises(
        Misconfigured, match="The proxy of the identity provider can't be used: it speaks socks5"
    ):
        oidc._request("GET", "https://idp.inside.example/", {})


# -- what goes wrong there -------------------------------------------------------------------------


@pytest.mark.parametrize("refusal", ["403 Forbidden", "502 Bad Gateway"])
def test_refusal_of_the_proxy_is_reported_and_retried(
    reach: Change, proxy: Proxy, refusal: str
) -> None:
    proxy.refusal = refusal
    with pytest.raises(
        ProviderError, match=rf"not reachable .*the proxy {proxy.url} .*{refusal}"
    ) as caught:
        reach(**{"proxy-url": proxy.url}).list_pods(ALL)
    assert type(caught.value) is ProviderError, "asked again"


def test_unreachable_proxy_is_reported(reach: Change, clean: pytest.MonkeyPatch) -> None:
    with pytest.raises(
        ProviderError, match="not reachable .*the proxy http://127.0.0.1:1 .*refused"
    ):
        reach(**{"proxy-url": "http://127.0.0.1:1"}).list_pods(ALL)


def test_proxy_with_an_untrusted_certificate_receives_no_request(
    reach: Change, secure: Proxy, clean: pytest.MonkeyPatch
) -> None:
    clean.delenv("SSL_CERT_FILE")
    with pytest.raises(Misconfigured, match=rf"the proxy {secure.url} .*certificate"):
        reach(**{"proxy-url": secure.url}).list_pods(ALL)
    assert secure.asked == []


@pytest.mark.parametrize("how", ["trickles", "is_mute"])
def test_proxy_that_never_completes_times_out(
    reach: Change, proxy: Proxy, clean: pytest.MonkeyPatch, how: str
) -> None:
    clean.setattr(kubernetes_request, "TOTAL", LIMIT)
    clean.setattr(kubernetes_request, "CONNECT", LASTS)
    setattr(proxy, how, True)
    with pytest.raises(ProviderError, match="not complete after 0.5 s"):
        reach(**{"proxy-url": proxy.url}).list_pods(ALL)
    assert not proxy.has_given_up


@pytest.mark.parametrize(
    ("url", "words"),
    [
        ("socks5://127.0.0.1:1080", "it speaks socks5, Berth speaks http and https"),
        ("ftp://127.0.0.1:21", "it speaks ftp"),
        ("http://[::1", "it is no address"),
        ("http://127.0.0.1:port", "it is no address"),
        ("http://berth:secret/word@127.0.0.1:80", "it is no address"),
        ("http://berth:pa[secret]x@127.0.0.1:80", "it is no address"),
        ("http://berth:secret\uff1ax@127.0.0.1:80", "it is no address"),
        ("http://", "it is no address"),
    ],
)
def test_invalid_proxy_url_is_reported_without_its_password(
    reach: Change, clean: pytest.MonkeyPatch, url: str, words: str
) -> None:
    with pytest.raises(
        Misconfigured, match=f"The proxy of context admin can't be used: .*{words}.* Name it like"
    ) as caught:
        reach(**{"proxy-url": url}).list_pods(ALL)
    assert "secret" not in f"{caught.value} {caught.value.__cause__}"


@pytest.mark.parametrize("how", ["is_mute", "hangs_up"])
def test_silent_proxy_is_blamed_and_not_the_cluster(
    reach: Change, proxy: Proxy, clean: pytest.MonkeyPatch, how: str
) -> None:
    """Red where the library takes it for reached: it would be said that the cluster does
    not answer.
    """
    clean.setattr(kubernetes_request, "CONNECT", 0.5)
    setattr(proxy, how, True)
    words = "no answer within 0.5 s" if how == "is_mute" else "."
    with pytest.raises(
        ProviderError, match=rf"the proxy {proxy.url} opens no connection: .*{words}"
    ) as caught:
        reach(**{"proxy-url": proxy.url}).list_pods(ALL)
    assert type(caught.value) is ProviderError, "asked again"


def test_unreadable_certificate_authority_is_reported(
    reach: Change, secure: Proxy, tmp_path: Path
) -> None:
    (tmp_path / "authority").write_text("rubbish")
    told = {
        "proxy-url": secure.url,
        "certificate-authority": str(tmp_path / "authority"),
        "certificate-authority-data": None,
    }
    with pytest.raises(Misconfigured, match="The authority of context admin can't be read"):
        reach(**told).list_pods(ALL)
