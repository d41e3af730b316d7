"""k3ctl bank: census and ledger as text and as JSON."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from k3d.errors import ExitCode
from tests.ctl.conftest import K3ctl

MINI = Path(__file__).resolve().parents[2] / "banks" / "k3-mini"


def test_the_census_of_k3_mini(k3ctl: K3ctl) -> None:
    document = k3ctl("bank", "census", "--json").document
    assert document["schema"] == "k3ctl.bank-census/1"
    assert (document["source"], document["experts_total"]) == ("headers", 768)
    (form,) = document["forms"]
    assert (form["expert_tensors"], form["provenance"]) == (12, "measured")
    text = k3ctl("bank", "census", str(MINI)).out
    assert "10,635,264" in text
    assert "measured" in text
    assert max(map(len, text.splitlines())) <= 80


def test_without_headers_sizes_are_modelled(k3ctl: K3ctl, tmp_path: Path) -> None:
    document = k3ctl("bank", "census", str(MINI), "--no-headers", "--json").document
    assert (document["source"], document["forms"][0]["provenance"]) == (
        "config and index", "modelled",
    )  # fmt: skip
    shutil.copy(MINI / "config.json", tmp_path / "c.json")
    shutil.copy(MINI / "model.safetensors.index.json", tmp_path / "i.json")
    files = ["--config", str(tmp_path / "c.json"), "--index", str(tmp_path / "i.json")]
    assert k3ctl("bank", "census", *files, "--json").document["forms"] == document["forms"]


def test_the_ledger_of_the_real_pod(k3ctl: K3ctl) -> None:
    ran = k3ctl("bank", "ledger", "station-8-sparks")
    assert ran.code == ExitCode.OK
    assert "85,219 in all" in ran.out
    assert "2,787 to spare" in ran.out
    assert max(map(len, ran.out.splitlines())) <= 80
    document = k3ctl("bank", "ledger", "station-8-sparks", "--json").document
    assert document["places"]["total"] == 85_219
    assert document["spare"] == 2_787
    assert len(document["tiers"]) == 11
    for tier in document["tiers"]:
        assert tier["experts_provenance"] == "modelled"
        assert all(item["provenance"] for item in tier["reservations"])


def test_a_short_pod_says_what_is_short(k3ctl: K3ctl, pod_file: Path) -> None:
    text = pod_file.read_text().replace("slots = 768", "slots = 300")
    pod_file.write_text(text)
    ran = k3ctl("bank", "ledger", str(pod_file), "--json")
    assert ran.code == ExitCode.FAILED
    assert ran.document["short"] == ["pod small: 768 experts, 600 places, 168 short"]
    assert "168 short" in ran.error["message"]
    assert "168 short" in k3ctl("bank", "ledger", str(pod_file)).out


@pytest.mark.parametrize(
    ("arguments", "code", "sentence"),
    [
        (["census", "/nowhere"], ExitCode.NOT_FOUND, "no directory /nowhere"),
        (["census", "/nowhere", "--config", "/nowhere/c"], ExitCode.NOT_FOUND, "no file"),
        (["ledger", "nope"], ExitCode.NOT_FOUND, "no pod description named 'nope'"),
        (["ledger", "embedded", "--model", "/nowhere"], ExitCode.NOT_FOUND, "no directory"),
    ],
)
def test_what_is_missing_is_one_sentence(
    k3ctl: K3ctl, arguments: list[str], code: int, sentence: str
) -> None:
    ran = k3ctl("bank", *arguments, "--json")
    assert (ran.code, ran.out) == (code, "")
    assert sentence in ran.error["message"]
