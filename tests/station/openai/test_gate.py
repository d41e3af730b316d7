"""Who may come in: keys, hosts, origins, kinds of body; and what is said to whom."""

from __future__ import annotations

import logging
from collections.abc import Callable
from pathlib import Path
from typing import Any

import httpx
import pytest
from starlette.routing import Route

from k3d.errors import ConfigError
from k3d.node.http import bind
from k3d.station.openai.keys import KeyFile
from k3d.station.openai.server import ApiServer, check_exposure
from tests.fabric.summing_spark import until
from tests.station.openai.conftest import MODEL, Api

Start = Callable[..., Api]
KEY = "sk-canary-0123456789abcdef"
OTHER = "sk-second-0123456789abcdef"
OPEN = {"/health", "/ready", "/ping"}


def write_keys(home: Path, *keys: str, mode: int = 0o600) -> Path:
    path = home / "api-keys"
    path.write_text("\n".join(keys) + "\n")
    path.chmod(mode)
    return home


def root(api: Api) -> str:
    return api.server.url.removesuffix("/v1")


def routes(api: Api) -> list[tuple[str, str]]:
    """Method and path of every route there is."""
    app: Any = api.server._server.config.app
    while not hasattr(app, "routes"):
        app = app._app
    found = []
    for route in app.routes:
        assert isinstance(route, Route)
        path = route.path.replace("{model:path}", MODEL)
        found += [(method, path) for method in route.methods or ()]
    assert len(found) > 10
    return found


def test_every_route_wants_a_key_but_the_probes(start_api: Start, tmp_path: Path) -> None:
    api = start_api("x", home=write_keys(tmp_path, KEY, OTHER))
    wrong: list[dict[str, str]] = [
        {},
        {"Authorization": "Bearer wrong-0123456789abcdef"},
        {"Authorization": KEY},
        {"Authorization": f"Basic {KEY}"},
        {"Authorization": f"Bearer {KEY}x"},
        {"X-Api-Key": KEY},
        {"X-Forwarded-For": "127.0.0.1", "X-Forwarded-Host": "localhost"},
        {"Authorization": "Bearer schlüssel-0123456789"},
    ]
    paths = [*routes(api), ("OPTIONS", "/v1/models"), ("GET", "//v1/models"), ("GET", "/v1/"),
             ("GET", "/V1/MODELS"), ("GET", "/v1/models/"), ("GET", "/nothing"),
             ("GET", f"/v1/models?api_key={KEY}"), ("POST", "/health/")]  # fmt: skip
    for method, path in paths:
        for headers in wrong:
            sent = httpx.Headers(list(headers.items()), encoding="utf-8")
            response = api.client.request(method, root(api) + path, headers=sent)
            if path in OPEN and method in ("GET", "HEAD"):
                assert response.status_code == 200, (method, path)
                continue
            assert response.status_code == 401, (method, path, headers)
            assert response.headers["www-authenticate"] == "Bearer"
            if method != "HEAD":
                assert response.json()["error"]["code"] == "invalid_api_key"
    for key in (KEY, OTHER):
        for scheme in ("Bearer", "bearer"):
            headers = {"Authorization": f"{scheme} {key}"}
            assert api.client.get("models", headers=headers).status_code == 200
    twice = [("Authorization", f"Bearer {KEY}"), ("Authorization", f"Bearer {KEY}")]
    assert api.client.get("models", headers=httpx.Headers(twice)).status_code == 401
    assert api.server.admission.share == api.server.admission._most_choices * 3 // 4


def test_keys_are_read_again_when_the_file_changes(start_api: Start, tmp_path: Path) -> None:
    api = start_api("x", home=write_keys(tmp_path, KEY))
    mine = {"Authorization": f"Bearer {KEY}"}
    assert api.client.get("models", headers=mine).status_code == 200
    write_keys(tmp_path, OTHER + "longer")
    assert api.client.get("models", headers=mine).status_code == 401
    new = {"Authorization": f"Bearer {OTHER}longer"}
    assert api.client.get("models", headers=new).status_code == 200
    (tmp_path / "api-keys").unlink()
    assert api.client.get("models", headers=new).status_code == 401
    assert api.client.get("models").status_code == 401


@pytest.mark.parametrize(
    ("keys", "mode", "word"),
    [((KEY,), 0o640, "mode 640"), ((KEY,), 0o604, "mode 604"), (("short",), 0o600, "key 1")],
)
def test_a_key_file_that_is_no_secret_is_refused(
    tmp_path: Path, keys: tuple[str, ...], mode: int, word: str
) -> None:
    write_keys(tmp_path, *keys, mode=mode)
    with pytest.raises(ConfigError, match=word) as caught:
        KeyFile(tmp_path)
    assert KEY not in str(caught.value)


def test_beyond_loopback_there_must_be_keys(start_api: Start, tmp_path: Path) -> None:
    served = start_api("x", acceptance=2.0).server
    with pytest.raises(ConfigError, match=r"0\.0\.0\.0.*has no keys"):
        check_exposure("0.0.0.0", KeyFile(tmp_path))
    write_keys(tmp_path, "")
    with pytest.raises(ConfigError, match="has no keys"):
        check_exposure("::", KeyFile(tmp_path))
    write_keys(tmp_path, KEY)
    check_exposure("::", KeyFile(tmp_path))
    check_exposure("127.0.0.1", KeyFile(tmp_path / "no-home"))
    del served


def test_made_up_acceptance_stays_on_loopback(
    byte_chat: Any, start_api: Start, tmp_path: Path
) -> None:
    from k3d.station.openai.served import Served

    engine = start_api("x").engine
    served = Served(
        model=MODEL, digest="0", created=1, chat=byte_chat, room=10, vocab_size=512, lanes=1,
        queue=1, engine=engine, state=lambda: ("healthy", None), synthetic_acceptance=2.0,
    )  # fmt: skip
    write_keys(tmp_path, KEY)
    refused = pytest.raises(ConfigError, match="made-up acceptance")
    with bind("127.0.0.1", 0) as listener, refused:
        ApiServer(listener, "192.0.2.1", served, tmp_path)


@pytest.mark.parametrize(
    "host", ["evil.example", "evil.example:80", "127.0.0.1.evil.example", "", "0.0.0.0"]
)
def test_another_name_for_this_machine_is_refused(start_api: Start, host: str) -> None:
    response = start_api("x").client.get("models", headers={"Host": host})
    assert response.status_code == 403


def test_this_machine_goes_by_its_own_names(start_api: Start) -> None:
    api = start_api("x")
    for host in ("localhost", "LOCALHOST:80", "127.0.0.1:1234", "[::1]:8000"):
        assert api.client.get("models", headers={"Host": host}).status_code == 200


def test_pages_of_other_sites_are_refused_before_any_work(start_api: Start) -> None:
    api = start_api("x")
    body = {"model": MODEL, "prompt": "a"}
    for origin in ("http://evil.example", "null", "http://127.0.0.1.evil.example", "http://["):
        response = api.client.post("completions", json=body, headers={"Origin": origin})
        assert response.status_code == 403
        assert not [name for name in response.headers if name.startswith("access-control")]
    mine = {"Origin": "http://localhost:3000"}
    assert api.client.post("completions", json=body, headers=mine).status_code == 200
    kindless = api.client.post("completions", content=b'{"model": "k3-tiny"}', headers=mine)
    assert kindless.status_code == 415
    assert len(api.engine.submitted) == 1


@pytest.mark.parametrize(
    ("kind", "status"),
    [("text/plain", 415), ("application/x-www-form-urlencoded", 415), ("multipart/form-data", 415),
     ("application/json; charset=utf-8", 200), ("application/vnd.api+json", 200), (None, 200)],
)  # fmt: skip
def test_a_body_is_json(start_api: Start, kind: str | None, status: int) -> None:
    api = start_api("x")
    headers = {} if kind is None else {"Content-Type": kind}
    body = b'{"model": "k3-tiny", "prompt": "a"}'
    assert api.client.post("completions", content=body, headers=headers).status_code == status


def test_request_ids_are_ours_or_harmless(start_api: Start) -> None:
    api = start_api("x")
    mine = api.client.get("models", headers={"X-Request-Id": "abc-1.2_3"})
    assert mine.headers["x-request-id"] == "abc-1.2_3"
    for odd in ("a b", "<script>", "x" * 129, "\x1b[31m", "é"):
        response = api.client.get("models", headers=httpx.Headers({"X-Request-Id": odd}, "utf-8"))
        assert response.headers["x-request-id"].startswith("req-")
    assert api.client.get("nothing").headers["x-request-id"].startswith("req-")


def test_secrets_and_prompts_stay_out_of_logs_and_metrics(
    start_api: Start, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    api = start_api("x", home=write_keys(tmp_path, KEY))
    mine = {"Authorization": f"Bearer {KEY}"}
    prompt = "canary-prompt"
    api.client.post("completions", json={"model": MODEL, "prompt": prompt}, headers=mine)
    api.client.post("completions", json={"model": MODEL, "prompt": [prompt, 3]}, headers=mine)
    api.client.post("completions", json={"model": prompt, "prompt": prompt}, headers=mine)
    api.client.get(f"models?key={KEY}", headers={"Authorization": "Bearer " + KEY[::-1]})
    api.client.get("models/canary-model", headers=mine)
    metrics = api.client.get(root(api) + "/metrics", headers=mine).text
    logged = "\n".join(
        r.getMessage() for r in caplog.records if not r.name.startswith(("httpx", "httpcore"))
    )
    for secret in (KEY, KEY[::-1], prompt, "canary-model"):
        assert secret not in logged
        assert secret not in metrics


def test_a_bug_is_500_in_the_shape_of_every_error(
    start_api: Start, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    api = start_api("x")

    def broken(*_: Any) -> None:
        raise RuntimeError("a bug with details")

    monkeypatch.setattr(api.server.admission, "take", broken)
    status, error = api.refusal("completions", prompt="a")
    assert (status, error["type"], error["message"]) == (500, "server_error", "the server failed")
    until(lambda: "a bug with details" in caplog.text, "the log of what was answered before")
