"""Reading a live cluster: pages, credentials, refusals, and servers that are not there."""

from __future__ import annotations

import builtins
import ssl
import sys
from pathlib import Path
from typing import Any

import pytest

from berth.errors import InvalidInput, MissingExtra
from berth.live.client import Code
from berth.live.engines.kubernetes.cluster import read_live
from berth.live.kubernetes_api import AGAIN, ClusterRefused, ClusterSilent, connect_with_token
from tests.live.engines.kubernetes.api_server import ApiServer, certificates, encoded, kubeconfig, serving
from tests.live.engines.kubernetes.builders import node, pod

TOKEN = {"token": "secret"}


@pytest.fixture
def server() -> ApiServer:
    nodes = [node(f"n{i}") for i in range(5)]
    return ApiServer(nodes, [pod(f"p{i}", f"n{i % 5}") for i in range(7)], token="secret")


def test_lists_are_read_page_by_page_with_a_token(server: ApiServer, tmp_path: Path) -> None:
    with serving(server):
        cluster = read_live(kubeconfig(tmp_path, server.url, user=TOKEN), "here")
    assert [one.name for one in cluster.nodes] == [f"n{i}" for i in range(5)]
    assert [one.metadata.name for one in cluster.pods] == [f"p{i}" for i in range(7)]
    assert cluster.source == server.url
    assert len(server.asked) == 3 + 4
    assert all("limit=" in target for target in server.asked)


def test_a_client_certificate_over_tls(server: ApiServer, tmp_path: Path) -> None:
    cert, key = certificates(tmp_path)
    tls = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH, cafile=str(cert))
    tls.load_cert_chain(cert, key)
    tls.verify_mode = ssl.CERT_REQUIRED
    server.token = ""
    with serving(server, tls):
        user = {"client-certificate-data": encoded(cert), "client-key-data": encoded(key)}
        config = kubeconfig(tmp_path, server.url, {"certificate-authority-data": encoded(cert)}, user)
        assert len(read_live(config).nodes) == 5
        with pytest.raises(ClusterSilent, match="no answer from the API server"):
            read_live(kubeconfig(tmp_path, server.url, {"certificate-authority-data": encoded(cert)}))
        with pytest.raises(ClusterSilent, match="CERTIFICATE_VERIFY_FAILED"):
            read_live(kubeconfig(tmp_path, server.url, user=user))


@pytest.mark.parametrize("what", ["nodes", "pods"])
def test_a_missing_right_is_named(server: ApiServer, tmp_path: Path, what: str) -> None:
    server.forbidden = (what,)
    with serving(server), pytest.raises(ClusterRefused, match=rf"list {what} in all .*resources: \[{what}\]") as error:
        read_live(kubeconfig(tmp_path, server.url, user=TOKEN))
    assert error.value.code == Code.not_allowed


def test_other_refusals(server: ApiServer, tmp_path: Path) -> None:
    with serving(server):
        with pytest.raises(ClusterRefused, match=r"are not accepted \(401 Unauthorized\)") as error:
            read_live(kubeconfig(tmp_path, server.url, user={"token": "wrong"}))
        assert error.value.code == Code.not_allowed
        server.broken = 404
        with pytest.raises(ClusterRefused, match="/api/v1/nodes: 404 Not Found"):
            read_live(kubeconfig(tmp_path, server.url, user=TOKEN))


def test_a_list_that_expires_is_begun_again(server: ApiServer, tmp_path: Path) -> None:
    server.expire = AGAIN - 1
    with serving(server):
        assert len(read_live(kubeconfig(tmp_path, server.url, user=TOKEN)).nodes) == 5
        server.expire = AGAIN
        with pytest.raises(ClusterRefused, match=f"the list of nodes expired {AGAIN} times"):
            read_live(kubeconfig(tmp_path, server.url, user=TOKEN))


def test_nobody_answers(server: ApiServer, tmp_path: Path) -> None:
    with serving(server):
        pass
    with pytest.raises(ClusterSilent, match=r"http://127\.0\.0\.1:\d+: no answer .*Connection refused") as error:
        read_live(kubeconfig(tmp_path, server.url))
    assert error.value.code == Code.unreachable


def test_bad_kubeconfigs_are_refused(tmp_path: Path) -> None:
    with pytest.raises(InvalidInput, match=r"none.*expected a kubeconfig file"):
        read_live(tmp_path / "none")
    with pytest.raises(InvalidInput, match=r"there.*expected a kubeconfig file"):
        read_live(kubeconfig(tmp_path, "http://127.0.0.1:1"), "there")
    (tmp_path / "kubeconfig").write_text("a: [")
    with pytest.raises(InvalidInput, match=r"kubeconfig: got .*expected a kubeconfig file"):
        read_live(tmp_path / "kubeconfig")


def test_the_client_is_an_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    real = builtins.__import__

    def without(name: str, *rest: Any) -> Any:
        if name.partition(".")[0] == "kubernetes":
            raise ImportError(name)
        return real(name, *rest)

    monkeypatch.setattr(builtins, "__import__", without)
    with pytest.raises(MissingExtra, match=r"pip install 'berth-scheduler\[kubernetes\]'"):
        read_live()


def test_a_token_needs_no_official_client(server: ApiServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "kubernetes", None)
    cert, key = certificates(tmp_path)
    tls = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    tls.load_cert_chain(cert, key)
    with serving(server, tls):
        for trusted in ({"certificate-authority-data": encoded(cert)}, {"certificate-authority": cert.name}):
            api = connect_with_token(kubeconfig(tmp_path, server.url, trusted, TOKEN))
            assert len(api.list("/api/v1/nodes")[0]) == 5
            api.close()
        with pytest.raises(ClusterSilent, match="CERTIFICATE_VERIFY_FAILED"):
            connect_with_token(kubeconfig(tmp_path, server.url, user=TOKEN)).list("/api/v1/nodes")
    for wrong in (tmp_path / "none", kubeconfig(tmp_path, server.url, user={"username": "a"})):
        with pytest.raises(InvalidInput, match="a kubeconfig with a current context whose user has a token"):
            connect_with_token(wrong)
    monkeypatch.setitem(sys.modules, "urllib3", None)
    with pytest.raises(MissingExtra, match=r"pip install 'berth-scheduler\[kubernetes\]'"):
        connect_with_token(tmp_path / "kubeconfig")


def test_some_errors_pass() -> None:
    assert all(ClusterRefused("no", status).passing for status in (429, 500, 503))
    assert not any(ClusterRefused("no", status).passing for status in (401, 404, 409))
    assert ClusterSilent("no answer").passing
