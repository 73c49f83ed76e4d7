import { isTemporary, NoAnswerError, RelevoError } from "./errors.js";
import type { ProblemBody } from "./generated/index.js";

const LONGEST_PAUSE_MS = 30_000;

export type Method = "GET" | "PUT" | "POST" | "DELETE";

export interface HttpOptions {
  /** Where Relevo answers, such as `https://relay.example`. */
  url: string;
  /** The app's token; on servers alone, never in an app. */
  token?: string;
  /** How long to wait for an answer, beside what the request itself waits for. 15 seconds unless said. */
  timeoutMs?: number;
  /** How often to try again what may be repeated. 2 unless said. */
  retries?: number;
  fetch?: typeof fetch;
}

/** What a generated `…Data` type says of a request. */
export interface Operation {
  url: string;
  path?: object;
  query?: object;
  body?: unknown;
}

export interface Call {
  path?: object;
  query?: object;
  body?: unknown;
  /** A phone's secret, or another token than the client's. */
  secret?: string | null;
  signature?: string;
  /** Whether the same request again does no more than the first one did. */
  repeatable?: boolean;
  signal?: AbortSignal;
  /** How long the request itself waits at the server. */
  waitMs?: number;
}

/** Sends requests: with a timeout, and again if that is safe and may help. */
export class Http {
  readonly #base: string;
  readonly #token: string | undefined;
  readonly #timeoutMs: number;
  readonly #retries: number;
  readonly #fetch: typeof fetch;

  constructor(options: HttpOptions) {
    if (!/^https?:\/\//.test(options.url)) {
      throw new TypeError(`url must begin with http:// or https://, got ${JSON.stringify(options.url)}`);
    }
    this.#base = options.url.replace(/\/+$/, "");
    this.#token = options.token;
    this.#timeoutMs = options.timeoutMs ?? 15_000;
    this.#retries = options.retries ?? 2;
    this.#fetch = options.fetch ?? ((...given) => globalThis.fetch(...given));
  }

  /** Send a request and return the body of its answer; an answer of 400 or more is thrown. */
  async send<D extends Operation, R>(method: Method, url: D["url"], call: Call = {}): Promise<R> {
    const repeatable = call.repeatable ?? method !== "POST";
    for (let tried = 0; ; tried += 1) {
      try {
        return (await this.#once(method, url, call)) as R;
      } catch (error) {
        if (!repeatable || tried >= this.#retries || !isTemporary(error) || asksForLonger(error) || call.signal?.aborted) throw error;
        await pause(waitBefore(tried, error), call.signal);
      }
    }
  }

  async #once(method: Method, url: string, call: Call): Promise<unknown> {
    const ending = new AbortController();
    const end = (): void => ending.abort();
    const timer = setTimeout(end, this.#timeoutMs + (call.waitMs ?? 0));
    call.signal?.addEventListener("abort", end);
    if (call.signal?.aborted) end();
    try {
      const answer = await this.#fetch(this.#base + address(url, call), {
        method,
        headers: this.#headers(call),
        signal: ending.signal,
        ...(call.body === undefined ? {} : { body: JSON.stringify(call.body) }),
      });
      return read(answer, await answer.text());
    } catch (error) {
      if (error instanceof RelevoError) throw error;
      if (call.signal?.aborted) throw new NoAnswerError("the call was aborted", error);
      throw new NoAnswerError(ending.signal.aborted ? "no answer came in time" : "there is no connection", error);
    } finally {
      clearTimeout(timer);
      call.signal?.removeEventListener("abort", end);
    }
  }

  #headers(call: Call): Record<string, string> {
    const bearer = call.secret ?? this.#token;
    return {
      Accept: "application/json",
      ...(call.body === undefined ? {} : { "Content-Type": "application/json" }),
      ...(bearer ? { Authorization: `Bearer ${bearer}` } : {}),
      ...(call.signature ? { "X-Relevo-Signature": call.signature } : {}),
    };
  }
}

function address(url: string, call: Call): string {
  const named = (call.path ?? {}) as Record<string, unknown>;
  const place = url.replace(/\{(\w+)\}/g, (_, name: string) => encodeURIComponent(String(named[name])));
  const asked = Object.entries(call.query ?? {}).filter(([, value]) => value !== undefined && value !== null);
  const query = asked.map(([name, value]) => `${encodeURIComponent(name)}=${encodeURIComponent(String(value))}`);
  return query.length ? `${place}?${query.join("&")}` : place;
}

function read(answer: Response, text: string): unknown {
  let body: unknown = null;
  try {
    body = text ? JSON.parse(text) : null;
  } catch {
    body = null; // a proxy's page
  }
  if (answer.ok) return body;
  const seconds = Number(answer.headers.get("Retry-After") ?? Number.NaN);
  throw new RelevoError(answer.status, (body ?? {}) as Partial<ProblemBody>, seconds >= 0 ? seconds * 1000 : null);
}

/** Tell whether the server asks to wait longer than a caller waits for an answer, as after too many choices. */
function asksForLonger(error: unknown): boolean {
  return error instanceof RelevoError && (error.retryAfterMs ?? 0) > LONGEST_PAUSE_MS;
}

function waitBefore(tried: number, error: unknown): number {
  const asked = error instanceof RelevoError ? error.retryAfterMs : null;
  return asked ?? Math.min(300 * 2 ** tried * (0.5 + Math.random()), LONGEST_PAUSE_MS);
}

function pause(ms: number, signal?: AbortSignal): Promise<void> {
  return new Promise((resolve) => {
    const go = (): void => {
      clearTimeout(timer);
      signal?.removeEventListener("abort", go);
      resolve();
    };
    const timer = setTimeout(go, ms);
    signal?.addEventListener("abort", go);
  });
}
