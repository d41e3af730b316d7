"""-H, -p and -o: tables for scripts, on every verb that prints one."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest

from k3ctl.cli.main import run
from k3ctl.cli.table import Chosen, Column, Columns, listing, size
from k3d.errors import ConfigError, ExitCode
from tests.ctl.command_tree import Words, commands, something_for
from tests.ctl.conftest import K3ctl
from tests.ctl.fake_daemons import FakeDaemon, write_script
from tests.ctl.recorded import frame
from tests.ctl.terminal import terminal

WITH_COLUMNS = [
    words
    for words, command in commands()
    if any(parameter.name == "columns" for parameter in command.params)
]
SHEET = Columns(
    "things",
    (
        Column("name", "name"),
        Column("size_bytes", "size", size, right=True),
        Column("share", "share", right=True),
    ),
)
ROWS = [
    {"name": "a\tb\n", "size": 5_000_000, "share": 1 / 3},
    {"name": "c", "size": None, "share": 1.0},
]


def test_columns_for_a_person_and_for_a_script() -> None:
    assert listing(SHEET.columns, ROWS)[0].split() == ["NAME", "SIZE", "BYTES", "SHARE"]
    assert "4.8 MiB" in listing(SHEET.columns, ROWS)[1]
    assert SHEET.lines(ROWS, ("size_bytes", "name"), header=False, exact=True) == [
        "5000000\ta b ",
        "-\tc",
    ]
    assert SHEET.lines(ROWS, ("share",), exact=True)[1:] == ["0.333333333", "          1"]


def test_a_narrow_screen_has_fewer_columns() -> None:
    whole = SHEET.lines(ROWS)
    assert SHEET.fitted(ROWS, len(whole[1]), ("share",)) == whole
    assert SHEET.fitted(ROWS, 79, ("share",)) == whole
    less = SHEET.fitted(ROWS, len(whole[1]) - 1, ("no such", "share", "name"))
    assert less == SHEET.lines(ROWS, ("name", "size_bytes"))
    assert SHEET.fitted(ROWS, 1, ("share",)) == less


def test_lanes_fit_a_terminal(home: Path, station: FakeDaemon, k3ctl: K3ctl) -> None:
    lane = msgspec.to_builtins(frame(77_000).lanes[0])
    lane["id"] = "chatcmpl-0123456789abcdef"
    answer = {"schema": "k3d.lanes/1", "lanes": [lane]}
    write_script(home, "station", answers={"/lanes": answer})
    with terminal() as screen:
        assert run(["lanes"]) == ExitCode.OK
    header, row = screen.text.splitlines()
    assert max(len(header), len(row)) <= 80
    assert header.split()[0] == "LANE"
    assert header.split()[-1] == "ACCEPTED"
    assert row.split()[0] == lane["id"]
    # What is read by a program is not cut.
    piped = k3ctl("lanes").out.splitlines()[0].split()
    assert set(header.split()) < set(piped)
    assert {"SOURCE", "REUSED"} <= set(piped)


def test_columns_of_two_tables_are_not_mixed() -> None:
    other = Columns("others", (Column("name", "name"), Column("age", "age")))
    assert Chosen(names=("age", "name")).table_of([SHEET, other]) is other
    assert Chosen(names=("name",)).table_of([SHEET, other]) is SHEET
    assert Chosen().table_of([SHEET, other]) is SHEET
    with pytest.raises(ConfigError, match="two tables; columns of things: name, size_bytes"):
        Chosen(names=("age", "share")).table_of([SHEET, other])


@pytest.mark.parametrize("words", WITH_COLUMNS, ids=" ".join)
def test_an_unknown_column_is_a_sentence_that_lists_the_known(k3ctl: K3ctl, words: Words) -> None:
    arguments = [*words, *something_for(dict(commands())[words])]
    ran = k3ctl(*arguments, "-o", "no_such")
    assert ran.code == ExitCode.USAGE
    assert ran.out == ""
    assert "there is no column 'no_such'; columns of " in ran.err
    beside = k3ctl(*arguments, "-H", "--json")
    assert beside.code == ExitCode.USAGE
    assert "JSON has every column" in beside.error["message"]


def test_nodes_of_the_pod(k3ctl: K3ctl, station: FakeDaemon) -> None:
    assert k3ctl("status", "-H", "-o", "node,state,slots_used").out.splitlines()[:2] == [
        "station\thealthy\t461",
        "spark-1\thealthy\t307",
    ]
    assert k3ctl("status", "-Hp", "-o", "node,state,memory").out.splitlines()[1] == (
        "spark-1\thealthy\t410000000"
    )
    shown = k3ctl("pod", "status", "-o", "tier,hop_p99").out.splitlines()
    assert [line.split() for line in shown[:2]] == [["TIER", "HOP", "P99"], ["hbm", "480", "us"]]
    assert k3ctl("status", "-H").out.count("\n") == 5
    assert k3ctl("health", "-Hp", "-o", "node,state,uptime").out == "station\thealthy\t12.5\n"


def test_colour_does_not_reach_a_script(
    k3ctl: K3ctl, station: FakeDaemon, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CLICOLOR_FORCE", "1")
    assert "\x1b" not in k3ctl("status", "-H").out
    assert "\x1b" in k3ctl("status", "-o", "state").out
