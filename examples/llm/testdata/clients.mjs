// Uses the clients of OpenAI and Anthropic against the gateway at the address in the first argument,
// and prints what they see as JSON. The second argument names what to do.
import OpenAI from "openai";
import Anthropic from "@anthropic-ai/sdk";

const [address, story] = process.argv.slice(2);

// calls are the answers that the clients got, with the time at which each was asked for.
let calls = [];
let refused = () => {}; // is called when an answer is 429
async function recorded(url, init) {
  const call = { at: performance.now(), bytes: init.body?.length };
  calls.push(call);
  const response = await fetch(url, init);
  call.status = response.status;
  call.retryMs = Number(response.headers.get("retry-after-ms"));
  if (call.status === 429) refused();
  return response;
}

const openai = (apiKey, more) => new OpenAI({ apiKey, baseURL: address + "/v1", fetch: recorded, ...more });
const anthropic = (apiKey, more) => new Anthropic({ apiKey, baseURL: address, fetch: recorded, ...more });
const count = (to, more) => ({ model: "counter", max_tokens: 100, messages: [{ role: "user", content: "count to " + to }], ...more });
const limits = (headers) => Object.fromEntries([...headers].filter(([name]) => name.includes("ratelimit") && !name.includes("reset")));
const resets = (headers) => Object.fromEntries([...headers].filter(([name]) => name.includes("ratelimit") && name.includes("reset")));

// tried does something, and returns the error and how often the client has called.
async function tried(f) {
  calls = [];
  let result;
  try {
    result = { value: await f() };
  } catch (e) {
    result = { error: e.constructor.name, message: e.message, status: e.status, code: e.code ?? null, type: e.type ?? null };
  }
  const early = calls.slice(1).some((c, i) => c.at - calls[i].at < calls[i].retryMs - 1); // a timer may be 1 ms early
  return { ...result, statuses: calls.map((c) => c.status), hints: calls.map((c) => c.retryMs), bytes: calls[0].bytes, early };
}

const stories = {
  // usage: both forms, whole and streamed.
  async usage() {
    const o = openai("usage"), a = anthropic("usage");
    const whole = await o.chat.completions.create(count(12)).withResponse();
    const chunks = [];
    for await (const chunk of await o.chat.completions.create(count(12, { stream: true }))) chunks.push(chunk);
    const helper = o.chat.completions.stream(count(12));
    const message = await a.messages.create(count(12)).withResponse();
    const stream = a.messages.stream(count(12));
    const models = [];
    for await (const m of o.models.list()) models.push(m.id);
    return {
      openai: whole.data.usage, headers: limits(whole.response.headers), resets: resets(whole.response.headers),
      chunks: chunks.filter((c) => c.choices.length).length, streamed: chunks.at(-1).usage, extra: chunks.filter((c) => !c.choices.length).length,
      text: await helper.finalContent(), helper: await helper.totalUsage(),
      anthropic: message.data.usage, streamedMessage: (await stream.finalMessage()).usage, models,
    };
  },
  // endpoints: what costs tokens, and what does not.
  async endpoints() {
    const o = openai("endpoints", { maxRetries: 0 }), a = anthropic("endpoints", { maxRetries: 0 });
    const made = await o.responses.create({ model: "m", input: "hello" });
    for (let i = 0; i < 5; i++) await o.responses.retrieve(made.id);
    await o.responses.inputTokens.count({ model: "m", input: "hello" });
    await o.moderations.create({ input: "hello" });
    await o.files.create({ file: new File(["x".repeat(1 << 20)], "a.jsonl"), purpose: "batch" });
    const batch = await tried(() => o.batches.create({ input_file_id: "f", endpoint: "/v1/responses", completion_window: "24h" }));
    for (let i = 0; i < 3; i++) await o.batches.retrieve("batch_1");
    await o.embeddings.create({ model: "m", input: "hello", encoding_format: "float" });
    await o.images.generate({ model: "gpt-image-1", prompt: "a cat" });
    for await (const event of await o.images.generate({ model: "gpt-image-1", prompt: "a cat", stream: true })) void event;
    await a.messages.countTokens({ model: "m", messages: [{ role: "user", content: "hello" }] });
    const part = (id) => ({ custom_id: id, params: { model: "m", max_tokens: 100, messages: [{ role: "user", content: "hello" }] } });
    await a.messages.batches.create({ requests: ["a", "b", "c"].map(part) });
    for (let i = 0; i < 3; i++) await a.messages.batches.retrieve("batch_1");
    return { batch };
  },
  // full: four streams run, and a fifth request waits until one has left.
  async full() {
    const result = {};
    const start = {
      openai: async (o) => (await o.chat.completions.create(count(100000, { stream: true, max_tokens: 9000 }))).controller,
      anthropic: async (a) => (await a.messages.create(count(100000, { stream: true, max_tokens: 9000 }))).controller,
    };
    const ask = { openai: (o) => o.chat.completions.create(count(2)), anthropic: (a) => a.messages.create(count(2)) };
    for (const [name, client] of Object.entries({ openai, anthropic })) {
      const running = [];
      for (let i = 0; i < 4; i++) running.push(await start[name](client("full")));
      result[name + " at once"] = await tried(() => ask[name](client("full", { maxRetries: 0 })));
      refused = () => running[0].abort();
      result[name] = await tried(async () => (await ask[name](client("full", { maxRetries: 5 }))).usage);
      refused = () => {};
      running.forEach((c) => c.abort());
    }
    return result;
  },
  // never: what no wait helps is not tried again.
  async never() {
    return {
      openai: await tried(() => openai("never").chat.completions.create(count(2, { max_tokens: 100000 }))),
      anthropic: await tried(() => anthropic("never").messages.create(count(2, { max_tokens: 50000, stream: true }))),
    };
  },
  // slow: a whole answer takes more than a second.
  async slow() {
    const ask = { openai: (o, q) => o.chat.completions.create(q), anthropic: (a, q) => a.messages.create(q) };
    const result = {};
    for (const [name, client] of Object.entries({ openai, anthropic })) {
      result[name] = await tried(async () => (await ask[name](client("slow", { maxRetries: 0 }), count(1200, { max_tokens: 1200 }))).usage);
    }
    return result;
  },
  // month: the budget of the month is used up.
  async month() {
    const o = openai("month"), a = anthropic("month");
    await o.chat.completions.create(count(599, { max_tokens: 599 }));
    await a.messages.create(count(599, { max_tokens: 599 }));
    return {
      openai: await tried(() => o.chat.completions.create(count(2))),
      anthropic: await tried(() => a.messages.create(count(2))),
    };
  },
};

console.log(JSON.stringify(await stories[story]()));
process.exit(0); // streams that nobody reads would keep it alive
