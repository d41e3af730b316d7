"""pod status says where clients of the API point to."""

from __future__ import annotations

from k3ctl.cli.output import Output
from k3ctl.cli.pod_status_text import status_lines


def test_the_api_is_shown_where_there_is_one() -> None:
    url = "http://127.0.0.1:8000/v1"
    assert f"API {url}" in status_lines({"api": {"url": url}}, Output())
    for document in ({}, {"api": None}, {"api": {"url": None}}):
        assert not [line for line in status_lines(document, Output()) if "API" in line]
