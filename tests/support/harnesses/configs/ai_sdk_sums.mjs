// Ask every sum with the AI SDK: the even ones whole, the odd ones as a stream.
import fs from "node:fs";
import { createOpenAICompatible } from "@ai-sdk/openai-compatible";
import { generateText, streamText } from "ai";

const gateway = createOpenAICompatible({ name: "gateway", baseURL: process.env.BASE_URL, includeUsage: true });
const model = gateway(process.env.MODEL);
const lines = fs.readFileSync("sums.jsonl", "utf8").trim().split("\n");
let right = 0;
for (const [number, line] of lines.entries()) {
  const row = JSON.parse(line);
  const request = { model, prompt: row.question, maxOutputTokens: 16, maxRetries: 0 };
  const said = await (number % 2 ? streamText(request).text : generateText(request).then((answer) => answer.text));
  right += said === row.answer;
}
console.log(`SCORE ${right / lines.length}`);
