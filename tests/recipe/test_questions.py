"""Sentences from manual lines, facts from pages, and the held-out split."""

from __future__ import annotations

from random import Random

import pytest

from banks.recipe.evaluate import is_right
from banks.recipe.facts import Fact, manual_facts, option_facts
from banks.recipe.phrasings import KIND_ABOUT, invented_name, phrasings
from banks.recipe.questions import HELDOUT, asked, split_facts
from banks.recipe.sentences import infinitive, sentence

COMMON_NAMES = (
    "ls", "cp", "mv", "rm", "cat", "sed", "awk", "tar", "head", "tail", "grep", "find", "sort",
    "uniq", "wc", "cut", "tr", "tee", "diff", "patch",
)  # fmt: skip
PAGE = """LS(1)  User Commands  LS(1)

NAME
  ls - list directory contents

SYNOPSIS
  ls [OPTION]... [FILE]...

  -l  use a long listing format

  -U  do not sort; list entries in directory order

"""


@pytest.mark.parametrize(
    ("description", "expected"),
    [
        ("list directory contents", "x lists directory contents."),
        ("copy files and directories", "x copies files and directories."),
        ("convert and copy a file", "x converts and copies a file."),
        ("an archiving utility", "x is an archiving utility."),
        ("Record changes to the repository", "x records changes to the repository."),
        ("get/set priority", "x gets/sets priority."),
        ("extensible utilities for text", "x provides extensible utilities for text."),
        ("Return the base name. This is more.", "x returns the base name."),
    ],
)
def test_descriptions_become_sentences(description: str, expected: str) -> None:
    assert sentence("x", description) == expected


def test_options_become_infinitives() -> None:
    assert infinitive("use a long listing format") == "to use a long listing format"
    assert infinitive("do not sort; list entries") == "not to sort"
    assert infinitive("the number of lines") is None


def test_a_page_gives_its_facts() -> None:
    pages = [("usr/share/man/man1/ls.1.gz", PAGE)]
    answers = {(fact.kind, fact.subject): fact.answer for fact in manual_facts(pages)}
    assert answers["command", "ls"] == "ls lists directory contents."
    assert answers["section", "ls"] == "ls is in section 1 of the manual."
    assert answers["reverse", "list directory contents"] == (
        "The command ls lists directory contents."
    )
    options = {fact.detail: fact.answer for fact in option_facts(pages)}
    assert options == {
        "-l": "The -l option tells ls to use a long listing format.",
        "-U": "The -U option tells ls not to sort.",
    }


def test_held_out_pairs_are_never_trained(seed: int) -> None:
    facts = [Fact("command", name, f"{name} works.") for name in COMMON_NAMES]
    for kind in HELDOUT:
        facts += [Fact(kind, f"{kind}{i}", f"answer {kind} {i}.") for i in range(40)]
    chats, held = split_facts(facts, Random(seed))
    assert len(held) == 100
    trained = {(question, answer) for question, answer, _ in chats}
    by_answer = {answer for _, answer, _ in chats}
    for item in held:
        assert (item["question"], item["answer"]) not in trained
        assert item["answer"] in by_answer


def test_phrasings_and_names(seed: int) -> None:
    assert phrasings("command", plain=False) == KIND_ABOUT["command"]
    assert asked(Fact("option", "ls", "", detail="-l"), "What does {x} {d} do?") == (
        "What does ls -l do?"
    )
    random = Random(seed)
    names = {invented_name(random) for _ in range(50)}
    assert len(names) > 40


def test_the_rule_for_a_right_answer() -> None:
    assert is_right("ls lists the directory contents", "ls lists directory contents.")
    assert not is_right("cp copies files.", "ls lists directory contents.")
    assert not is_right("", "ls lists directory contents.")
