"""The page on the architecture names what is there, and its picture can be drawn and read."""

from __future__ import annotations

import re
import xml.etree.ElementTree as ET

from tests.manual.shell import REPOSITORY

PAGE = REPOSITORY / "docs" / "architecture.md"
PICTURE = PAGE.with_suffix(".svg")
NAMESPACE = "{http://www.w3.org/2000/svg}"


def test_every_file_and_package_that_is_named_is_there() -> None:
    text = PAGE.read_text()
    named = re.findall(r"`((?:k3d|k3ctl|policies)/[\w/.]+)`", text)
    assert named
    assert [name for name in named if not (REPOSITORY / name).exists()] == []
    packages = re.findall(r"`(k3d\.\w+)`", text)
    assert packages
    assert [p for p in packages if not (REPOSITORY / p.replace(".", "/")).is_dir()] == []
    links = re.findall(r"\]\(([\w./]+)\)", text)
    assert [link for link in links if not (PAGE.parent / link).exists()] == []


def test_the_picture_has_its_words_inside_and_colours_for_dark_and_light() -> None:
    picture = ET.parse(PICTURE).getroot()
    width, height = map(float, picture.attrib["viewBox"].split()[2:])
    texts = picture.findall(f"{NAMESPACE}text")
    assert {"k3ctl", "model: Kimi-K3", "k3d spark 1"} <= {text.text for text in texts}
    for text in texts:
        assert 0 < float(text.attrib["x"]) < width
        assert 0 < float(text.attrib["y"]) < height
    assert "prefers-color-scheme: dark" in PICTURE.read_text()
    assert picture.attrib["aria-label"]


def test_the_picture_of_the_console_is_one_and_loads_nothing_from_elsewhere() -> None:
    text = PAGE.with_name("console.svg").read_text()
    words = " ".join("".join(ET.fromstring(text).itertext()).replace("\xa0", " ").split())
    for word in ("Overview", "healthy", "tokens/s", "spark-1"):
        assert word in words
    assert re.findall(r"url\([^#)][^)]*\)|href=\"[^#][^\"]*\"", text) == []
