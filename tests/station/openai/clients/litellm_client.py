"""litellm, unmodified: run by test_clients in an environment that has it."""

# The repository's own environment has none of these libraries.
# pyright: reportMissingImports=false, reportAttributeAccessIssue=false, reportAssignmentType=false

from __future__ import annotations

import os

import litellm

URL, MODEL = os.environ["OPENAI_BASE_URL"], os.environ["K3_MODEL"]
LS = [{"role": "user", "content": "What does ls do?"}]
SAYS = "ls lists directory contents."

for prefix in ("openai", "hosted_vllm"):
    to = {"model": f"{prefix}/{MODEL}", "api_base": URL, "api_key": "any", "temperature": 0}
    whole = litellm.completion(messages=LS, **to)
    assert whole.choices[0].message.content == SAYS
    text, usage = "", None
    options = {"include_usage": True}
    for chunk in litellm.completion(messages=LS, stream=True, stream_options=options, **to):
        text += (chunk.choices[0].delta.content or "") if chunk.choices else ""
        usage = getattr(chunk, "usage", None) or usage
    assert text == SAYS
    assert usage is not None
    assert usage.total_tokens == whole.usage.total_tokens
raw = litellm.text_completion(
    model=f"text-completion-openai/{MODEL}", prompt="The ls command", max_tokens=4,
    api_base=URL, api_key="any",
)  # fmt: skip
assert raw.choices[0].text
try:
    litellm.completion(
        model=f"openai/{MODEL}", messages=[{"role": "user", "content": "x " * 5000}],
        api_base=URL, api_key="any",
    )  # fmt: skip
except litellm.ContextWindowExceededError:
    pass
else:
    raise AssertionError("a prompt beyond the context was taken")
