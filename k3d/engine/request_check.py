"""What a request must be to run."""

from __future__ import annotations

from k3d.engine.request import Request
from k3d.errors import ConfigError


def check_request(request: Request, vocab: int, most_positions: int) -> None:
    """Raises ConfigError saying what is wrong. `vocab` token ids are known; `most_positions` is
    the context, prompt and answer together."""
    request.sampling.check()
    if not request.prompt:
        raise ConfigError("the prompt holds no token")
    ids = (*request.prompt, *request.stop_ids, *(t for t, _ in request.sampling.logit_bias))
    bad = next((token for token in ids if not 0 <= token < vocab), None)
    if bad is not None:
        raise ConfigError(f"token id {bad} is not in a vocabulary of {vocab}")
    least = 0 if request.prompt_logprobs else 1
    if request.max_tokens < least:
        raise ConfigError(f"max_tokens {request.max_tokens} is below {least}")
    if request.min_tokens > request.max_tokens:
        raise ConfigError(
            f"min_tokens {request.min_tokens} is above max_tokens {request.max_tokens}"
        )
    if request.draft_rows is not None and request.draft_rows < 1:
        raise ConfigError(f"draft_rows {request.draft_rows} is below 1")
    if len(request.prompt) + request.max_tokens > most_positions:
        raise ConfigError(
            f"a prompt of {len(request.prompt)} tokens and {request.max_tokens} to come exceed "
            f"the context of {most_positions}",
            hint="shorten the prompt or ask for fewer tokens",
        )
