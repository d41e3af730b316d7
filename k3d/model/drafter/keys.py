"""Reading a drafter's config.json: every refusal names the key and the file."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

from k3d.errors import ConfigError

_HINT = "a default would run another drafter; use the config.json it was published with"


class Keys:
    """One object of a config.json; `prefix` is where it lies in the document."""

    def __init__(self, source: dict[str, Any], path: Path, prefix: str = "") -> None:
        self.path = path
        self._source = source
        self._prefix = prefix

    @classmethod
    def from_file(cls, path: Path) -> Keys:
        try:
            document = json.loads(path.read_text(encoding="utf-8"))
        except FileNotFoundError:
            raise ConfigError(
                f"{path.parent} holds no config.json", hint="name a drafter's folder"
            ) from None
        except (OSError, ValueError, RecursionError) as error:
            raise ConfigError(f"{path} cannot be read: {error}") from error
        if not isinstance(document, dict):
            raise ConfigError(f"{path}: the document is not an object")
        return cls(document, path)

    def get(self, key: str) -> Any:
        """The value, or None if the key is absent or null."""
        return self._source.get(key)

    def holds(self, key: str) -> bool:
        """Whether the key is there, be it null."""
        return key in self._source

    def refuse(self, key: str, what: str, hint: str | None = None) -> ConfigError:
        return ConfigError(f"{self.path}: {self._prefix}{key} {what}", hint=hint)

    def value(self, key: str, hint: str = _HINT) -> Any:
        if self.get(key) is None:
            raise ConfigError(
                f"{self.path}: required key {self._prefix}{key} is missing", hint=hint
            )
        return self._source[key]

    def whole(self, key: str, least: int = 1, hint: str = _HINT) -> int:
        value = self.value(key, hint)
        if type(value) is not int or value < least:
            raise self.refuse(key, f"is {value!r}, not a whole number of at least {least}")
        return value

    def real(self, key: str, default: float | None = None) -> float:
        """A finite number above 0."""
        value = self.value(key) if default is None or self.get(key) is not None else default
        if type(value) not in (int, float) or not math.isfinite(value) or value <= 0:
            raise self.refuse(key, f"is {value!r}, not a number above 0")
        return float(value)

    def flag(self, key: str, default: bool | None = None) -> bool:
        value = self.value(key) if default is None or self.get(key) is not None else default
        if not isinstance(value, bool):
            raise self.refuse(key, f"is {value!r}, not true or false")
        return value

    def text(self, key: str, *choices: str, hint: str = _HINT) -> str:
        value = self.value(key, hint)
        if value not in choices:
            raise self.refuse(key, f"is {value!r}, not {' or '.join(choices)}")
        return value

    def many(self, key: str) -> list[Any]:
        value = self.value(key)
        if not isinstance(value, list):
            raise self.refuse(key, "is not a list")
        return value

    def section(self, key: str) -> Keys:
        value = self.value(key)
        if not isinstance(value, dict):
            raise self.refuse(key, "is not an object")
        return Keys(value, self.path, f"{self._prefix}{key}.")

    def beside(self, key: str) -> Keys:
        """These keys and those of the section `key`, if there is one; a key of both must agree."""
        if self.get(key) is None:
            return self
        inner = self.section(key)
        for name, value in inner._source.items():
            if self.get(name) is not None and self._source[name] != value:
                raise self.refuse(
                    f"{key}.{name}", f"is {value!r}, but {name} is {self._source[name]!r}"
                )
        present = {name: value for name, value in self._source.items() if value is not None}
        return Keys({**self._source, **inner._source, **present}, self.path, self._prefix)

    def require(self, key: str, wanted: object) -> None:
        """Refuse another value than the one that can be run; an absent key is no other value."""
        value = self.get(key)
        if value is not None and value != wanted:
            raise self.refuse(key, f"is {value!r}; only {wanted!r} can be run")
