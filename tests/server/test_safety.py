"""Access control, limits, timeouts, and what logs must not contain."""

from __future__ import annotations

import asyncio
import json
import socket

import pytest

from monogram.server import settings as settings_
from monogram.server.http.middleware import MAX_REQUESTS, RequestMiddleware
from monogram.server.http.security import AccessControl, Refused
from monogram.server.metrics import Metrics
from monogram.server.queries.batching import Load
from monogram.server.settings import Settings, digest, is_loopback, parse_models, read_key

KEY = "a key of at least sixteen"
ONE = {"shop": "shop.mono"}


@pytest.fixture(scope="module")
def server(start, shop):
    return start(shop / "shop.mono", "--max-body", 20_000, "--read-timeout", 1)


@pytest.fixture(scope="module")
def locked(start, shop, tmp_path_factory):
    path = tmp_path_factory.mktemp("key") / "key"
    path.write_text(f"{KEY}\n")
    return start(shop / "shop.mono", "--key-file", path, "--host", "0.0.0.0", "--cors", "https://shop.example")


def talk(server, *parts: bytes, half_close: bool = False) -> bytes:
    """Send raw bytes; all bytes received until the server closes the connection."""
    with socket.create_connection(("127.0.0.1", server.port), timeout=20) as connection:
        for part in parts:
            connection.sendall(part)
        if half_close:
            connection.shutdown(socket.SHUT_WR)
        found = b""
        while more := connection.recv(65536):
            found += more
    return found


def kind(answer) -> str:
    error = answer.json()["error"]
    assert error.keys() == {"kind", "message", "request_id"}
    assert error["request_id"] == answer.headers["x-request-id"]
    return error["kind"]


HEAD = b"POST /v1/recommend HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\n"
BODY = json.dumps({"users": ["ann"], "k": 1}).encode()


@pytest.mark.parametrize(
    ("body", "words"),
    [
        ({}, "neither of users and histories"),
        ({"users": ["ann"], "histories": [[]]}, "both of users and histories"),
        ({"users": []}, "length >= 1"),
        ({"users": ["ann"], "k": 0}, ">= 1"),
        ({"users": ["ann"], "k": 1001}, "<= 1000"),
        ({"users": ["ann"], "strange": 1}, "unknown field"),
        ({"users": [["ann"]]}, "Expected"),
        ({"users": [1] * 1001}, "length <= 1000"),
        ({"histories": [{"tea": -1}]}, ">= 0"),
        ({"histories": [["tea"]], "parameters": {"b": "x"}}, "b = 'x'; expected a number"),
        ({"histories": [["tea"]], "parameters": {"b": []}}, "Expected"),
    ],
)
def test_a_wrong_body_is_422(server, body, words):
    answer = server.post("/v1/recommend", body)
    assert answer.status_code == 422
    assert kind(answer) == "parameter"
    assert words in answer.json()["error"]["message"]


@pytest.mark.parametrize("body", [b"", b"{", b"[1]", b'{"users": ["\xff"]}', b'{"users": ["\\ud800"]}', b"[" * 9_000])
def test_invalid_json_is_422(server, body):
    answer = server.client.post("/v1/recommend", content=body, headers={"content-type": "application/json"})
    assert (answer.status_code, kind(answer)) == (422, "parameter")


def test_a_large_body_is_413_in_one_piece_or_in_chunks(server):
    large = json.dumps({"users": ["ann"], "allow": ["tea"] * 4_000}).encode()
    json_ = {"content-type": "application/json"}
    answer = server.client.post("/v1/recommend", content=large, headers=json_)
    assert (answer.status_code, kind(answer)) == (413, "too_large")

    def pieces():
        for start in range(0, len(large), 4_096):
            yield large[start : start + 4_096]

    answer = server.client.post("/v1/recommend", content=pieces(), headers=json_)
    assert (answer.status_code, kind(answer)) == (413, "too_large")
    assert server.post("/v1/recommend", {"users": ["ann"]}).status_code == 200


def test_other_errors_have_the_same_envelope(server):
    assert kind(server.client.get("/nothing")) == "not_found"
    answer = server.client.get("/v1/recommend")
    assert (answer.status_code, kind(answer), answer.headers["allow"]) == (405, "method_not_allowed", "POST")
    answer = server.client.post("/v1/recommend", content=BODY)
    assert (answer.status_code, kind(answer)) == (415, "media_type")
    assert server.client.get("/v1/models?" + "x" * 40_000).status_code == 414
    answer = server.client.get("/nothing", headers={"x-request-id": "my-own.id"})
    assert answer.json()["error"]["request_id"] == "my-own.id"
    assert len(server.client.get("/nothing", headers={"x-request-id": "a b"}).headers["x-request-id"]) == 16


def test_malformed_http_is_answered_with_the_envelope(server):
    found = talk(server, b"NONSENSE\r\n\r\n")
    assert found.startswith(b"HTTP/1.1 400 ")
    assert json.loads(found.partition(b"\r\n\r\n")[2])["error"]["kind"] == "malformed"
    found = talk(server, b"GET / HTTP/1.1\r\n" + b"".join(b"x-%d: %s\r\n" % (at, b"y" * 2_000) for at in range(33)))
    assert found.startswith(b"HTTP/1.1 431 ")


def test_slow_requests_are_ended(server):
    assert talk(server).startswith(b"HTTP/1.1 408 "), "nothing is sent at all"
    assert talk(server, HEAD[:40]).startswith(b"HTTP/1.1 408 "), "the head does not end"
    found = talk(server, HEAD + b"content-length: 100\r\n\r\n", BODY)
    assert found.startswith(b"HTTP/1.1 408 "), "the body does not end"
    assert json.loads(found.partition(b"\r\n\r\n")[2])["error"]["kind"] == "too_slow"
    assert server.client.get("/healthz").status_code == 200


def test_an_answer_that_takes_too_long_is_504(start, shop):
    hasty = start(shop / "shop.mono", "--timeout", 1e-5)
    answer = hasty.post("/v1/recommend", {"users": ["ann"]})
    assert (answer.status_code, kind(answer)) == (504, "timeout")
    assert "1e-05 s" in answer.json()["error"]["message"]


def test_requests_above_the_limit_are_503():
    async def never(*_) -> None:
        raise AssertionError("refused before it is called")

    async def ask() -> list[dict]:
        load, sent = Load(), []
        load.active = MAX_REQUESTS

        async def send(message: dict) -> None:
            sent.append(message)

        scope = {"type": "http", "method": "GET", "path": "/v1/models", "raw_path": b"", "query_string": b""}
        await RequestMiddleware(never, Settings(ONE), Metrics(), load)({**scope, "headers": []}, never, send)
        assert load.active == MAX_REQUESTS
        return sent

    head, body = asyncio.run(ask())
    assert head["status"] == 503
    assert json.loads(body["body"])["error"]["kind"] == "overloaded"


def test_half_closed_requests(server):
    whole = HEAD + b"content-length: %d\r\n\r\n" % len(BODY) + BODY
    found = talk(server, whole, half_close=True)
    assert found.startswith(b"HTTP/1.1 200 "), "who has asked gets the answer"
    assert talk(server, whole[:-5], half_close=True) == b""
    assert server.client.get("/healthz").status_code == 200


def test_two_requests_in_one_go_are_both_answered(server):
    whole = HEAD + b"content-length: %d\r\n\r\n" % len(BODY) + BODY
    last = whole.replace(b"host:", b"connection: close\r\nhost:")
    assert talk(server, whole + last).count(b"HTTP/1.1 200 ") == 2


def test_every_response_has_the_security_headers(server):
    for path in ("/", "/v1/models", "/nothing"):
        headers = server.client.get(path).headers
        assert headers["x-content-type-options"] == "nosniff"
        assert headers["x-frame-options"] == "DENY"
        assert headers["referrer-policy"] == "no-referrer"
        assert "frame-ancestors 'none'" in headers["content-security-policy"]
        assert "unsafe" not in headers["content-security-policy"]
        assert "access-control-allow-origin" not in headers
        assert "server" not in headers


def test_requests_of_other_origins_are_refused(server):
    body = {"users": ["ann"]}
    assert server.post("/v1/recommend", body, headers={"origin": server.url}).status_code == 200
    for origin in ("https://evil.example", "null"):
        answer = server.post("/v1/recommend", body, headers={"origin": origin})
        assert (answer.status_code, kind(answer)) == (403, "forbidden")
    assert server.client.get("/v1/models", headers={"host": "evil.example"}).status_code == 403
    for host in ("localhost", "127.0.0.1:80", "[::1]:5"):
        assert server.client.get("/v1/models", headers={"host": host}).status_code == 200


def test_the_key(locked):
    for headers in ({}, {"authorization": KEY}, {"authorization": f"Bearer {KEY}x"}, {"authorization": f"Basic {KEY}"}):
        answer = locked.client.get("/v1/models", headers=headers)
        assert (answer.status_code, kind(answer)) == (401, "unauthorized")
        assert answer.headers["www-authenticate"] == "Bearer"
    for path in ("/metrics", "/openapi.json", "/nothing", "/v1/users/ann"):
        assert locked.client.get(path).status_code == 401
    for path in ("/healthz", "/readyz", "/", "/page/index.html"):
        assert locked.client.get(path).status_code == 200
    with_key = {"authorization": f"Bearer {KEY}", "host": "shop.example"}
    assert locked.client.get("/v1/models", headers=with_key).status_code == 200


def test_allowed_origins_have_access(locked):
    asks = {"origin": "https://shop.example", "access-control-request-method": "POST"}
    answer = locked.client.options("/v1/recommend", headers=asks)
    assert answer.headers["access-control-allow-origin"] == "https://shop.example"
    own = {"origin": "https://shop.example", "authorization": f"Bearer {KEY}"}
    answer = locked.post("/v1/recommend", {"users": ["ann"]}, headers=own)
    assert (answer.status_code, answer.headers["access-control-allow-origin"]) == (200, "https://shop.example")
    other = {**own, "origin": "https://evil.example"}
    answer = locked.post("/v1/recommend", {"users": ["ann"]}, headers=other)
    assert answer.status_code == 403
    assert "access-control-allow-origin" not in answer.headers


def test_logs_hold_routes_and_no_ids(server, locked):
    server.client.delete("/v1/users/very-secret")
    server.client.get("/v1/items?query=very-secret")
    server.post("/v1/explain", {"history": ["very-secret"], "item": "very-secret"})
    server.client.get("/very-secret")
    server.client.get("/readyz", headers={"x-request-id": "the-last"})
    locked.client.get("/readyz")
    for one in (server, locked):
        one.said("request")
        text = json.dumps(one.lines)
        assert "very-secret" not in text
        assert KEY not in text
        assert "Traceback" not in text
    for line in server.lines:
        if line["message"] == "request":
            assert line.keys() >= {"time", "level", "request_id", "method", "path", "status", "ms"}


def test_settings_are_safe():
    for host in ("127.0.0.1", "localhost", "::1", "127.8.8.8"):
        assert is_loopback(host)
        Settings(ONE, host=host)
    for host in ("0.0.0.0", "::", "192.168.1.2", "shop.example", ""):
        with pytest.raises(settings_.ParameterError, match="requires an API key"):
            Settings(ONE, host=host)
        assert Settings(ONE, host=host, key=digest(b"x")).key
    assert "abc" not in repr(Settings(ONE, key=b"abc", events="postgresql://u:abc@h/d"))
    for origin in ("*", "https://shop.example/", "shop.example", "https://a b", "ftp://x", "https://u@x"):
        with pytest.raises(settings_.ParameterError, match="without a path"):
            Settings(ONE, cors=(origin,))
    with pytest.raises(settings_.ParameterError, match="--read-timeout"):
        Settings(ONE, reading=0)
    for wrong in ({"port": 70_000}, {"workers": 0}, {"timeout": 0}, {"grace": -1}, {"body": 0}):
        with pytest.raises(settings_.ParameterError, match=next(iter(wrong))):
            Settings(ONE, **wrong)
    with pytest.raises(settings_.ParameterError, match="one process"):
        Settings(ONE, events="x.db", workers=2)
    with pytest.raises(settings_.ParameterError, match="at least one"):
        Settings({})


def test_keys_are_read_from_a_file_or_the_environment(tmp_path):
    (tmp_path / "key").write_text(KEY + "\n")
    assert read_key(str(tmp_path / "key"), {}) == digest(KEY.encode()) == read_key(None, {"MONOGRAM_KEY": KEY})
    assert read_key(None, {}) is None
    with pytest.raises(settings_.ParameterError, match="16"):
        read_key(None, {"MONOGRAM_KEY": "short"})
    for strange in ("clé" * 10, "two\tparts of a key, one line", "two\nlines of a key of sixteen"):
        with pytest.raises(settings_.ParameterError, match="ASCII"):
            read_key(None, {"MONOGRAM_KEY": strange})
    with pytest.raises(settings_.ParameterError, match="cannot be read"):
        read_key(str(tmp_path / "none"), {})


def test_names_of_models(tmp_path):
    assert parse_models(["a/shop.mono", "x=b.mono"]) == {"shop": "a/shop.mono", "x": "b.mono"}
    for wrong in (["a/shop.mono", "b/shop.mono"], ["=x"], ["a="], ["a/b=x"]):
        with pytest.raises(settings_.ParameterError):
            parse_models(wrong)


def test_access_control_without_a_host_header():
    door = AccessControl(Settings(ONE))
    door.check("GET", "/v1/models", {})
    with pytest.raises(Refused):
        door.check("GET", "/v1/models", {b"host": b"localhost.evil.example"})
