"""One-line manual descriptions made into English sentences."""

from __future__ import annotations

import re
from pathlib import Path

VERBS = frozenset(Path(__file__).with_name("words").joinpath("verbs.txt").read_text().split())
PREPOSITIONS = {"of", "for", "to", "in", "on", "with", "from", "by", "as", "that", "which", "using"}
STRANGE = {"how", "this", "see", "what", "when", "if", "is", "these", "called", "my", "some", "are"}
MAX_WORDS = 24


def third_person(verb: str) -> str:
    """'copy' -> 'copies'."""
    if "/" in verb:
        return "/".join(third_person(part) for part in verb.split("/"))
    if re.search(r"(s|x|z|ch|sh|o)$", verb):
        return verb + ("zes" if verb == "quiz" else "es")
    return verb[:-1] + "ies" if re.search(r"[^aeiou]y$", verb) else verb + "s"


def is_verb(word: str) -> bool:
    """True for an imperative such as 'list' or 'get/set'."""
    parts = word.lower().rstrip(",").split("/")
    return bool(parts[0]) and all(part in VERBS for part in parts)


def is_conjugated(word: str) -> bool:
    """True for 'lists' or 'copies'."""
    plain = word.lower().rstrip(",")
    stems = (plain[:-1], plain[:-2], plain[:-3] + "y")
    return any(stem in VERBS and third_person(stem) == plain for stem in stems)


def first_sentence(text: str) -> str | None:
    """The first sentence without its stop, or None if it is too long to be learned."""
    joined = " ".join(text.split())
    stop = r"(?<!e\.g)(?<!i\.e)(?<!etc)[.:;](?:\s|$)| \(|, e\.g"
    sentence = re.split(stop, joined)[0].strip(" .,:;")
    return sentence if 1 < len(sentence.split()) <= MAX_WORDS else None


def predicate(description: str) -> str | None:
    """'list directory contents' -> 'lists directory contents'; None when it starts with no verb."""
    words = description.split()
    if not words:
        return None
    start = 1 if len(words) > 1 and words[0].lower().endswith("ly") and is_verb(words[1]) else 0
    if start == 0 and is_conjugated(words[0]) and not is_verb(words[0]):
        return " ".join([words[0].lower(), *words[1:]])
    if not is_verb(words[start]):
        return None
    out = [words[0].lower()] if start else []
    expect = True
    for i, word in enumerate(words[start:]):
        bare = word.rstrip(",")
        if expect and is_verb(bare):
            out.append(third_person(bare.lower()) + word[len(bare) :])
            expect = word.endswith(",")
        elif (
            word in ("and", "or")
            and i < 6
            and all(w in ("and", "or") or is_verb(w) for w in words[start : start + i])
        ):
            out.append(word)
            expect = True
        else:
            out.append(word)
            expect = False
    return " ".join(out)


def noun_predicate(description: str) -> str | None:
    """'pattern scanning language' -> 'is a pattern scanning language'."""
    words = description.split()
    first = words[0]
    if first.lower() in STRANGE or not re.match(r"[A-Za-z]", first):
        return None
    if first.lower() in ("a", "an", "the"):
        return " ".join(["is", first.lower(), *words[1:]])
    head = words[0]
    for word in words:
        if word.lower() in PREPOSITIONS:
            break
        head = word
    if re.search(r"[^sui]s$", head):
        return f"provides {description}"
    if first[0].isupper():
        return f"is the {description}"
    return f"is {'an' if first[0] in 'aeiou' else 'a'} {description}"


def sentence(subject: str, description: str) -> str | None:
    """Subject and description as one sentence with a full stop, or None."""
    short = first_sentence(description)
    if short is None or not short.isprintable() or not short.isascii():
        return None
    body = predicate(short) or noun_predicate(short)
    return None if body is None else f"{subject} {body}."


def infinitive(description: str) -> str | None:
    """'do not sort' -> 'not to sort', 'sort lines' -> 'to sort lines'; None for anything else."""
    short = first_sentence(description)
    if short is None or not short.isascii() or not short.isprintable():
        return None
    words = short.split()
    negated = words[0].lower() in ("do", "don't") and (words[1:2] == ["not"] or words[0] != "do")
    if negated and len(words) > 2:
        rest = words[2:] if words[1] == "not" else words[1:]
        return "not to " + " ".join(rest) if is_verb(rest[0]) else None
    if not is_verb(words[0]) or words[0].lower() == "do":
        return None
    return "to " + " ".join([words[0].lower(), *words[1:]])
