// OpenAI's JavaScript SDK as a client of the relay. As openai_client.py.
import OpenAI from "openai";

const [url, token, api] = process.argv.slice(2);
const chat = api === "chat";
const of = (more) => new OpenAI({ baseURL: url + "/v1", apiKey: token, maxRetries: 0, timeout: 60000, ...more });
const client = of({});
const parameters = { type: "object", properties: { path: { type: "string" } } };
const create = (more = {}, { on = client, content = "hello", tools = false } = {}) => {
  const asked = { model: "m-1", ...(chat ? { messages: [{ role: "user", content }] } : { input: content }), ...more };
  if (tools) asked.tools = [chat ? { type: "function", function: { name: "look", parameters } } : { type: "function", name: "look", parameters, strict: false }];
  return chat ? on.chat.completions.create(asked) : on.responses.create(asked);
};
const text = (a) => (chat ? a.choices[0].message.content : a.output_text);
const scene = (name, good) => {
  console.log("  " + name.padEnd(30), good ? "ok" : "WRONG");
  if (!good) process.exit(1);
};
const refused = async (call) => {
  try { await call(); } catch (e) { if (e instanceof OpenAI.APIError) return e; throw e; }
};

scene("whole, gzip", text(await create()) === "one");
let got = "";
for await (const e of await create({ stream: true })) {
  got += chat ? (e.choices[0]?.delta.content ?? "") : e.type === "response.output_text.delta" ? e.delta : "";
}
scene("stream", got === "two words in a stream");
const call = await create({}, { tools: true });
const use = chat ? call.choices[0].message.tool_calls[0] : call.output.find((o) => o.type === "function_call");
scene("tool call", JSON.parse(chat ? use.function.arguments : use.arguments).path === "a b");
const back = chat
  ? { messages: [{ role: "user", content: "hello" }, call.choices[0].message, { role: "tool", tool_call_id: use.id, content: "42" }] }
  : { input: [{ role: "user", content: "hello" }, ...call.output, { type: "function_call_output", call_id: use.call_id, output: "42" }] };
scene("tool result", text(await create(back, { tools: true })) === "seen: 42");
let whole = "";
for await (const e of await create({ stream: true }, { tools: true })) {
  if (chat) whole += e.choices[0]?.delta.tool_calls?.[0].function.arguments ?? "";
  else if (e.type === "response.function_call_arguments.delta") whole += e.delta;
}
scene("tool call in a stream", JSON.parse(whole).path === "c");
const left = await create({ stream: true });
let first;
for await (const event of left) { first = event; break; }
left.controller.abort();
scene("left in mid-stream", first !== undefined);
scene("429 and 529, then whole", text(await create({}, { on: of({ maxRetries: 2 }) })) === "after two tries");
let e = await refused(() => create());
scene("529 as its own error", e?.status === 529 && e.message.includes("the model is busy"));
e = await refused(() => create());
scene("400 as its own error", e instanceof OpenAI.BadRequestError && e.message.includes("no such thing"));
scene("a body of a megabyte", text(await create({}, { content: "line with \"quotes\" and ünïcode\n".repeat(33000) })) === "a large one");
const on = of({ maxRetries: 5 });
e = await refused(() => create({ model: "another" }, { on }));
scene("a model that is not allowed", e instanceof OpenAI.PermissionDeniedError && e.message.includes("not allowed here"));
const [field, value] = chat ? ["web_search_options", {}] : ["background", true];
e = await refused(() => create({ [field]: value }, { on }));
scene("a field that is not listed", e instanceof OpenAI.PermissionDeniedError && e.message.includes(field));
e = await refused(() => create({}, { on: of({ apiKey: "wrong" }) }));
scene("a wrong token", e instanceof OpenAI.AuthenticationError);
let models = 0;
for await (const _ of client.models.list()) models += 1;
scene("models", models > 0);
scene("once more", text(await create()) === "the last one");
