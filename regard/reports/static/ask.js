// Questions to the server that this page came from, and what is shown, kept in the page's address.

/** @typedef {{name: string, task: string, model: string, says: string, kind: string, data: string, labels: string[], attends: boolean, layers: number|null, heads: number|null, parameters: number|null, writes?: string, temperature?: number, error?: string}} RunRow */

/**
 * @param {string} path @param {any} [body] @param {AbortSignal} [signal]
 * @returns {Promise<Response>}
 */
async function fetched(path, body, signal) {
  const answer = await fetch(path, body === undefined ? { signal } : {
    method: "POST", headers: { "content-type": "application/json" }, body: JSON.stringify(body), signal });
  if (answer.ok) return answer;
  const wait = answer.headers.get("retry-after");
  let says = `${answer.status}`;
  try {
    says = (await answer.json()).error;
  } catch { /* no JSON: the status alone */ }
  throw new Error(wait ? `${says}` : says);
}

/** The answer as JSON. @param {string} path @param {any} [body] @param {AbortSignal} [signal] */
export async function ask(path, body, signal) {
  return (await fetched(path, body, signal)).json();
}

/** The answer as bytes. @param {string} path @param {any} body */
export async function askBytes(path, body) {
  return (await fetched(path, body)).arrayBuffer();
}

/** The answer line by line, as it comes. @param {string} path @param {any} body @param {(line: any) => void} told @param {AbortSignal} signal */
export async function askLines(path, body, told, signal) {
  const answer = await fetched(path, body, signal);
  const reader = /** @type {any} */ (answer.body).pipeThrough(new TextDecoderStream()).getReader();
  let rest = "";
  for (;;) {
    const { done, value } = await reader.read();
    const lines = (rest + (value ?? "")).split("\n");
    rest = lines.pop() ?? "";
    lines.filter(Boolean).forEach((line) => told(JSON.parse(line)));
    if (done) return;
  }
}

/** What the address says is shown. @returns {Record<string, string>} */
export function readState() {
  return Object.fromEntries(new URLSearchParams(location.hash.slice(1)));
}

const LONGEST = 4000; // letters of an address

/** Put what is shown into the address, without a step in the history. @param {Record<string, any>} changes */
export function writeState(changes) {
  const state = { ...readState(), ...changes };
  const kept = Object.entries(state).filter(([, value]) => value !== "" && value !== undefined && value !== null);
  let text = new URLSearchParams(kept.map(([k, v]) => [k, String(v)])).toString();
  if (text.length > LONGEST) text = new URLSearchParams(kept.filter(([k]) => k !== "text" && k !== "written").map(([k, v]) => [k, String(v)])).toString();
  history.replaceState(null, "", `#${text}`);
  dispatchEvent(new Event("state"));
}
