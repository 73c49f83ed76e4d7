// The specification Claim.tla for one delivery, as a machine that reads lines: which states are possible after each of them.
//
// A line shows what is committed; what a process knows and what the push service took is hidden. So the machine keeps every state that the
// lines so far allow: all that hidden steps lead to, then those that a step makes look like the next line. Steps come from the specification
// itself. States that no later line can tell apart are kept as one, so that a machine has few of them however many claims a delivery had:
//  - A crash, or a cancel while a delivery is claimed, only forbids steps. Whoever rests looks the same: these steps are left out.
//  - Who lost its claim may learn of its answer late, or report it late. It learns right before it reports, or never: other orders look the same.
//  - Lost claims that wait for an answer are alike, but for the one whose unseen answer was written last: one is kept, the others are counted.
//  - Redrives are not limited, and what is sent was taken (SentWasTaken): how often is kept only if a history tells what its phone got.
import { initial, read, successors } from "./checker.mjs";

const SPEC = read("Claim.tla");
const SLOTS = 3; // claims in a state: whose unseen answer was written last, one other that is lost, the one that holds the delivery
const MOST_STATES = 20_000; // kept at once

const holder = (state) => state.standing[0] ?? null;

/** What a state of the specification shows. */
function seen(state) {
  const claim = holder(state);
  return {
    status: state.status.d,
    attempts: state.attempts.d,
    place: state.queue.length ? "queue" : claim === null ? null : "claim",
    is_journalled: claim !== null && state.requests.__tuple[claim - 1].d === "open",
    has_late: state.late.length > 0,
  };
}

/** Whether a state looks as a line says. A late ticket and the journal are not ordered by a lock: only one that is told of must be there. */
const fits = (a, b) => a.status === b.status && a.attempts === b.attempts && a.place === b.place && a.is_journalled === b.is_journalled
  && (!b.has_late || a.has_late);
const same = (a, b) => fits(a, b) && a.has_late === b.has_late;

/** Sorts the claims of a state by what they can still do: whose unseen answer was written last, those that report something, those that wait. */
function sorted(state) {
  const claims = { last: null, reporting: [], waiting: 0 };
  for (let c = 1; c <= state.made; c += 1) {
    if (c === holder(state)) continue;
    const isLast = c === state.given_up_by.d, told = state.told.__tuple[c - 1].d, request = state.requests.__tuple[c - 1].d;
    const isReporting = told === "ticket" || (isLast && told === "unsent");
    const isWaiting = state.live.includes(c) && told === "nothing" && request === "doubt";
    if (isLast) claims.last = { told, isLive: isReporting || isWaiting, isReporting };
    else if (isReporting) claims.reporting.push(told);
    else if (isWaiting) claims.waiting += 1;
  }
  return claims;
}

const reports = ({ last, reporting }) => reporting.length + (last?.isReporting ? 1 : 0);

/** Returns the state with the fewest claims that can do the same, and how many more lost ones wait beside those in it. */
function reduced(state, { last, reporting, waiting }, isCounting) {
  const slots = [];
  if (last) slots.push(last.isLive ? { request: "doubt", told: last.told, isLive: true } : { request: "none", told: "nothing", isLive: false });
  for (const told of reporting) slots.push({ request: "doubt", told, isLive: true });
  const isShown = waiting > 0 && reporting.length === 0;
  if (isShown) slots.push({ request: "doubt", told: "nothing", isLive: true });
  const held = holder(state);
  if (held !== null) slots.push({ request: state.requests.__tuple[held - 1].d, told: state.told.__tuple[held - 1].d, isLive: true });
  const numbers = [...Array(SLOTS).keys()];
  const core = {
    ...state,
    made: slots.length,
    standing: held === null ? [] : [slots.length],
    holds: { __tuple: numbers.map((n) => (held !== null && n === slots.length - 1 ? ["d"] : [])) },
    live: numbers.filter((n) => slots[n]?.isLive).map((n) => n + 1),
    requests: { __tuple: numbers.map((n) => ({ d: slots[n]?.request ?? "none" })) },
    told: { __tuple: numbers.map((n) => ({ d: slots[n]?.told ?? "nothing" })) },
    given_up_by: { d: last ? 1 : 0 },
    redriven: { d: 0 },
    taken: { d: isCounting ? state.taken.d : Number(state.status.d === "sent") },
  };
  return { core, waiting: waiting - Number(isShown) };
}

export class Machine {
  /** For deliveries of one kind; isCounting: what their phones got is told. */
  constructor(isOnce, attempts, isCounting) {
    this.configuration = `INIT Init\nNEXT Next\nCONSTANTS\n  Deliveries = {"d"}\n  Once = ${isOnce ? '{"d"}' : "{}"}\n  MaxClaims = ${SLOTS}\n  MaxAttempts = ${attempts}
  MaxRedrives = 1\n  HasReceipts = TRUE\n  HasDeadlines = TRUE\n  FENCE = "claim"\n  JOURNAL_FIRST = TRUE\n  LATE_STOPS = TRUE\n  END_LOOKED_AT = TRUE\n  ONCE_GIVES_UP = TRUE\n`;
    this.isCounting = isCounting;
    this.states = new Map(); // by what they are
    this.steps = new Map(); // what the specification allows, by state without those counted beside it
    this.sets = new Map(); // of states that are possible together
    this.beginning = null;
  }

  /** The states in which a delivery begins. */
  first() {
    this.beginning ??= this.#set(this.#closed(initial(SPEC, this.configuration).map((state) => this.#state(state, sorted(state)))));
    return this.beginning;
  }

  /** The states that are possible after a line; none if the specification does not allow it. */
  after(set, line) {
    if (!set.after.has(line)) set.after.set(line, this.#read(set.states, line));
    return set.after.get(line);
  }

  #read(states, line) {
    // touched, and nothing that the model knows of has changed
    if (states.some((state) => same(state.looks, line))) return this.#set(states.filter((state) => fits(state.looks, line)));
    const next = states.flatMap((state) => this.#next(state)).filter((step) => fits(step.looks, line));
    return this.#set(this.#closed(next.map((step) => step.state)));
  }

  /** All that hidden steps lead to. */
  #closed(states) {
    const found = new Set(states);
    for (const state of found) { // which goes on with what is added meanwhile
      for (const step of this.#next(state)) if (same(step.looks, state.looks)) found.add(step.state);
      if (found.size > MOST_STATES) throw new Error("too many states are possible at once");
    }
    return [...found];
  }

  /** The states one step further, each with how it looks: a claim that was made by the step is a new one. */
  #next(state) {
    state.next ??= this.#allowed(state).flatMap((to) => {
      const claims = sorted(to);
      if (reports(claims) && (state.isReporting || (holder(state.core) !== null && holder(to) === null))) return []; // it reports later
      claims.waiting += state.waiting;
      const next = this.#state(to, claims);
      const isTaken = holder(state.core) === null && holder(to) !== null;
      return [{ state: next, looks: isTaken ? { ...next.looks, place: "new claim" } : next.looks }];
    });
    return state.next;
  }

  /** What the specification allows next, without steps that only forbid. */
  #allowed({ core, key }) {
    if (!this.steps.has(key)) {
      const found = successors(SPEC, this.configuration, core).transitions.map(({ state: { json } }) => json);
      const isCrash = (to) => to.live.length < core.live.length;
      const isCancel = (to) => to.ended.length > core.ended.length && holder(core) !== null;
      this.steps.set(key, found.filter((to) => !isCrash(to) && !isCancel(to)));
    }
    return this.steps.get(key);
  }

  /** A state, made once. */
  #state(full, claims) {
    const { core, waiting } = reduced(full, claims, this.isCounting);
    const key = JSON.stringify(core), name = `${key} ${waiting}`;
    if (!this.states.has(name))
      this.states.set(name, { number: this.states.size, core, key, waiting, isReporting: reports(claims) > 0, looks: seen(core), next: null });
    return this.states.get(name);
  }

  /** States that are possible together, found once; with what becomes of them by each line. */
  #set(states) {
    if (states.length === 0) return null;
    const all = [...new Set(states)], name = all.map((state) => state.number).sort((a, b) => a - b).join(" ");
    if (!this.sets.has(name)) this.sets.set(name, { states: all, after: new Map() });
    return this.sets.get(name);
  }
}
