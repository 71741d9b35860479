"""A cluster that is reached through a proxy: the real one, and what goes wrong on the way."""

import json
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from pools.providers.kubernetes import calling, client
from project.kernel.operations import Misconfigured, ProviderError
from tests.ground.stack import load
from tests.kube.proxy import Proxy
from tests.kube.slow import LASTS, LIMIT
from tests.kube.space import Space
from tests.kube.world import RealKube

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
def reach(real_kube: RealKube, space: Space, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Change:
    """The API server, by a kubeconfig whose cluster says more."""

    def reach(**more: Any) -> client.Api:
        config = json.loads(real_kube.kubeconfig.read_text())
        for cluster in config["clusters"]:
            cluster["cluster"] |= more
        (tmp_path / "config").write_text(json.dumps(config))
        monkeypatch.setenv("BERTH_KUBECONFIG", str(tmp_path / "config"))
        client.forget()
        return client.api_for({"context": "admin", "namespace": space.name})

    return reach


def address(world: RealKube) -> str:
    return world.url.removeprefix("https://")


def test_all_that_is_asked_goes_through_the_proxy_of_the_kubeconfig(reach: Change, real_kube: RealKube, space: Space, proxy: Proxy) -> None:
    api = reach(**{"proxy-url": proxy.url})
    before = {pod["metadata"]["name"] for pod in api.list_pods(ALL)}
    version = api.find_version(ALL)
    stream = api.watch_pods(ALL, version, 60, 30.0)
    events = iter(stream)
    space.create_pod("lab-1")
    assert next(event["object"]["metadata"]["name"] for event in events if event["type"] == "ADDED") == "lab-1"
    stream.break_off()
    with pytest.raises(calling.GONE):
        list(events)
    stream.close()
    assert {pod["metadata"]["name"] for pod in api.list_pods(ALL)} == before | {"lab-1"}
    pod = api.get_pod("lab-1")
    assert pod is not None
    api.delete_pod(pod, 0)
    assert set(proxy.asked) == {address(real_kube)}
    assert len(proxy.asked) == 2, "one tunnel for the watch, one for all the others"


def test_a_tunnel_that_is_cut_is_made_anew(reach: Change, proxy: Proxy) -> None:
    api = reach(**{"proxy-url": proxy.url})
    assert api.list_pods(ALL) == []
    stream = api.watch_pods(ALL, api.find_version(ALL), 60, 30.0)
    proxy.cut()
    with pytest.raises(calling.GONE):
        list(stream)
    stream.close()
    assert api.list_pods(ALL) == []
    assert len(proxy.asked) == 2, "the watch went through the one of the calls before it"


def test_a_name_that_only_the_proxy_knows_is_no_matter(reach: Change, real_kube: RealKube, plain: Proxy) -> None:
    """In another network, whose names nobody here can look up. The certificate is asked for the name that is told instead."""
    host, _, port = address(real_kube).partition(":")
    plain.leads["api.inside.example:6443"] = (host, int(port))
    told = {"server": "https://api.inside.example:6443", "proxy-url": plain.url, "tls-server-name": "127.0.0.1"}
    assert reach(**told).list_pods(ALL) == []
    assert plain.asked == ["api.inside.example:6443"]
    with pytest.raises(Misconfigured, match="certificate is not taken"):
        reach(**(told | {"tls-server-name": "somebody.else"})).list_pods(ALL)


@pytest.mark.parametrize("name", ["HTTPS_PROXY", "https_proxy", "ALL_PROXY"])
def test_the_environment_may_say_it(reach: Change, plain: Proxy, clean: pytest.MonkeyPatch, name: str) -> None:
    clean.setenv(name, plain.address)  # as many write it; kubectl takes that, too
    assert reach().list_pods(ALL) == []
    assert len(plain.asked) == 1


@pytest.mark.parametrize("left_out", ["127.0.0.1", "10.0.0.0/8,127.0.0.0/8", "*"])
def test_who_is_left_out_by_the_environment_is_reached_straight(
    reach: Change, plain: Proxy, clean: pytest.MonkeyPatch, left_out: str
) -> None:
    clean.setenv("HTTPS_PROXY", plain.url)
    clean.setenv("NO_PROXY", left_out)
    assert reach().list_pods(ALL) == []
    assert plain.asked == []


def test_what_the_kubeconfig_says_goes_before_the_environment(reach: Change, plain: Proxy, clean: pytest.MonkeyPatch) -> None:
    """Red where NO_PROXY counts for it, too: the private network that it names is not this cluster's."""
    clean.setenv("HTTPS_PROXY", "http://127.0.0.1:1")
    clean.setenv("NO_PROXY", "127.0.0.0/8")
    assert reach(**{"proxy-url": plain.url}).list_pods(ALL) == []
    assert len(plain.asked) == 1


@pytest.mark.parametrize("where", ["kubeconfig", "environment"])
def test_a_password_for_it_is_told_and_stands_in_no_error(reach: Change, plain: Proxy, clean: pytest.MonkeyPatch, where: str) -> None:
    plain.wants = "berth:p@ss w/ord"
    url = plain.url.replace("://", "://berth:p%40ss%20w%2Ford@")
    if where == "environment":
        clean.setenv("HTTPS_PROXY", url)
    told = {"proxy-url": url} if where == "kubeconfig" else {}
    api = reach(**told)
    assert api.list_pods(ALL) == []
    plain.wants = "berth:another"
    plain.cut()
    with pytest.raises(ProviderError, match=r"the proxy http://127.0.0.1:\d+ .*407 Proxy Authentication Required") as caught:
        api.list_pods(ALL)
    error: BaseException | None = caught.value
    while error is not None:
        assert not any(word in f"{error} {error!r}" for word in ("p@ss", "p%40ss"))
        error = error.__cause__ or error.__context__


# -- what goes wrong there -----------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("refusal", ["403 Forbidden", "502 Bad Gateway"])
def test_one_that_lets_nobody_through_says_so(reach: Change, proxy: Proxy, refusal: str) -> None:
    proxy.refusal = refusal
    with pytest.raises(ProviderError, match=rf"not reachable .*the proxy {proxy.url} .*{refusal}") as caught:
        reach(**{"proxy-url": proxy.url}).list_pods(ALL)
    assert type(caught.value) is ProviderError, "asked again"


def test_one_that_is_not_there_is_said(reach: Change, clean: pytest.MonkeyPatch) -> None:
    with pytest.raises(ProviderError, match="not reachable .*the proxy http://127.0.0.1:1 .*refused"):
        reach(**{"proxy-url": "http://127.0.0.1:1"}).list_pods(ALL)


def test_one_that_nobody_vouches_for_is_told_nothing(reach: Change, secure: Proxy, clean: pytest.MonkeyPatch) -> None:
    clean.delenv("SSL_CERT_FILE")
    with pytest.raises(Misconfigured, match=rf"the proxy {secure.url} .*certificate"):
        reach(**{"proxy-url": secure.url}).list_pods(ALL)
    assert secure.asked == []


@pytest.mark.parametrize("how", ["trickles", "is_mute"])
def test_one_that_does_not_come_to_an_end_is_given_up(reach: Change, proxy: Proxy, clean: pytest.MonkeyPatch, how: str) -> None:
    clean.setattr(calling, "TOTAL", LIMIT)
    clean.setattr(calling, "CONNECT", LASTS)
    setattr(proxy, how, True)
    begun = time.monotonic()
    with pytest.raises(ProviderError, match="not complete after 0.5 s"):
        reach(**{"proxy-url": proxy.url}).list_pods(ALL)
    assert time.monotonic() - begun < min(8.0 * load(), LASTS - 3)


@pytest.mark.parametrize(
    ("url", "words"),
    [
        ("socks5://127.0.0.1:1080", "it speaks socks5, Berth speaks http and https"),
        ("ftp://127.0.0.1:21", "it speaks ftp"),
        ("http://[::1", "Invalid IPv6"),
        ("http://127.0.0.1:port", "it has no address"),
        ("http://berth:pass/word@127.0.0.1:80", "it has no address"),
        ("http://", "it has no address"),
    ],
)
def test_one_that_can_be_none_is_said(reach: Change, clean: pytest.MonkeyPatch, url: str, words: str) -> None:
    with pytest.raises(Misconfigured, match=f"The proxy of context admin can't be used: .*{words}.* Name it like"):
        reach(**{"proxy-url": url}).list_pods(ALL)
