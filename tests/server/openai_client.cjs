// What the JavaScript client gets from two servers: node openai_client.cjs BASE_URL CALLING_BASE_URL KEY
const OpenAI = require("openai").default;

const tools = [
  {
    type: "function",
    function: {
      name: "switch-light",
      description: "Switches a light.",
      parameters: {
        type: "object",
        properties: { on: { type: "boolean" } },
        required: ["on"],
        additionalProperties: false,
      },
    },
  },
];

async function texts(client) {
  const asked = {
    model: "any",
    messages: [{ role: "user", content: "Well?" }],
    chat_template_kwargs: { enable_thinking: false },
  };
  const models = [];
  for await (const model of await client.models.list()) models.push(model.id);
  const answer = await client.chat.completions.create({ ...asked, logprobs: true, top_logprobs: 1 });
  const whole = answer.choices[0].message.content;
  const likely = answer.choices[0].logprobs.content.map((one) => one.token);
  let streamed = "";
  let usage = false;
  const stream = await client.chat.completions.create({
    ...asked,
    stream: true,
    stream_options: { include_usage: true },
  });
  for await (const chunk of stream) {
    streamed += chunk.choices[0]?.delta?.content ?? "";
    usage = usage || chunk.usage?.completion_tokens > 0;
  }
  const input = { model: "any", input: "Well?", reasoning: { effort: "none" } };
  const response = (await client.responses.create(input)).output_text;
  const typed = client.responses.stream(input);
  let deltas = "";
  typed.on("response.output_text.delta", (event) => (deltas += event.delta));
  const final = (await typed.finalResponse()).status;
  let refused = 0;
  try {
    await client.chat.completions.create({ ...asked, tools });
  } catch (error) {
    refused = error.status;
  }
  return { models, whole, likely, streamed, usage, response, deltas, final, refused };
}

async function calls(client) {
  const runner = client.chat.completions.stream({
    model: "any",
    messages: [{ role: "user", content: "Well?" }],
    tools,
    tool_choice: "required",
    parallel_tool_calls: false,
    seed: 1,
    max_tokens: 300,
  });
  const choice = (await runner.finalChatCompletion()).choices[0];
  const call = choice.message.tool_calls[0];
  const back = await client.chat.completions.create({
    model: "any",
    messages: [
      { role: "user", content: "Well?" },
      choice.message,
      { role: "tool", tool_call_id: call.id, content: "Done." },
    ],
    tools,
    max_tokens: 2,
  });
  return {
    called: call.function.name,
    on: typeof JSON.parse(call.function.arguments).on,
    reason: choice.finish_reason,
    back: back.usage.completion_tokens > 0,
  };
}

async function main(baseURL, callingURL, apiKey) {
  const client = new OpenAI({ baseURL, apiKey, maxRetries: 0 });
  const calling = new OpenAI({ baseURL: callingURL, apiKey, maxRetries: 0 });
  console.log(JSON.stringify({ ...(await texts(client)), ...(await calls(calling)) }));
}

main(process.argv[2], process.argv[3], process.argv[4]);
