// Ask every sum with the openai package for Node: the even ones whole, the odd ones as a stream.
import fs from "node:fs";
import OpenAI from "openai";

const client = new OpenAI({ baseURL: process.env.BASE_URL, apiKey: "none", maxRetries: 0, timeout: 60_000 });
const model = process.env.MODEL;
const lines = fs.readFileSync("sums.jsonl", "utf8").trim().split("\n");
let right = 0;
for (const [number, line] of lines.entries()) {
  const row = JSON.parse(line);
  const request = { model, messages: [{ role: "user", content: row.question }], max_tokens: 16 };
  let said = "";
  if (number % 2) {
    const stream = await client.chat.completions.create({ ...request, stream: true });
    for await (const part of stream) said += part.choices[0]?.delta?.content ?? "";
  } else {
    said = (await client.chat.completions.create(request)).choices[0].message.content;
  }
  right += said === row.answer;
}
console.log(`SCORE ${right / lines.length}`);
