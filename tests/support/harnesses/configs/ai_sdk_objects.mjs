// Ask for objects of a schema with the AI SDK: the even ones whole, the odd ones as a stream.
import fs from "node:fs";
import { createOpenAICompatible } from "@ai-sdk/openai-compatible";
import { generateText, jsonSchema, Output, streamText } from "ai";

const gateway = createOpenAICompatible({
  name: "gateway",
  baseURL: process.env.BASE_URL,
  includeUsage: true,
  supportsStructuredOutputs: true,
});
const schema = jsonSchema({
  type: "object",
  properties: { ok: { type: "boolean" }, kind: { enum: ["sum", "other"] }, name: { type: "string", maxLength: 8 } },
  required: ["ok", "kind", "name"],
  additionalProperties: false,
});
const model = gateway(process.env.MODEL);
const lines = fs.readFileSync("sums.jsonl", "utf8").trim().split("\n");
let made = 0;
for (const [number, line] of lines.entries()) {
  const prompt = JSON.parse(line).question;
  const request = { model, prompt, output: Output.object({ schema }), maxOutputTokens: 200, maxRetries: 0 };
  const report = await (number % 2 ? streamText(request).output : generateText(request).then((answer) => answer.output));
  made += typeof report.ok === "boolean" && ["sum", "other"].includes(report.kind) && [...report.name].length <= 8;
}
console.log(`SCORE ${made / lines.length}`);
