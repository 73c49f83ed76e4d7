import type { FieldError, ProblemBody } from "./generated/index.js";

/** An answer that is an error, as Relevo tells it (problem+json). */
export class RelevoError extends Error {
  override readonly name = "RelevoError";
  readonly status: number;
  /** The kind of error, such as `urn:relevo:invalid`. */
  readonly type: string;
  /** The next step, where there is one. */
  readonly hint: string | null;
  readonly errors: readonly FieldError[];
  /** What the server's log knows it by. */
  readonly requestId: string | null;
  /** How long the server asks to wait. */
  readonly retryAfterMs: number | null;
  /** The event of which nothing was sent, where that is the error. */
  readonly eventId: number | null;

  constructor(status: number, problem: Partial<ProblemBody> & { event_id?: number }, retryAfterMs: number | null = null) {
    super(problem.detail ?? `Relevo answered ${status}.`);
    this.status = status;
    this.type = problem.type ?? "about:blank";
    this.hint = problem.hint ?? null;
    this.errors = problem.errors ?? [];
    this.requestId = problem.request_id ?? null;
    this.retryAfterMs = retryAfterMs;
    this.eventId = problem.event_id ?? null;
  }
}

/** No answer came: there is no network, or it took too long. Nobody knows whether the request arrived. */
export class NoAnswerError extends Error {
  override readonly name = "NoAnswerError";

  constructor(why: string, cause?: unknown) {
    super(`Relevo did not answer: ${why}`, { cause });
  }
}

/** Tell whether trying again later may help. */
export function isTemporary(error: unknown): boolean {
  return error instanceof NoAnswerError || (error instanceof RelevoError && [429, 502, 503, 504].includes(error.status));
}
