"""The server behaves as the OpenAPI document says, checked by schemathesis."""

from __future__ import annotations

import shutil
from urllib.parse import quote

import pytest
import schemathesis
from hypothesis import HealthCheck, given, settings
from hypothesis.errors import Unsatisfiable
from schemathesis import GenerationMode
from schemathesis.specs.openapi.checks import positive_data_acceptance

# A question that fits the schema may still name ids, models or parameters that are not there: that is a 404 or 422, so
# "positive data is accepted" is not asked for.
LEFT_OUT = [positive_data_acceptance]


@pytest.fixture(scope="module")
def server(start, shop, tmp_path_factory):
    folder = tmp_path_factory.mktemp("open")
    shutil.copy(shop / "shop.mono", folder / "shop.mono")
    more = ("--max-body", 10**8)  # a wrong body may be a large one: that is another test's
    return start(folder / "shop.mono", "--items", shop / "items.csv", "--updates", "--refresh", 0.2, *more)


@pytest.fixture(scope="module")
def described(server):
    return schemathesis.openapi.from_url(f"{server.url}/openapi.json")


ADDRESSES = [
    "POST /v1/recommend", "POST /v1/similar", "POST /v1/explain", "POST /v1/score", "GET /v1/models",
    "GET /v1/models/{name}", "GET /v1/items", "POST /v1/events", "DELETE /v1/users/{user}", "POST /admin/reload",
    "GET /healthz", "GET /readyz", "GET /metrics",
]  # fmt: skip


# No wrong request to these addresses exists: they take no input, or any text in their path.
NEVER_WRONG = [
    "GET /v1/models", "GET /v1/models/{name}", "DELETE /v1/users/{user}", "POST /admin/reload", "GET /healthz",
    "GET /readyz", "GET /metrics",
]  # fmt: skip


@pytest.mark.parametrize("mode", GenerationMode)
@pytest.mark.parametrize("address", ADDRESSES)
def test_the_document_is_true(described, address, mode):
    method, path = address.split()
    requests = []

    @settings(max_examples=15, suppress_health_check=list(HealthCheck), derandomize=True, database=None)
    @given(case=described[path][method].as_strategy(generation_mode=mode))
    def ask(case):
        requests.append(case)
        case.call_and_validate(excluded_checks=LEFT_OUT, timeout=30)

    if mode is GenerationMode.NEGATIVE and address in NEVER_WRONG:
        with pytest.raises(Unsatisfiable):
            ask()
    else:
        ask()
        assert requests


@pytest.mark.parametrize("user", ["two\nlines", "a/b", "line feed\n", "?#%"])
def test_any_text_is_a_user_in_the_path(server, user):
    assert server.client.delete(f"/v1/users/{quote(user, safe='')}").status_code == 202


def test_every_address_is_in_the_document(server):
    document = server.client.get("/openapi.json").json()
    found = {f"{method.upper()} {path}" for path, methods in document["paths"].items() for method in methods}
    assert found == set(ADDRESSES)
    for path in document["paths"].values():
        for one in path.values():
            assert one["summary"]
            assert "500" in one["responses"]


def test_the_server_is_healthy_after_these_requests(server):
    assert server.client.get("/readyz").status_code == 200
    stored = server.client.get("/v1/models").json()["models"][0]["updates"]["stored"]
    assert server.wait_for(stored)["error"] is None
    assert not [line for line in server.lines if line["message"] == "unexpected error"]
