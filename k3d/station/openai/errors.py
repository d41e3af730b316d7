"""Errors in OpenAI's shape: {"error": {"message", "type", "param", "code"}}.

The status decides what a client's library does: it repeats 429 and 5xx by itself, so bad input is
never a 5xx.
"""

from __future__ import annotations

from typing import Any

from k3d.errors import CheckpointError, ConfigError, ExitCode, K3Error, NodeLost, Refused

RETRY_S = 1


class ApiError(K3Error):
    """An error with the HTTP status and the fields that OpenAI's clients read."""

    def __init__(
        self,
        message: str,
        *,
        status: int = 400,
        kind: str = "invalid_request_error",
        param: str | None = None,
        code: str | None = None,
        retry_after_s: int | None = None,
        headers: dict[str, str] | None = None,
    ) -> None:
        super().__init__(message)
        self.code = ExitCode.USAGE if status < 500 else ExitCode.FAILED
        self.status = status
        self.kind = kind
        self.param = param
        self.error_code = code
        self.headers = dict(headers or {})
        if retry_after_s is not None:
            self.headers["Retry-After"] = str(retry_after_s)

    def body(self) -> dict[str, Any]:
        """The JSON of the response, or of an event in a stream."""
        return {
            "error": {
                "message": self.message,
                "type": self.kind,
                "param": self.param,
                "code": self.error_code,
            }
        }


def bad_value(param: str, message: str, code: str | None = None) -> ApiError:
    """A field that cannot be used; its name begins the sentence."""
    return ApiError(f"{param}: {message}", param=param, code=code)


def overloaded(message: str) -> ApiError:
    return ApiError(
        message,
        status=503,
        kind="server_error",
        code="server_overloaded",
        retry_after_s=RETRY_S,
    )


def of_reading(error: K3Error, param: str | None) -> ApiError:
    """What went wrong while a request was read: always the request's."""
    if isinstance(error, ApiError):
        return error
    if isinstance(error, CheckpointError):
        return ApiError(str(error), code="unsupported")
    code = "unsupported" if isinstance(error, Refused) else None
    return ApiError(str(error), param=param, code=code)


def of_engine(error: K3Error) -> ApiError:
    """What the engine said: refused for now, refused for good, or failed."""
    if isinstance(error, ApiError):
        return error
    if isinstance(error, ConfigError):
        return ApiError(str(error))
    if isinstance(error, Refused):
        return overloaded(str(error))
    if isinstance(error, NodeLost) or error.retryable:
        return ApiError(
            str(error), status=503, kind="server_error", code="unavailable", retry_after_s=RETRY_S
        )
    return ApiError(str(error), status=500, kind="server_error", code="engine_error")
