"""What is copied and saved out of the console."""

from __future__ import annotations

import json
from pathlib import Path

from k3ctl.tui.app import ConsoleApp
from tests.tui.driven import drive, opened, rows_of, typed, until
from tests.tui.shown import text
from tests.tui.simulated_pod import SimulatedPod

POD = SimulatedPod(sparks=40, lanes=4)


def test_copying_id_and_row() -> None:
    async def body(app: ConsoleApp, pilot) -> None:
        await opened(app, pilot, "nodes", "5")
        await pilot.press("down", "c")
        assert app.clipboard == "spark-1"
        await pilot.press("y")
        record = json.loads(app.clipboard)
        assert record["name"] == "spark-1"
        assert record["hop_p99_us"] == app.snapshot.frame.nodes[1].hop_p99_us  # type: ignore[union-attr]

    drive(body, pod=POD)


def test_saving_writes_what_is_shown_and_says_where(tmp_path: Path) -> None:
    async def body(app: ConsoleApp, pilot) -> None:
        await opened(app, pilot, "nodes", "5")
        await pilot.press("slash")
        await typed(pilot, "spark-2")
        await pilot.press("enter", "s")
        await until(pilot, lambda: "saved" in text(app))
        (document,) = (tmp_path / "exports").glob("nodes-*.json")
        rows = json.loads(document.read_text())["rows"]
        assert [row["name"] for row in rows] == rows_of(app)
        table = document.with_suffix(".csv").read_text().splitlines()
        assert len(table) == len(rows) + 1
        assert table[0].startswith("name,state,power_w")
        assert document.with_suffix(".svg").read_text().startswith("<svg")
        missing = next(row for row in rows if row["power_w"] is None)
        assert f"{missing['name']},{missing['state']},," in "\n".join(table)

    drive(body, pod=POD, home=tmp_path)


def test_saving_where_nothing_can_be_written_is_a_sentence(tmp_path: Path) -> None:
    home = tmp_path / "file"
    home.write_text("not a folder")

    async def body(app: ConsoleApp, pilot) -> None:
        await pilot.press("s")
        await until(pilot, lambda: "nothing was saved" in text(app))

    drive(body, pod=POD, home=home)
