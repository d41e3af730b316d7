"""Pictures: the same bytes for the same figures, readable without colour, nothing from outside."""

from __future__ import annotations

import builtins
import sys
from xml.etree import ElementTree as ET

import pytest

from k3ctl.charts.panels import Panel
from k3ctl.charts.picture import LINES, MARKS, Picture, picture_bytes
from k3ctl.charts.svg import svg
from k3d.errors import ConfigError

NIGHT = 1_764_385_200
HOURS = [NIGHT + 600 * n for n in range(36)]


def picture(**changed) -> Picture:
    series = {
        name: [(at, None if 10 < n < 14 else 100.0 * (k + 1) + n) for n, at in enumerate(HOURS)]
        for k, name in enumerate(("hbm", "rtx", "grace", "$spark^2$ <&>"))
    }
    shown = {
        "title": "embedded: latency",
        "footnote": "measured; a point is 600 s",
        "panels": (Panel("hop, us", series), Panel("power, W", {"a": [(HOURS[3], 5.0)]})),
        "since_s": HOURS[0],
        "until_s": HOURS[-1],
        "rules": ((HOURS[9], "epoch 2"),),
    }
    return Picture(**{**shown, **changed})


def test_a_png_is_one_and_is_repeated() -> None:
    pytest.importorskip("matplotlib")
    first = picture_bytes(picture(), "png")
    assert first.startswith(b"\x89PNG\r\n\x1a\n")
    assert first == picture_bytes(picture(), "png")
    assert b"Software" not in first


def test_an_svg_is_repeated_to_the_byte_and_carries_its_words() -> None:
    pytest.importorskip("matplotlib")
    first = picture_bytes(picture(), "svg")
    assert first == picture_bytes(picture(), "svg")
    words = "".join(ET.fromstring(first).itertext())
    for word in ("embedded: latency", "measured; a point is 600 s", "hop, us", "grace", "epoch 2"):
        assert word in words
    assert "$spark^2$ <&>" in words
    assert b"<dc:date>" not in first
    other = picture(footnote="modelled")
    assert first != picture_bytes(other, "svg")


def test_a_setting_of_whoever_runs_it_changes_nothing(monkeypatch) -> None:
    mpl = pytest.importorskip("matplotlib")
    first = picture_bytes(picture(), "svg")
    with mpl.rc_context({"lines.linewidth": 9.0, "axes.facecolor": "red"}):
        assert picture_bytes(picture(), "svg") == first
        assert mpl.rcParams["lines.linewidth"] == 9.0


def test_lines_differ_in_more_than_colour() -> None:
    assert len(set(map(str, LINES))) == len(LINES)
    assert len(set(MARKS)) == len(MARKS)


def test_without_matplotlib_it_says_what_to_install(monkeypatch) -> None:
    real = builtins.__import__

    def missing(name, *rest, **named):
        if name.partition(".")[0] == "matplotlib":
            raise ImportError(name=name)
        return real(name, *rest, **named)

    for name in [name for name in sys.modules if name.partition(".")[0] == "matplotlib"]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setattr(builtins, "__import__", missing)
    with pytest.raises(ConfigError, match="needs matplotlib") as caught:
        picture_bytes(picture(), "png")
    assert "k3pod[plot]" in str(caught.value.hint)


def test_an_inline_svg_is_well_formed_and_escaped() -> None:
    named = {"<script>alert(1)</script>": [(at, 1.0) for at in HOURS], "b": [(HOURS[4], 3.0)]}
    shown = [
        Panel('label <b> & "quotes"', named),
        Panel("none", {"a": [(HOURS[0], None)]}),
        Panel("gap", {"a": [(at, None if n == 9 else float(n)) for n, at in enumerate(HOURS)]}),
    ]
    text = svg(shown, HOURS[0], HOURS[-1], title="<t>", rules=(HOURS[5], 1e12))
    root = ET.fromstring(text)
    assert "<script" not in text
    words = "".join(root.itertext())
    assert "<script>alert(1)</script>" in words
    assert 'label <b> & "quotes"' in words
    assert "none" not in words
    paths = [path.get("d", "") for path in root.iter("{http://www.w3.org/2000/svg}path")]
    gap = max(paths, key=len)
    assert gap.count("M") == 2
    assert all("url(" not in str(part.attrib) for part in root.iter())
    assert "href" not in text


def test_an_inline_svg_of_nothing_is_an_axis() -> None:
    root = ET.fromstring(svg([], 0.0, 3_600.0, title=""))
    assert root.get("viewBox")
