"""The OpenAI-compatible API of a Station. Where clients, servers or specifications disagree, this
is what it does; each row is decided once, here, and tested.

| case | decision |
| --- | --- |
| unknown fields | allowed, counted in k3_unknown_fields_total |
| unknown model | 404 model_not_found; no model named: 400 |
| max_tokens and max_completion_tokens | the second wins; neither: the room left in chat, 16 in |
|  | completions, as specified |
| max_tokens 0 | only /v1/completions with echo |
| prompt and max_tokens beyond the context | 400 context_length_exceeded, before any SSE byte |
| stream_options without stream | 400 |
| include_usage | one last chunk with choices []; never unasked |
| continuous_usage_stats | usage on every chunk |
| first and last chunk | role and content "" first; an empty delta with the finish_reason last |
| one chunk | what one wake-up of the engine brought: an accepted block is one chunk |
| stop | string or up to 16 of them, none empty; the match that completes first wins, of those |
|  | the one that began first; on the response only, not in reasoning or calls; from min_tokens on |
| usage.completion_tokens | tokens delivered: up to the one that completed a stop; no stop token |
| prompt_tokens | every prompt once, however large n |
| logprobs in chat | tokens of the response's text only; of the model, before temperature |
| logprobs in completions | up to 20; the token itself is always among top_logprobs |
| n | at most 8; choice i draws from seed + i; 8 prompts with n 8 are 64 choices, the most |
| seed | promises the same text whatever runs beside it; without one, each request draws anew |
| temperature | 0 to 2; missing: 1; tiny ones are used as they are |
| top_k -1 and 0 | every token |
| logit_bias | ids as strings, of the vocabulary |
| ignore_eos | the end of the answer is impossible until max_tokens; with a grammar, of no effect |
| min_tokens with a grammar | 400: the grammar says when the answer ends |
| best_of, suffix, functions, function_call | 400 with what to use instead |
| tools [] | as none; tool_choice auto or none without tools is accepted, others are not |
| tool_choice required, named | a grammar: no response text, then calls that fit the schemas |
| tool_choice none | a grammar without calls |
| parallel_tool_calls false, strict tools | a grammar with at most one call, or calls that fit |
| finish_reason | tool_calls whenever a call is complete and the answer ended by itself |
| response_format with tools that may be called | a response of that format, or calls |
| response_format on a checkpoint without prompt bodies | 400, as tools: never half done |
| reasoning | under reasoning and reasoning_content, both ways |
| reasoning_effort | none is no reasoning; minimal low; medium high; xhigh max |
| content parts | text of every role; another type is 400 and nothing is fetched |
| role developer | system |
| special tokens in text | left out, unless skip_special_tokens is false (completions only) |
| draft counts | metrics.speculative_decoding, for include_metrics true, beside the usage; not |
|  | in it |
| /health, /ready, /ping | open; everything else wants a key once there are keys |
| a client that closes its sending half | is gone |
| queue full | 503 server_overloaded; a key's share is full: 429; both with Retry-After |
| engine error in a stream | data: {"error": ...}, then data: [DONE] |
"""
