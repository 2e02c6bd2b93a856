// The pages Prompt and Compare: sends the conversation, shows the answers, and keeps the conversation in the address.
// Everything that a model or a person has written becomes text, never HTML.
"use strict";
{
  const MAX_FRAGMENT = 32 * 1024, MIN_POINTS = 10, MAX_POINTS = 300, TOP_LOGPROBS = 5;
  const FIELDS = ["model", "model_b", "conversation", "tools", "variables", "dataset_prompt", "row", "parameters"];
  const byId = (name) => document.getElementById(name);
  const form = byId("form");
  const field = (name) => form.elements.namedItem(name);
  const written = (name) => (field(name) ? field(name).value : "");

  // ---------------------------------------------------------------- the request

  // Numbers keep their digits where the browser can: 1.0 in a row of a dataset is not 1.
  const keepNumber = (key, value, context) =>
    typeof value === "number" && JSON.rawJSON && context.source !== String(value)
      ? JSON.rawJSON(context.source) : value;

  function jsonOf(name) {
    if (!written(name).trim()) return undefined;
    try {
      return JSON.parse(written(name), keepNumber);
    } catch (error) {
      throw new Error(`${name}: not valid JSON: ${error.message}`);
    }
  }

  // The same request as that of a posted form: see request_body in prompt/pages.py.
  function requestBody(model) {
    const body = { model }, options = {}, text = written("conversation"), parameters = jsonOf("parameters") ?? {};
    if (typeof parameters !== "object" || Array.isArray(parameters)) throw new Error("parameters: not a JSON object");
    if (written("dataset_prompt")) options.prompt = { id: written("dataset_prompt"), variables: jsonOf("row") ?? {} };
    else body.messages = /^\s*\[\s*\{/.test(text) ? jsonOf("conversation") : [{ role: "user", content: text }];
    if (jsonOf("tools") !== undefined) body.tools = jsonOf("tools");
    if (jsonOf("variables") !== undefined) options.variables = jsonOf("variables");
    return { ...body, ...(Object.keys(options).length ? { gateway: options } : {}), ...parameters };
  }

  // Returns a function for the pieces of a stream of server-sent events, which may be split anywhere.
  function sseReader(onData) {
    let rest = "", data = [];
    return (piece) => {
      rest += piece;
      const end = /\r\n|\n|\r(?=[^])/g; // a last \r may be the first half of \r\n
      let start = 0;
      for (let found; (found = end.exec(rest)); start = end.lastIndex) {
        const line = rest.slice(start, found.index);
        if (line.startsWith("data:")) data.push(line.slice(line[5] === " " ? 6 : 5));
        else if (line === "" && data.length) {
          const whole = data.join("\n");
          data = [];
          onData(whole);
        }
      }
      rest = rest.slice(start);
    };
  }

  function failure(error) {
    const code = `${error.code ?? error.type ?? "error"}${error.param ? ` at ${error.param}` : ""}`;
    return Object.assign(new Error(error.message), { code });
  }

  async function refusal(response) {
    const text = await response.text();
    try {
      return failure(JSON.parse(text).error);
    } catch {
      return new Error(`the gateway answered with status ${response.status}: ${text.slice(0, 200)}`);
    }
  }

  // ---------------------------------------------------------------- the answer

  const percent = (logprob) => `${(100 * Math.exp(logprob)).toFixed(1)} %`;

  function details(tokens) {
    return tokens.map((one) => {
      const others = (one.top_logprobs ?? []).filter((other) => other.token !== one.token);
      const list = others.map((other) => `${JSON.stringify(other.token)} ${percent(other.logprob)}`).join(", ");
      return `${JSON.stringify(one.token)} ${percent(one.logprob)}, logprob ${one.logprob.toFixed(4)}` +
        (list ? `; instead: ${list}` : "");
    }).join(" | ");
  }

  const element = (name, textContent, className = "") => Object.assign(document.createElement(name), { textContent, className });

  // Shows one answer while it arrives. New text is added once per frame.
  class AnswerView {
    constructor(suffix) {
      this.part = (name) => byId(name + suffix);
      this.answer = this.part("answer");
      this.pending = [];
      this.notes = new WeakMap();
      this.current = null;
      this.answer.addEventListener("pointerover", (event) => this.showToken(event.target));
      this.answer.addEventListener("keydown", (event) => this.step(event));
    }

    begin(model) {
      this.model = model;
      if (this.part("of")) this.part("of").textContent = model;
      this.part("result").hidden = false;
      this.part("result").scrollIntoView({ block: "nearest" });
      this.answer.replaceChildren();
      this.answer.setAttribute("aria-busy", "true");
      for (const name of ["failure", "token", "timing"]) this.part(name).replaceChildren();
      this.pending = [];
      this.times = [];
      this.ended = this.current = this.usage = this.reason = this.hasOthers = null;
      this.started = performance.now();
      this.part("state").textContent = "Waiting for the first token."; // announced; the seconds beside it are not
      this.showSeconds();
      this.timer = setInterval(() => this.showSeconds(), 200);
    }

    showSeconds() {
      this.part("seconds").textContent = `${Math.floor((performance.now() - this.started) / 1000)} s`;
    }

    onData(data) {
      if (data === "[DONE]") return void (this.ended = true);
      const event = JSON.parse(data);
      if (event.error) throw failure(event.error);
      this.usage = event.usage ?? this.usage;
      for (const choice of event.choices ?? [])
        if (choice.index) this.hasOthers = true;
        else this.onChoice(choice);
    }

    onChoice({ delta = {}, logprobs, finish_reason: reason }) {
      this.reason = reason ?? this.reason;
      const calls = (delta.tool_calls ?? []).map(({ function: call = {} }) =>
        (call.name ? `\n${call.name} ` : "") + (call.arguments ?? "")).join("");
      const reasoning = delta.reasoning_content ?? delta.reasoning ?? "", text = delta.content ?? delta.refusal ?? "";
      if (reasoning || text || calls) {
        if (!this.times.length) this.part("state").textContent = "The answer arrives.";
        this.times.push(performance.now() - this.started);
      }
      if (reasoning) this.add(reasoning, "reasoning");
      const tokens = logprobs?.content ?? [];
      if (tokens.length && tokens.map((one) => one.token).join("") === text)
        for (const one of tokens) this.addTokens(one.token, [one]);
      else if (tokens.length && text) this.addTokens(text, tokens);
      else this.add(text, "");
      this.add(calls, "calls");
    }

    addTokens(text, tokens) {
      const lowest = Math.exp(Math.min(...tokens.map((one) => one.logprob)));
      this.add(text, `lp-${Math.min(9, Math.floor(lowest * 10))}`, tokens);
    }

    add(text, className, tokens) {
      if (!text) return;
      if (!this.pending.length) requestAnimationFrame(() => this.flush());
      const last = this.pending.at(-1);
      if (last && !tokens && last.className === className && !last.tokens) last.text += text;
      else this.pending.push({ text, className, tokens });
    }

    flush() {
      for (const { text, className, tokens } of this.pending) {
        const last = this.answer.lastChild, isSame = className && !tokens && last?.className === className;
        const node = isSame ? last : className ? element("span", "", className) : this.answer;
        node.append(text);
        if (node !== last && node !== this.answer) this.answer.append(node);
        if (tokens) this.notes.set(node, tokens);
      }
      this.pending = [];
    }

    showToken(span) {
      if (!this.notes.has(span)) return;
      this.current?.classList.remove("current");
      this.current = span;
      span.classList.add("current");
      this.part("token").textContent = span.title = details(this.notes.get(span));
    }

    step(event) {
      const next = { ArrowRight: "nextElementSibling", ArrowLeft: "previousElementSibling" }[event.key];
      const span = next && (this.current ? this.current[next] : this.answer.firstElementChild);
      if (!span || !this.notes.has(span)) return;
      event.preventDefault();
      this.showToken(span);
      span.scrollIntoView({ block: "nearest" });
    }

    end(problem, code) {
      this.flush();
      this.answer.setAttribute("aria-busy", "false");
      this.part("failure").replaceChildren(problem, ...(code ? [" ", element("small", `Error ${code}`, "muted")] : []));
      if (problem) this.part("failure").scrollIntoView({ block: "nearest" });
      clearInterval(this.timer);
      this.part("seconds").textContent = "";
      this.part("state").textContent = problem ? "" : "The answer is complete.";
      const total = performance.now() - this.started, list = element("dl", "", "facts");
      const gaps = this.times.map((time, at) => time - (at ? this.times[at - 1] : 0)), isLong = gaps.length >= MIN_POINTS;
      const tokens = this.hasOthers ? 0 : this.usage?.completion_tokens ?? 0; // of all choices
      const [count, unit] = tokens ? [tokens, "token"] : [gaps.length, "event"];
      const facts = [["Answer", `${count} ${unit}${count === 1 ? "" : "s"} in ${ms(total)}`]];
      if (gaps.length) facts.push(["First text", `after ${ms(gaps[0])}`]);
      if (isLong) facts.push([`Each ${unit}`, ms((this.times.at(-1) - gaps[0]) / (count - 1))]);
      if (this.usage) facts.push(["Prompt", `${this.usage.prompt_tokens} tokens`]);
      if (this.reason) facts.push(["Finish reason", this.reason]);
      for (const [name, value] of facts) list.append(element("dt", name), element("dd", value));
      const pictures = isLong ? [plot(gaps, gaps.length < tokens - 1 ? "event" : unit)] : [];
      if (gaps.length || !problem) this.part("timing").replaceChildren(list, ...pictures);
    }
  }

  const ms = (time) => (time < 1000 ? `${time.toFixed(time < 10 ? 1 : 0)} ms` : `${(time / 1000).toFixed(1)} s`);

  function svg(name, attributes, text = "") {
    const element = document.createElementNS("http://www.w3.org/2000/svg", name);
    for (const [key, value] of Object.entries(attributes)) element.setAttribute(key, value);
    element.textContent = text;
    return element;
  }

  // The time before each event of the answer. Of many events, each point is the longest time of some neighbours.
  // The unit is a token if each event has one: an engine may count the last token, which ends the answer, without text.
  function plot(gaps, unit) {
    const step = Math.ceil(gaps.length / MAX_POINTS), points = [];
    for (let at = 0; at < gaps.length; at += step) points.push(Math.max(...gaps.slice(at, at + step)));
    const most = Math.max(...points, 0.001), width = 600, height = 120;
    const place = (value, at) =>
      `${((at / Math.max(1, points.length - 1)) * width).toFixed(1)},${(height - (value / most) * (height - 20)).toFixed(1)}`;
    const label = `Time before each of ${gaps.length} ${unit}s with text, at most ${ms(most)}`;
    const picture = svg("svg", { viewBox: `0 0 ${width} ${height + 20}`, width, class: "plot", role: "img", "aria-label": label });
    picture.append(svg("polyline", { points: points.map(place).join(" ") }), svg("text", { x: 0, y: 12 }, label),
      svg("text", { x: 0, y: height + 16 }, `${unit} 1`),
      svg("text", { x: width, y: height + 16, "text-anchor": "end" }, `${unit} ${gaps.length}`));
    return picture;
  }

  async function ask(view, model, signal) {
    view.begin(model);
    try {
      const body = { ...requestBody(model), stream: true, stream_options: { include_usage: true } };
      if (byId("logprobs").checked) Object.assign(body, { logprobs: true, top_logprobs: TOP_LOGPROBS });
      const headers = { "content-type": "application/json" };
      const response = await fetch(`${form.dataset.root}/api/chat`, { method: "POST", headers, body: JSON.stringify(body), signal });
      if (!response.ok) throw await refusal(response);
      const feed = sseReader((data) => view.onData(data)), decoder = new TextDecoder(), reader = response.body.getReader();
      for (let read; !(read = await reader.read()).done; ) feed(decoder.decode(read.value, { stream: true }));
      if (!view.ended) throw new Error("the connection closed before the end of the answer; send it again");
      view.end("");
    } catch (error) {
      if (error.name === "AbortError") view.end("Stopped.");
      else view.end(error.message, error.code);
    }
  }

  // Marks the first difference of two answers, from its first character to the end of the word.
  function compareAnswers(status) {
    const texts = views.map((view) => [...view.answer.textContent]), length = Math.max(...texts.map((one) => one.length));
    let at = 0;
    while (at < length && texts[0][at] === texts[1][at]) at++;
    if (at === length) return void (status.textContent = "The answers are equal.");
    const ended = views.filter((view, side) => texts[side].length === at).map((view) => `, where that of ${view.model} ends`);
    status.textContent = `The answers differ after ${at} equal character${at === 1 ? "" : "s"}${ended.join("")}.`;
    for (const [side, view] of views.entries()) markWord(view.answer, texts[side].slice(0, at).join("").length);
  }

  function markWord(answer, at) {
    answer.normalize(); // the text has arrived in pieces
    const texts = document.createTreeWalker(answer, NodeFilter.SHOW_TEXT), range = document.createRange();
    for (let text; (text = texts.nextNode()); at -= text.length) {
      if (at >= text.length) continue;
      range.setStart(text, at);
      range.setEnd(text, at + /^(\s+|\S+)/.exec(text.data.slice(at))[0].length);
      return range.surroundContents(document.createElement("mark"));
    }
    answer.append(document.createElement("mark")); // this answer has ended
  }

  const views = [...document.querySelectorAll("[data-answer]")].map((one) => new AnswerView(one.dataset.answer));
  let controller = null;

  async function send() {
    controller = new AbortController();
    byId("send").disabled = true;
    byId("stop").disabled = false;
    const models = [written("model"), written("model_b")];
    if (views.length > 1) byId("answers").textContent = "";
    await Promise.all(views.map((view, at) => ask(view, models[at], controller.signal)));
    if (views.length > 1 && views.every((view) => view.ended)) compareAnswers(byId("answers"));
    byId("send").disabled = false;
    byId("stop").disabled = true;
  }

  // ---------------------------------------------------------------- the conversation in the address and in files

  const say = (text) => byId("copied").textContent !== text && (byId("copied").textContent = text);
  const state = () => Object.fromEntries(FIELDS.filter(written).map((name) => [name, written(name)]));

  function fragment() {
    const bytes = new TextEncoder().encode(JSON.stringify(state()));
    if (bytes.length > MAX_FRAGMENT) return "";
    const text = btoa(Array.from(bytes, (byte) => String.fromCharCode(byte)).join(""));
    const found = `#c=${text.replaceAll("+", "-").replaceAll("/", "_").replace(/=+$/, "")}`;
    return found.length > MAX_FRAGMENT ? "" : found;
  }

  const TOO_LONG = "The conversation is too long for a link (at most 32 kB). Use “Save as file”.";

  function updateAddress() {
    const found = fragment();
    history.replaceState(null, "", location.pathname + location.search + found);
    if (!found) say(TOO_LONG);
    else if (byId("copied").textContent === TOO_LONG) say("");
  }

  function restore(values) {
    if (Array.isArray(values)) values = { conversation: JSON.stringify(values, null, 1) };
    const missing = FIELDS.filter((name) => {
      const value = values[name] ?? "", element = field(name);
      if (!element || typeof value !== "string") return value !== "";
      if (value || element.tagName !== "SELECT" || name === "dataset_prompt") element.value = value;
      return element.tagName === "SELECT" && value && element.value !== value;
    });
    for (const element of form.elements)
      if (element.value && element.tagName === "TEXTAREA") element.closest("details")?.setAttribute("open", "");
    for (const name of missing) if (field(name)?.tagName === "SELECT" && field(name).selectedIndex < 0) field(name).selectedIndex = 0;
    say(missing.length ? `Not available here: ${missing.map((name) => `${name} ${values[name]}`).join(", ")}` : "");
  }

  function restoreFragment() {
    const text = location.hash.slice(3).replaceAll("-", "+").replaceAll("_", "/");
    try {
      restore(JSON.parse(new TextDecoder("utf-8", { fatal: true }).decode(Uint8Array.from(atob(text), (one) => one.charCodeAt(0)))));
    } catch {
      say("The link is damaged: its conversation cannot be read.");
    }
  }

  function save() {
    const link = document.createElement("a");
    link.href = URL.createObjectURL(new Blob([JSON.stringify(state(), null, 1)], { type: "application/json" }));
    link.download = "conversation.json";
    link.click();
    setTimeout(() => URL.revokeObjectURL(link.href), 10000);
    say("Saved as conversation.json.");
  }

  async function open(event) {
    const [file] = event.target.files;
    event.target.value = "";
    if (!file) return;
    try {
      restore(JSON.parse(await file.text(), keepNumber));
      updateAddress();
    } catch {
      say(`${file.name} is not a saved conversation.`);
    }
  }

  // ---------------------------------------------------------------- copies

  const base = () => new URL(`${form.dataset.root.replace(/\/viewer$/, "")}/v1/chat/completions`, location.href).href;
  const quote = (text) => `'${text.replaceAll("'", "'\\''")}'`;
  const needsKey = form?.dataset.needsKey === "1";

  function curl() {
    const key = needsKey ? ` -H "authorization: Bearer $GATEWAY_KEY"` : "";
    return `curl ${base()} -H 'content-type: application/json'${key} -d ${quote(JSON.stringify(requestBody(written("model"))))}`;
  }

  function python(value) {
    if (value === null) return "None";
    if (typeof value === "boolean") return value ? "True" : "False";
    if (Array.isArray(value)) return `[${value.map(python).join(", ")}]`;
    if (typeof value !== "object" || JSON.isRawJSON?.(value)) return JSON.stringify(value);
    return `{${Object.entries(value).map(([key, one]) => `${JSON.stringify(key)}: ${python(one)}`).join(", ")}}`;
  }

  function script() {
    const key = needsKey ? `, "authorization": "Bearer " + os.environ["GATEWAY_KEY"]` : "";
    return `import json\nimport os\nimport urllib.request\n\nbody = ${python(requestBody(written("model")))}\n` +
      `headers = {"content-type": "application/json"${key}}\n` +
      `request = urllib.request.Request(${JSON.stringify(base())}, json.dumps(body).encode(), headers)\n` +
      `print(json.load(urllib.request.urlopen(request))["choices"][0]["message"])\n`;
  }

  function link() {
    updateAddress();
    if (!location.hash) throw new Error(TOO_LONG);
    return location.href;
  }

  async function copy(name, make) {
    const area = byId("copy-text");
    area.hidden = true;
    let text;
    try {
      text = make();
    } catch (error) {
      return void say(error.message);
    }
    try {
      await navigator.clipboard.writeText(text);
      say(`Copied: ${name}.`);
    } catch { // no permission, or not a secure address
      area.value = text;
      area.hidden = false;
      area.select();
      say(`The text is selected: copy it with the keyboard (${name}).`);
    }
  }

  if (form) {
    for (const one of [...document.querySelectorAll("[data-script]"), byId("send"), byId("stop")]) one.hidden = false;
    byId("send").addEventListener("click", send);
    byId("stop").addEventListener("click", () => controller?.abort());
    byId("copy-curl").addEventListener("click", () => copy("curl", curl));
    byId("copy-python").addEventListener("click", () => copy("Python", script));
    byId("copy-link").addEventListener("click", () => copy("link", link));
    byId("save").addEventListener("click", save);
    byId("open").addEventListener("change", open);
    let timer;
    form.addEventListener("input", () => {
      clearTimeout(timer);
      timer = setTimeout(updateAddress, 300); // browsers limit how often the address changes
    });
    if (form.dataset.posted === "1") updateAddress();
    else if (location.hash.startsWith("#c=")) restoreFragment();
    addEventListener("hashchange", () => location.hash.startsWith("#c=") && restoreFragment());
  }
}
