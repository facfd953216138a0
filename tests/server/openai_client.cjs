// What the JavaScript client gets from a server: node openai_client.cjs BASE_URL KEY
const OpenAI = require("openai").default;

async function main(baseURL, apiKey) {
  const client = new OpenAI({ baseURL, apiKey, maxRetries: 0 });
  const asked = {
    model: "any",
    messages: [{ role: "user", content: "Well?" }],
    chat_template_kwargs: { enable_thinking: false },
  };
  const models = [];
  for await (const model of await client.models.list()) models.push(model.id);
  const whole = (await client.chat.completions.create(asked)).choices[0].message.content;
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
  let refused = 0;
  try {
    await client.chat.completions.create({ ...asked, tools: [{ type: "function", function: { name: "f" } }] });
  } catch (error) {
    refused = error.status;
  }
  console.log(JSON.stringify({ models, whole, streamed, usage, refused }));
}

main(process.argv[2], process.argv[3]);
