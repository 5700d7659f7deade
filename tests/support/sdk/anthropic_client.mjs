// Anthropic's JavaScript SDK as a client of the relay. As anthropic_client.py.
import Anthropic from "@anthropic-ai/sdk";

const [url, token] = process.argv.slice(2);
const of = (more) => new Anthropic({ baseURL: url, apiKey: token, maxRetries: 0, timeout: 60000, ...more });
const client = of({});
const ask = { model: "m-1", max_tokens: 500, messages: [{ role: "user", content: "hello" }] };
const tools = [{ name: "look", description: "Looks.", input_schema: { type: "object", properties: { path: { type: "string" } } } }];
const text = (m) => m.content.filter((b) => b.type === "text").map((b) => b.text).join("");
const scene = (name, good) => {
  console.log("  " + name.padEnd(30), good ? "ok" : "WRONG");
  if (!good) process.exit(1);
};
const refused = async (call) => {
  try { await call(); } catch (e) { if (e instanceof Anthropic.APIError) return e; throw e; }
};

scene("whole, gzip", text(await client.messages.create(ask)) === "one");
const stream = client.messages.stream(ask);
scene("stream", (await stream.finalText()) === "two words in a stream");
const call = await client.messages.create({ ...ask, tools });
const use = call.content.find((b) => b.type === "tool_use");
scene("tool call", use.input.path === "a b");
const messages = [...ask.messages, { role: "assistant", content: call.content },
  { role: "user", content: [{ type: "tool_result", tool_use_id: use.id, content: "42" }] }];
scene("tool result", text(await client.messages.create({ ...ask, tools, messages })) === "seen: 42");
const called = await client.messages.stream({ ...ask, tools }).finalMessage();
scene("tool call in a stream", called.content.at(-1).input.path === "c");
const left = await client.messages.create({ ...ask, stream: true });
let first;
for await (const event of left) { first = event.type; break; }
left.controller.abort();
scene("left in mid-stream", first === "message_start");
scene("429 and 529, then whole", text(await of({ maxRetries: 2 }).messages.create(ask)) === "after two tries");
let e = await refused(() => client.messages.create(ask));
scene("529 as its own error", e?.status === 529 && e.message.includes("the model is busy"));
e = await refused(() => client.messages.create(ask));
scene("400 as its own error", e instanceof Anthropic.BadRequestError && e.message.includes("no such thing"));
const large = [{ role: "user", content: "line with \"quotes\" and ünïcode\n".repeat(33000) }];
scene("a body of a megabyte", text(await client.messages.create({ ...ask, messages: large })) === "a large one");
const tries = of({ maxRetries: 5 });
e = await refused(() => tries.messages.create({ ...ask, model: "another" }));
scene("a model that is not allowed", e instanceof Anthropic.PermissionDeniedError && e.error.error.message.includes("not allowed here"));
e = await refused(() => tries.messages.create({ ...ask, tools: [{ type: "web_search_20250305", name: "web_search" }] }));
scene("a search by the provider", e instanceof Anthropic.PermissionDeniedError && e.message.includes("web_search"));
e = await refused(() => tries.beta.messages.create({ ...ask, betas: ["never-heard-of-2026-01-01"] }));
scene("a beta that is not listed", e instanceof Anthropic.PermissionDeniedError && e.message.includes("never-heard-of"));
e = await refused(() => of({ apiKey: "wrong" }).messages.create(ask));
scene("a wrong token", e instanceof Anthropic.AuthenticationError);
scene("count_tokens", (await client.messages.countTokens({ model: "m-1", messages: ask.messages })).input_tokens > 0);
let models = 0;
for await (const _ of client.models.list()) models += 1;
scene("models", models > 0);
scene("beta messages, as they come", text(await client.beta.messages.create(ask)) === "the last one");
