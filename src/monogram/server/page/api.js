// The service, as functions. An answer that is no success is a Failure with the service's own words.

export class Failure extends Error {
  constructor(message, status) {
    super(message);
    this.status = status;
  }
}

const KEY = "monogram-key";

export const key = {
  get: () => sessionStorage.getItem(KEY),
  set: (value) => sessionStorage.setItem(KEY, value),
};

async function call(path, { body, signal } = {}) {
  const headers = { Accept: "application/json" };
  if (key.get()) headers.Authorization = `Bearer ${key.get()}`;
  if (body !== undefined) headers["Content-Type"] = "application/json";
  let answer;
  try {
    answer = await fetch(path, {
      method: body === undefined ? "GET" : "POST", headers, signal, body: body === undefined ? null : JSON.stringify(body),
    });
  } catch (error) {
    if (error.name === "AbortError") throw error;
    throw new Failure("The service does not answer. Is it still running?", 0);
  }
  let found = null;
  try {
    found = await answer.json();
  } catch (error) {
    if (error.name === "AbortError") throw error;
    throw new Failure(`The service gave no answer that can be read (${answer.status}).`, answer.status);
  }
  if (!answer.ok) throw new Failure(found?.error?.message ?? `The service answered ${answer.status}.`, answer.status);
  return found;
}

export const models = () => call("/v1/models").then((found) => found.models);
export const card = (name) => call(`/v1/models/${encodeURIComponent(name)}`);
export const recommend = (body, signal) => call("/v1/recommend", { body, signal });
export const similar = (body, signal) => call("/v1/similar", { body, signal });
export const items = (model, query, limit, signal) =>
  call(`/v1/items?${new URLSearchParams({ model, query, limit })}`, { signal });
