// Requests to this page's server, and the state of the page in its URL.

/** @typedef {{name: string, task: string, model: string, says: string, kind: string, data: string, labels: string[], attends: boolean, attributes?: boolean, layers: number|null, heads: number|null, parameters: number|null, second?: string, features?: string[], writes?: string, temperature?: number, error?: string}} RunRow */

const BETWEEN = "\u001f"; // between the parts of an input in the page, where nobody types it

/** @typedef {{text: string, second?: string, columns?: Record<string, string>}} Input */

/** Return the one string by which the page knows an input. @param {Input} input */
export function joined({ text, second, columns }) {
  const said = [text, second ?? "", columns ? JSON.stringify(columns) : ""];
  return !(text + (second ?? "")).trim() || (second === undefined && !columns) ? text : said.join(BETWEEN);
}

/** Return the parts of an input, by their names in requests. @param {string} input @returns {Input} */
export function partsOf(input) {
  const [text, second, columns] = input.split(BETWEEN);
  return { text, ...(second && { second }), ...(columns && { columns: JSON.parse(columns) }) };
}

/** Return an input as a line to read. @param {string} input */
export function inWords(input) {
  const { text, second, columns } = partsOf(input);
  return [text, ...(second ? [second] : []), ...(columns ? [Object.entries(columns).map(([name, value]) => `${name}: ${value}`).join(", ")] : [])].join(" ⏎ ");
}

/** Return the beginning of a text. @param {string} text @param {number} most characters */
export function brief(text, most) {
  return text.length > most ? `${text.slice(0, most - 1)}…` : text;
}

/** Return the body of a request, with the texts of its inputs. @param {any} body */
function sent(body) {
  if (typeof body.text !== "string") return body;
  const other = typeof body.other === "string" ? partsOf(body.other) : null;
  return { ...body, ...partsOf(body.text), ...(other && { other: other.text, ...(other.second !== undefined && { other_second: other.second }) }) };
}

/**
 * Request an answer. Errors say what to do; `asked` is true if the same request would fail again.
 * Paths are relative to the page, which a proxy may serve below a prefix.
 * @param {string} path @param {any} [body] @param {AbortSignal} [signal]
 * @returns {Promise<Response>}
 */
async function fetched(path, body, signal) {
  let answer;
  try {
    answer = await fetch(`.${path}`, body === undefined ? { signal } : {
      method: "POST", headers: { "content-type": "application/json" }, body: JSON.stringify(sent(body)), signal });
  } catch (error) {
    if (signal?.aborted) throw error;
    throw new Error("The server does not respond. See whether regard serve is still running, and try again.");
  }
  if (answer.ok) return answer;
  let message = `The server failed with status ${answer.status}. Try again; its terminal says more.`;
  try {
    message = (await answer.json()).error;
  } catch { /* no JSON: the status alone */ }
  throw Object.assign(new Error(message), { asked: answer.status < 500 && answer.status !== 408 });
}

/** Return the answer as JSON. @param {string} path @param {any} [body] @param {AbortSignal} [signal] */
export async function ask(path, body, signal) {
  return (await fetched(path, body, signal)).json();
}

/** Return the answer as bytes. @param {string} path @param {any} body */
export async function askBytes(path, body) {
  return (await fetched(path, body)).arrayBuffer();
}

/** Call `onLine` with every JSON line of the answer as it arrives. @param {string} path @param {any} body @param {(line: any) => void} onLine @param {AbortSignal} signal */
export async function askLines(path, body, onLine, signal) {
  const answer = await fetched(path, body, signal);
  const reader = /** @type {any} */ (answer.body).pipeThrough(new TextDecoderStream()).getReader();
  let rest = "";
  for (;;) {
    const { done, value } = await reader.read();
    const lines = (rest + (value ?? "")).split("\n");
    rest = lines.pop() ?? "";
    lines.filter(Boolean).forEach((line) => onLine(JSON.parse(line)));
    if (done) return;
  }
}

/** Read the state from the URL. @returns {Record<string, string>} */
export function readState() {
  return Object.fromEntries(new URLSearchParams(location.hash.slice(1)));
}

const LONGEST = 4000; // maximum characters of the URL's fragment

/** Write the state to the URL without adding a history entry. @param {Record<string, any>} changes */
export function writeState(changes) {
  const state = { ...readState(), ...changes };
  const kept = Object.entries(state).filter(([, value]) => value !== "" && value !== undefined && value !== null);
  let text = new URLSearchParams(kept.map(([k, v]) => [k, String(v)])).toString();
  if (text.length > LONGEST) text = new URLSearchParams(kept.filter(([k]) => k !== "text" && k !== "written").map(([k, v]) => [k, String(v)])).toString();
  history.replaceState(null, "", `#${text}`);
  dispatchEvent(new Event("state"));
}
