// The HTTP API as functions. An error response becomes a Failure with the server's message.

export class Failure extends Error {
  constructor(message, status) {
    super(message);
    this.status = status;
  }
}

const KEY = "monogram-key";

export const key = {
  fits: (value) => /^[\x20-\x7e]+$/.test(value), // printable ASCII: what an HTTP header can hold
  get: () => {
    const stored = sessionStorage.getItem(KEY) ?? "";
    return key.fits(stored) ? stored : null;
  },
  set: (value) => sessionStorage.setItem(KEY, value),
  forget: () => sessionStorage.removeItem(KEY),
};

// JSON in which an integer too large for a number becomes text: the server accepts ids as text, too.
export const read = (text) => JSON.parse(text, (name, value, context) => {
  if (!Number.isInteger(value) || Number.isSafeInteger(value)) return value;
  if (context?.source !== undefined) return /^-?\d+$/.test(context.source) ? context.source : value;
  if (name !== "item" && name !== "user") return value;
  throw new Failure("This browser cannot read integer ids above 2^53; use a newer browser.", 0);
});

async function call(path, { body, signal } = {}) {
  const headers = { Accept: "application/json" }, apiKey = key.get();
  if (apiKey !== null) headers.Authorization = `Bearer ${apiKey}`;
  if (body !== undefined) headers["Content-Type"] = "application/json";
  let answer;
  try {
    answer = await fetch(path, {
      method: body === undefined ? "GET" : "POST", headers, signal, body: body === undefined ? null : JSON.stringify(body),
    });
  } catch (error) {
    if (error.name === "AbortError") throw error;
    throw new Failure("The server does not respond. Is it still running?", 0);
  }
  let content = null;
  try {
    content = read(await answer.text());
  } catch (error) {
    if (error.name === "AbortError" || error instanceof Failure) throw error;
    throw new Failure(`The server sent an unreadable response (status ${answer.status}).`, answer.status);
  }
  if (answer.status === 401) {
    if (key.get() === apiKey) key.forget();
    throw new Failure(apiKey === null ? "" : "The server rejected this key.", 401);
  }
  if (!answer.ok) throw new Failure(content?.error?.message ?? `The server responded with status ${answer.status}.`, answer.status);
  return content;
}

export const models = () => call("/v1/models").then((content) => content.models);
export const card = (name) => call(`/v1/models/${encodeURIComponent(name)}`);
export const recommend = (body, signal) => call("/v1/recommend", { body, signal });
export const similar = (body, signal) => call("/v1/similar", { body, signal });
export const items = (model, query, limit, signal) => // without a model: those of the default model
  call(`/v1/items?${new URLSearchParams({ ...(model === null ? {} : { model }), query, limit })}`, { signal });
