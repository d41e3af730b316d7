"""Reading prompt bodies out of a Python file that must not run.

The texts here are the tests' own, with a hash table to match. The release's own file is read when
K3_REAL_CHECKPOINT names a folder that has it.
"""

from __future__ import annotations

import hashlib
import os
from pathlib import Path

import pytest

from k3d.errors import CheckpointError
from k3d.model.prompt_bodies import (
    BODY_SHA256,
    PromptBodies,
    constant_texts,
    read_prompt_bodies,
)


def sha256(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()


def read(folder: Path, source: str, **wanted: str) -> PromptBodies:
    (folder / "encoding_k3.py").write_text(source, encoding="utf-8")
    return read_prompt_bodies(folder, {name: sha256(text) for name, text in wanted.items()})


@pytest.mark.parametrize(
    ("source", "text"),
    [
        ("x = 'one body'", "one body"),
        ("x = 'one ' 'body'", "one body"),
        ("x = ('one\\n'\n     \"body\")", "one\nbody"),
        ("def f():\n    return ['one ' + 'bo' + 'dy']", "one body"),
        ("x = f'one {value} body'", "one low body"),
        ("x = f'one {value} body'", "one "),
        ("x = 'one ' f'body {a}, {b!r}' ' end'", "one body max, max end"),
        ("x = f'{a} {b}'", "json_object json_object"),
        ("x = 'set ' + value + '.'", "set high."),
        ("x = 'set ' + str(value) + '.'", "set "),
        ("x = 'set {}.'.format(v)", "set required."),
        ("x = 'set {v!r:>3} {{literally}}.'.format(v=v)", "set none {literally}."),
        ("x = 'set %s.' % v", "set json_schema."),
        ("x = '\\n'.join(['one', 'body', f'{w}'])", "one\nbody\nlow"),
        ("x = ' '.join(('one', 'body'))", "one body"),
        ("FENCE = '```json\\n'\nx = 'one\\n' + FENCE + tools", "one\n```json\n"),
        ("FENCE: str = '```'\nx = f'{FENCE}json'", "```json"),
        ('x = """\n  one body\n"""', "one body"),
        ("x = 'ünï 你好'", "ünï 你好"),
        ("async def f(x='one body'):\n    yield x", "one body"),
    ],
)
def test_a_body_is_found_however_it_is_spelled(tmp_path: Path, source: str, text: str) -> None:
    assert read(tmp_path, source, wanted=text).text("wanted") == text


def test_all_bodies_of_a_file_are_found(tmp_path: Path) -> None:
    source = """
import a_module_that_does_not_exist
EFFORTS = {"low", "high", "max"}
def render(effort, tools):
    body = ("# Things\\n"
            f"{dump(tools)}\\n"
            "end")
    return "Mind this." f"\\nEffort is {effort}." , body
"""
    bodies = read(
        tmp_path,
        source,
        things="# Things\n",
        low="Mind this.\nEffort is low.",
        maximal="Mind this.\nEffort is max.",
        absent="Not there",
    )
    assert set(bodies.texts) == {"things", "low", "maximal"}
    with pytest.raises(CheckpointError) as caught:
        bodies.text("absent")
    assert "'absent'" in caught.value.message
    assert str(tmp_path / "encoding_k3.py") in caught.value.message


def test_the_file_is_never_executed(tmp_path: Path) -> None:
    witness = tmp_path / "ran"
    source = f"open({str(witness)!r}, 'w')\nraise SystemExit(3)\nx = 'one body'"
    assert read(tmp_path, source, wanted="one body").text("wanted")
    assert not witness.exists()


def test_a_changed_body_is_not_a_body(tmp_path: Path) -> None:
    bodies = read(tmp_path, "x = 'one bodY'", wanted="one body")
    with pytest.raises(CheckpointError, match="'wanted'"):
        bodies.text("wanted")


def test_a_name_assigned_twice_is_no_constant() -> None:
    source = b"A = 'one'\nA = 'two'\nB = 'b'\nx = A + B + '!'"
    assert "oneb!" not in set(constant_texts(source))
    assert "twob!" not in set(constant_texts(source))


def test_a_missing_file_matters_only_when_asked(tmp_path: Path) -> None:
    bodies = read_prompt_bodies(tmp_path)
    with pytest.raises(CheckpointError, match="the file does not exist"):
        bodies.text("tool-declare")


K3_MINI = Path(__file__).parents[2] / "banks" / "k3-mini"


def test_k3_mini_brings_bodies_of_its_own() -> None:
    bodies = read_prompt_bodies(K3_MINI)
    assert set(bodies.texts) == set(BODY_SHA256)
    assert not bodies.released
    assert bodies.text("tool-declare").endswith("```json\n")


def test_bodies_of_the_release_come_first(tmp_path: Path) -> None:
    (tmp_path / "prompt_bodies.json").write_bytes((K3_MINI / "prompt_bodies.json").read_bytes())
    bodies = read(tmp_path, "x = 'one body'", wanted="one body")
    assert bodies.released
    assert set(bodies.texts) == {"wanted"}


@pytest.mark.parametrize(
    ("text", "word"),
    [
        ("{", "truncated"),
        ('{"schema": "k3-prompt-bodies/2", "bodies": {}}', "schema"),
        ('{"schema": "k3-prompt-bodies/1", "bodies": {"tool-declared": ""}}', "'tool-declared'"),
    ],
)
def test_own_bodies_that_cannot_be_used_are_one_sentence(
    tmp_path: Path, text: str, word: str
) -> None:
    (tmp_path / "prompt_bodies.json").write_text(text)
    with pytest.raises(CheckpointError, match=word) as caught:
        read_prompt_bodies(tmp_path)
    assert "prompt_bodies.json" in caught.value.message


@pytest.mark.parametrize(
    "source",
    ["x = (", "x = '\x00'", "(" * 5000, "x = " + "'a' + " * 3000 + "'b'", "# " + "x" * (1 << 20)],
    ids=["syntax", "null", "nested", "long sum", "large"],
)
def test_a_file_that_is_no_python_is_one_sentence(tmp_path: Path, source: str) -> None:
    with pytest.raises(CheckpointError, match=r"encoding_k3\.py"):
        read(tmp_path, source, wanted="one body")


def test_text_that_grows_without_end_is_let_go(tmp_path: Path) -> None:
    doubling = "\n".join(f"A{n + 1} = A{n} + A{n}" for n in range(60))
    source = f"A0 = 'one body'\n{doubling}"
    assert read(tmp_path, source, wanted="one body").text("wanted")


REAL = Path(os.environ.get("K3_REAL_CHECKPOINT", "/nonexistent"))


@pytest.mark.skipif(
    not (REAL / "encoding_k3.py").exists(), reason="K3_REAL_CHECKPOINT has no encoding_k3.py"
)
def test_the_release_has_every_body() -> None:
    bodies = read_prompt_bodies(REAL)
    assert set(bodies.texts) == set(BODY_SHA256)
    assert [len(bodies.text(name).encode()) for name in BODY_SHA256] == [
        *(72, 188, 223, 224, 223),
        *(91, 95, 162, 218),
    ]
