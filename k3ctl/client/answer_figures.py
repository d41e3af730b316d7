"""What a set of timed answers amounts to; every metric with the definition it is shown with."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from k3ctl.client.timed_answer import TimedAnswer

DEFINITIONS = {
    "ttft_s": "time to first token: from sending the request to its first token, at the client",
    "tpot_s": "time per output token: (last token - first token) / (tokens - 1), a mean of each "
    "answer, at the client; drafts that are accepted come together, so gaps between tokens "
    "are not it",
    "tokens_per_s_user": "1 / TPOT of an answer; the median over answers",
    "tokens_per_s_total": "tokens written by all lanes / time from the first request sent to the "
    "last token, prompts included in the time and not in the tokens",
    "acceptance_length": "tokens written a round: (accepted drafts + rounds) / rounds",
    "cached_share": "prompt tokens reused / prompt tokens",
}


def figures_of(answers: Sequence[TimedAnswer]) -> dict[str, Any]:
    """Figures of answers that were asked for together; None where there is nothing to count."""
    written = sum(len(answer.ids) for answer in answers)
    begun = min((answer.sent_s for answer in answers), default=0.0)
    wall_s = max((answer.ended_s for answer in answers), default=0.0) - begun
    speeds = [speed for answer in answers if (speed := answer.tokens_per_s) is not None]
    prompt = sum(int(answer.done["usage"]["prompt_tokens"]) for answer in answers)
    return {
        "answers": len(answers),
        "prompt_tokens": prompt,
        "output_tokens": written,
        "wall_s": round(wall_s, 4),
        "ttft_s": spread([answer.first_s for answer in answers if answer.first_s is not None]),
        "tpot_s": spread([1 / speed for speed in speeds]),
        "tokens_per_s_user": rounded(median(speeds)),
        "tokens_per_s_total": rounded(written / wall_s if wall_s > 0 else None),
        "acceptance_length": acceptance_length(answers),
        "cached_share": rounded(_total(answers, "cached_tokens") / prompt if prompt else None, 4),
    }


def acceptance_length(answers: Sequence[TimedAnswer]) -> float | None:
    """Over all rounds of the answers; None without rounds."""
    rounds = _total(answers, "rounds")
    return rounded(1 + _total(answers, "accepted") / rounds, 3) if rounds else None


def pooled_tokens_per_s(answers: Sequence[TimedAnswer]) -> float | None:
    """Tokens after the first of each answer over the time they took, answers one by one."""
    timed = [answer for answer in answers if answer.tokens_per_s is not None]
    seconds = sum(answer.last_s - (answer.first_s or 0.0) for answer in timed)
    return sum(len(answer.ids) - 1 for answer in timed) / seconds if seconds else None


def spread(values: Sequence[float]) -> dict[str, float | None]:
    """Median and 95th percentile."""
    return {"p50": rounded(median(values), 5), "p95": rounded(quantile(values, 0.95), 5)}


def median(values: Sequence[float]) -> float | None:
    return quantile(values, 0.5)


def quantile(values: Sequence[float], share: float) -> float | None:
    """With linear interpolation between neighbours; None of nothing."""
    if not values:
        return None
    ordered = sorted(values)
    at = share * (len(ordered) - 1)
    low = math.floor(at)
    high = min(low + 1, len(ordered) - 1)
    return ordered[low] + (at - low) * (ordered[high] - ordered[low])


def rounded(value: float | None, digits: int = 2) -> float | None:
    return None if value is None else round(value, digits)


def _total(answers: Sequence[TimedAnswer], name: str) -> int:
    return sum(int(answer.done.get(name) or 0) for answer in answers)
