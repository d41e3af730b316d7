"""The pod secret: what every node and every k3ctl of a pod shares, and nobody else reads."""

from __future__ import annotations

import hashlib
import hmac
import os
import stat
from pathlib import Path

from k3d.errors import ConfigError, NotFound, Refused, StoreError
from k3d.store.paths import secret_path

SECRET_CHARACTERS = 64


def create_secret(home: Path) -> bool:
    """Make the pod secret if there is none. True when it was made by this call."""
    # Not above: most callers only read, and some of them start cold.
    import secrets
    import tempfile

    path = secret_path(home)
    if path.exists():
        return False
    try:
        handle, draft = tempfile.mkstemp(dir=home, prefix=".pod.secret.")
        try:
            with os.fdopen(handle, "w", encoding="ascii") as file:
                file.write(secrets.token_hex(SECRET_CHARACTERS // 2) + "\n")
                file.flush()
                os.fsync(file.fileno())
            # A link never replaces: of several that make it at once, one wins and is whole.
            path.hardlink_to(draft)
        finally:
            Path(draft).unlink()
    except FileExistsError:
        return False
    except OSError as error:
        raise StoreError(
            f"the pod secret {path} cannot be made: {error.strerror}",
            hint="check the permissions and the free space of the home",
        ) from error
    return True


def read_secret(home: Path) -> bytes:
    """The pod secret as 32 bytes.

    Raises NotFound when there is none, Refused when others can read it or it is not a plain file
    of this user, ConfigError when it is not 64 hex characters.
    """
    path = secret_path(home)
    try:
        # Not waiting, so that a pipe in the secret's place cannot hold a daemon up.
        handle = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
    except FileNotFoundError as error:
        raise NotFound(f"there is no pod secret at {path}", hint="make one: k3ctl init") from error
    except OSError as error:
        raise Refused(
            f"the pod secret {path} cannot be read: {error.strerror}",
            hint="it must be a plain file of mode 0600 owned by the user that runs k3d",
        ) from error
    try:
        _check_private(path, os.fstat(handle))
        text = os.read(handle, 4 * SECRET_CHARACTERS).strip()
    finally:
        os.close(handle)
    try:
        secret = bytes.fromhex(text.decode("ascii"))
    except ValueError:
        secret = b""
    if len(secret) != SECRET_CHARACTERS // 2:
        raise ConfigError(
            f"the pod secret {path} is not {SECRET_CHARACTERS} hex characters",
            hint="copy it again from a node of the pod, or remove it and run k3ctl init",
        )
    return secret


def _check_private(path: Path, facts: os.stat_result) -> None:
    """Raises Refused unless it is a plain file that only its owner, this user, can touch."""
    if not stat.S_ISREG(facts.st_mode):
        raise Refused(f"the pod secret {path} is not a plain file", hint="make it one")
    if facts.st_mode & 0o077:
        raise Refused(
            f"the pod secret {path} can be read by others (mode {facts.st_mode & 0o777:04o})",
            hint=f"chmod 600 {path}",
        )
    if facts.st_uid not in (os.geteuid(), 0):
        raise Refused(
            f"the pod secret {path} belongs to another user (uid {facts.st_uid})",
            hint="run as its owner, or give the pod its own home",
        )


def http_token(secret: bytes) -> str:
    """What a client shows a daemon: `Authorization: Bearer <token>`. Not the secret itself."""
    return hmac.new(secret, b"k3-http-1", hashlib.sha256).hexdigest()
