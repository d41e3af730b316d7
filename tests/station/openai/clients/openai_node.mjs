// The openai library for Node and the AI SDK, unmodified: run by test_clients.
import assert from "node:assert";
import OpenAI from "openai";
import { createOpenAICompatible } from "@ai-sdk/openai-compatible";
import { generateText, streamText, jsonSchema, tool } from "ai";

const model = process.env.K3_MODEL;
const baseURL = process.env.OPENAI_BASE_URL;
const messages = [{ role: "user", content: "What does ls do?" }];
const says = "ls lists directory contents.";
const pick = {
  type: "object",
  properties: { city: { type: "string", enum: ["Paris", "Rome"] } },
  required: ["city"],
  additionalProperties: false,
};

const client = new OpenAI({ baseURL, apiKey: "any", maxRetries: 0 });
const chat = client.chat.completions;
const whole = await chat.create({ model, messages, temperature: 0 });
assert.equal(whole.choices[0].message.content, says);
let text = "";
const options = { stream: true, stream_options: { include_usage: true } };
for await (const chunk of await chat.create({ model, messages, temperature: 0, ...options }))
  text += chunk.choices[0]?.delta?.content ?? "";
assert.equal(text, says);
const helper = await chat.stream({ model, messages, temperature: 0 }).finalChatCompletion();
assert.equal(helper.choices[0].message.content, says);

let called = 0;
const run = chat.runTools(
  {
    model,
    messages,
    temperature: 0,
    tool_choice: { type: "function", function: { name: "pick" } },
    tools: [
      {
        type: "function",
        function: { name: "pick", parameters: pick, parse: JSON.parse, function: () => ++called },
      },
    ],
  },
  { maxChatCompletions: 1 },
);
await run.done();
assert.equal(called, 1);
await assert.rejects(chat.create({ model, messages, temperature: 9 }), { status: 400 });

const provider = createOpenAICompatible({ name: "k3", baseURL, apiKey: "any", includeUsage: true });
const prompt = messages[0].content;
const generated = await generateText({ model: provider(model), prompt, temperature: 0 });
assert.equal(generated.text, says);
const streamed = streamText({ model: provider(model), prompt, temperature: 0 });
text = "";
for await (const piece of streamed.textStream) text += piece;
assert.equal(text, says);
assert.ok((await streamed.usage).totalTokens > 0);
const picking = await generateText({
  model: provider(model),
  prompt,
  temperature: 0,
  toolChoice: "required",
  tools: { pick: tool({ inputSchema: jsonSchema(pick), execute: async () => "ok" }) },
});
assert.ok(picking.toolCalls.length >= 1);
