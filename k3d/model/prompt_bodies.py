"""The fixed English texts of Kimi-K3's prompts, read from the checkpoint and never executed.

The release ships them inside the Python file that renders its chats. That file is parsed, strings
are folded out of its syntax tree, and a string is taken for a body only when its SHA-256 is the
body's. Whatever else the file holds cannot run and cannot pass for a body. A model that is not
that release, and was made with bodies of its own, ships them as JSON instead.
"""

from __future__ import annotations

import ast
import hashlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from string import Formatter
from typing import Literal, TypeAlias

import msgspec

from k3d.errors import CheckpointError

BODIES_FILE = "encoding_k3.py"
OWN_BODIES_FILE = "prompt_bodies.json"

TOOL_DECLARE = "tool-declare"
DYNAMIC_TOOL_DECLARE = "dynamic tool-declare"
RESPONSE_JSON_OBJECT = "response-format json_object"
RESPONSE_JSON_SCHEMA = "response-format json_schema"


def thinking_effort(effort: str) -> str:
    """Name of the body that sets a thinking effort."""
    return f"thinking-effort {effort}"


def tool_choice(choice: str) -> str:
    """Name of the body that forces or forbids tool calls."""
    return f"tool-choice {choice}"


BODY_SHA256: Mapping[str, str] = {
    TOOL_DECLARE: "bbd0773d27b2a814a023a7a142c098958b170dbad77e461b286844512b5b74e7",
    DYNAMIC_TOOL_DECLARE: "b5f3063ffeff6dab49436f59a41291fbdc826cc76653f98f26c514cd7cf7b74a",
    thinking_effort("low"): "003035f6bf61ffe6180f4bd5e5a12df1a7cc0cf4550ef78f5591ce8a4537f5fe",
    thinking_effort("high"): "a8513c631231c09d25027f0e0439194e4290e755fb20932c9f49dd7fa9d6ffc0",
    thinking_effort("max"): "20389202b5a9e0b3b556c90431fb62dc2f1bdb13a6e23fb7b516a3c2da848580",
    tool_choice("required"): "e2c3dc236d94164ab96601b3ff7891ad44cdc7d6b38583ab552be33a6bff5f53",
    tool_choice("none"): "efabd595d24633a14929fd64b8c21542cb13e3e6637ced319c5bec433900a2bb",
    RESPONSE_JSON_OBJECT: "a88696fd119e35cae2c9cb15ed5a8230bedb9f46e07231f9f85e893e0f993b84",
    RESPONSE_JSON_SCHEMA: "35c44c528f6c1e2254d8f2e06a68b56506c231c2f4f0ce19617255a8102ebabe",
}
"""SHA-256 of each body's UTF-8. The bodies before JSON end with the line that opens the fence."""

# Words that the file may put into a body's blank: the last word of each body's name.
_FILLINGS = ("low", "high", "max", "required", "none", "json_object", "json_schema")

_MAX_FILE_BYTES = 1 << 20
_MAX_TEXT_CHARACTERS = 1 << 16


@dataclass(frozen=True)
class PromptBodies:
    """The bodies found in one file. A body that was not found matters once a request needs it."""

    source: Path
    texts: Mapping[str, str]
    reason: str | None = None
    """Why there are no texts at all; None when the file was read."""
    released: bool = True
    """Whether they are the release's, and not a model's own."""

    def text(self, name: str) -> str:
        """The body called `name`. Raises CheckpointError naming the body and the file."""
        if name in self.texts:
            return self.texts[name]
        raise CheckpointError(
            f"this request needs the prompt body {name!r}, which is not in {self.source}"
            + (f": {self.reason}" if self.reason else ""),
            hint=f"put the {BODIES_FILE} of the model's own release there",
        )


class _OwnBodies(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    schema: Literal["k3-prompt-bodies/1"]
    bodies: dict[str, str]


def read_prompt_bodies(folder: Path, sha256_of: Mapping[str, str] = BODY_SHA256) -> PromptBodies:
    """The bodies in a checkpoint folder's encoding file, or else in its JSON of its own.

    Without either there are no bodies, which is said when one is asked for. A file that is there
    and cannot be read raises CheckpointError.
    """
    path = folder / BODIES_FILE
    try:
        source = path.read_bytes()
    except FileNotFoundError:
        return _own_bodies(folder) or PromptBodies(path, {}, reason="the file does not exist")
    except OSError as error:
        raise CheckpointError(f"{path} cannot be read: {error.strerror}") from error
    if len(source) > _MAX_FILE_BYTES:
        raise CheckpointError(f"{path} has {len(source)} bytes, which is no chat encoding file")
    name_of = {digest: name for name, digest in sha256_of.items()}
    texts: dict[str, str] = {}
    try:
        for text in constant_texts(source):
            digest = hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()
            if digest in name_of:
                texts[name_of[digest]] = text
    except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
        raise CheckpointError(
            f"{path} is not Python that can be parsed: {error}",
            hint="copy the file again from the model's release",
        ) from None
    return PromptBodies(path, texts)


def _own_bodies(folder: Path) -> PromptBodies | None:
    path = folder / OWN_BODIES_FILE
    try:
        own = msgspec.json.decode(path.read_bytes(), type=_OwnBodies)
    except FileNotFoundError:
        return None
    except (OSError, msgspec.DecodeError, UnicodeDecodeError) as error:
        raise CheckpointError(f"{path} cannot be read: {error}") from None
    unknown = next((name for name in own.bodies if name not in BODY_SHA256), None)
    if unknown is not None:
        raise CheckpointError(
            f"{path} has a body named {unknown!r}", hint=f"bodies are {', '.join(BODY_SHA256)}"
        )
    return PromptBodies(path, own.bodies, released=False)


class _Blank:
    """A place in a text whose value is known only when the file runs."""


_BLANK = _Blank()
_Parts: TypeAlias = Sequence[str | _Blank]


def constant_texts(source: bytes) -> Iterator[str]:
    """Every string that Python source spells out, each once.

    A string with blanks counts as its text before the first blank, and as itself with each of
    the few known words in all its blanks. Raises what `ast.parse` raises on source that is not
    Python.
    """
    tree = ast.parse(source)
    seen: set[str] = set()
    constants = _constants(tree)
    for node in ast.walk(tree):
        if isinstance(node, ast.expr):
            for text in _readings(_fold(node, constants)):
                for form in (text, text.strip()):
                    if form and form not in seen:
                        seen.add(form)
                        yield form


def _readings(parts: _Parts) -> Iterator[str]:
    leading: list[str] = []
    for part in parts:
        if isinstance(part, _Blank):
            break
        leading.append(part)
    yield "".join(leading)
    if len(leading) < len(parts):
        for word in _FILLINGS:
            yield "".join(word if isinstance(part, _Blank) else part for part in parts)


def _constants(tree: ast.Module) -> dict[str, _Parts]:
    """Names that the module itself assigns one known string, and nothing else."""
    constants: dict[str, _Parts] = {}
    assigned: set[str] = set()
    for statement in tree.body:
        if isinstance(statement, ast.Assign):
            targets, value = statement.targets, statement.value
        elif isinstance(statement, ast.AnnAssign) and statement.value is not None:
            targets, value = [statement.target], statement.value
        else:
            continue
        parts = _fold(value, constants)
        for target in targets:
            if isinstance(target, ast.Name):
                constants.pop(target.id, None)
                if target.id not in assigned and not any(isinstance(p, _Blank) for p in parts):
                    constants[target.id] = parts
                assigned.add(target.id)
    return constants


def _fold(node: ast.expr, constants: Mapping[str, _Parts]) -> _Parts:
    """The parts of a string expression; one blank for anything that is not understood."""
    match node:
        case ast.Constant(value=str(text)):
            return [text]
        case ast.Name(id=name) if name in constants:
            return constants[name]
        case ast.JoinedStr(values=values):
            return _concatenate(_fold(value, constants) for value in values)
        case ast.FormattedValue(value=value, conversion=-1, format_spec=None):
            return _fold(value, constants)
        case ast.BinOp(left=left, op=ast.Add(), right=right):
            return _concatenate((_fold(left, constants), _fold(right, constants)))
        case ast.BinOp(left=ast.Constant(value=str(template)), op=ast.Mod()):
            return _concatenate([text] for text in _with_blanks(template.split("%s")))
        case ast.Call(func=ast.Attribute(value=ast.Constant(value=str(text)), attr=method)):
            return _fold_method(text, method, node.args, constants)
    return [_BLANK]


def _fold_method(
    text: str, method: str, arguments: list[ast.expr], constants: Mapping[str, _Parts]
) -> _Parts:
    if method == "format":
        return _format_parts(text)
    if method == "join" and len(arguments) == 1:
        items = arguments[0]
        if isinstance(items, (ast.List, ast.Tuple)) and items.elts:
            pieces: list[_Parts] = []
            for item in items.elts:
                if pieces:
                    pieces.append([text])
                pieces.append(_fold(item, constants))
            return _concatenate(pieces)
    return [_BLANK]


def _format_parts(template: str) -> _Parts:
    try:
        fields = list(Formatter().parse(template))
    except ValueError:
        return [_BLANK]
    parts: list[str | _Blank] = []
    for text, field, _, _ in fields:
        parts.append(text)
        if field is not None:
            parts.append(_BLANK)
    return parts


def _with_blanks(texts: list[str]) -> Iterator[str | _Blank]:
    for position, text in enumerate(texts):
        if position:
            yield _BLANK
        yield text


def _concatenate(pieces: Iterable[_Parts]) -> _Parts:
    """All parts in order, or one blank once they grow past any body's size."""
    parts: list[str | _Blank] = []
    characters = 0
    for piece in pieces:
        for part in piece:
            characters += 1 if isinstance(part, _Blank) else len(part) + 1
            if characters > _MAX_TEXT_CHARACTERS:
                return [_BLANK]
            parts.append(part)
    return parts
