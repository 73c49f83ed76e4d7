// Steps the specification Claim.tla along what a database wrote down, and fails at the first line that no step explains.
// node replay.mjs TRACE.jsonl[.gz] [--whole]   (lines of relevo_trace.steps in their order; see trace.sql)
// Each different history is stepped along once, the most frequent first; without --whole for two minutes in all and some seconds each, and it says how far it came.
//
// A trace shows what is committed; what a process knows and what the push service took is hidden. So the program keeps every state
// of the specification that the lines so far allow: all that hidden steps lead to, then those that a step makes look like the next line.
import { readFileSync } from "node:fs";
import { gunzipSync } from "node:zlib";
import { initial, read, successors } from "./checker.mjs";

const SPEC = read("Claim.tla");
const MOST_STATES = 20_000; // kept at once, of one delivery
const PATIENCE_MS = 120_000;
const ONE_MS = 5_000; // for one history, so that a long one does not keep the others
const isWhole = process.argv.includes("--whole");
const until = isWhole ? Infinity : Date.now() + PATIENCE_MS;
let soon = Infinity;
class OutOfTime extends Error {}
const STATUS = { pending: "open", retryable: "open", sent: "sent", ok: "sent", unconfirmed: "sent", invalid: "failed", failed: "failed",
                 unknown: "unknown", cancelled: "ended", expired: "ended", skipped: "ended" };

/** What a line shows: the same words that `seen` finds in a state. Claims are numbered as they come. */
function shown(line, claims) {
  const isClaimed = line.place !== null && line.place !== "queue";
  if (isClaimed && !claims.includes(line.place)) claims.push(line.place);
  return {
    status: STATUS[line.status],
    attempts: line.attempts,
    place: isClaimed ? claims.indexOf(line.place) + 1 : line.place,
    is_journalled: line.is_journalled,
    has_late: line.has_late,
  };
}

/** What a state of the specification shows. */
function seen(state) {
  const claim = state.standing.find((c) => state.holds.__tuple[c - 1].length > 0);
  return {
    status: state.status.d,
    attempts: state.attempts.d,
    place: state.queue.length ? "queue" : claim ?? null,
    is_journalled: claim !== undefined && state.requests.__tuple[claim - 1].d === "open",
    has_late: state.late.length > 0,
  };
}

/** Whether a state looks as a line says. A late ticket and the journal are not ordered by a lock: only one that is told of must be there. */
const fits = (a, b) => a.status === b.status && a.attempts === b.attempts && a.place === b.place && a.is_journalled === b.is_journalled
  && (!b.has_late || a.has_late);
const same = (a, b) => fits(a, b) && a.has_late === b.has_late;

/** The same state without what makes no difference any more: a holder that lost its claim and has nothing left to report is as good as dead. */
function plain(state) {
  const live = state.live.filter((c) => (state.standing.includes(c) && state.holds.__tuple[c - 1].length > 0)
    || ["ticket", "kept", "unsent"].includes(state.told.__tuple[c - 1].d) || (state.told.__tuple[c - 1].d === "nothing" && state.requests.__tuple[c - 1].d === "doubt"));
  const told = state.told.__tuple.map((of, n) => (live.includes(n + 1) ? of : { d: "nothing" }));
  return { ...state, live, told: { __tuple: told } };
}

/** The specification for one delivery with so many claims, and its steps, each looked up once. */
class Machine {
  constructor(isOnce, claims, attempts) {
    this.configuration = `INIT Init\nNEXT Next\nCONSTANTS\n  Deliveries = {"d"}\n  Once = ${isOnce ? '{"d"}' : "{}"}\n  MaxClaims = ${claims}\n  MaxAttempts = ${attempts}
  MaxRedrives = 20\n  HasReceipts = TRUE\n  HasDeadlines = TRUE\n  FENCE = "claim"\n  JOURNAL_FIRST = TRUE\n  LATE_STOPS = TRUE\n  END_LOOKED_AT = TRUE\n  ONCE_GIVES_UP = TRUE\n`;
    this.known = new Map();
  }

  first() { return new Map(initial(SPEC, this.configuration).map((state) => [JSON.stringify(state), state])); }

  next(key, state) {
    if (!this.known.has(key)) {
      if (Date.now() > soon) throw new OutOfTime();
      this.known.set(key, successors(SPEC, this.configuration, state).transitions.map(({ state: { json } }) => plain(json)).map((next) => [JSON.stringify(next), next]));
    }
    return this.known.get(key);
  }

  /** Adds all that hidden steps lead to. */
  close(states) {
    const queue = [...states];
    while (queue.length) {
      const [key, state] = queue.pop();
      const looks = seen(state);
      for (const [nextKey, next] of this.next(key, state)) {
        if (states.has(nextKey) || !same(seen(next), looks)) continue;
        states.set(nextKey, next);
        queue.push([nextKey, next]);
        if (states.size > MOST_STATES) throw new Error("too many states are possible at once");
      }
    }
    return states;
  }

  /** The states one step further that look as the line says. */
  step(states, line) {
    const to = new Map();
    for (const [key, state] of states)
      for (const [nextKey, next] of this.next(key, state)) if (fits(seen(next), line)) to.set(nextKey, next);
    return to;
  }
}

const [path] = process.argv.slice(2);
const lines = (path.endsWith(".gz") ? gunzipSync(readFileSync(path)) : readFileSync(path)).toString("utf8").split("\n").filter(Boolean).map((line) => JSON.parse(line));
const traces = new Map();
for (const line of lines) {
  const key = `${line.test ?? ""}/${line.delivery_id}`;
  if (!traces.has(key)) traces.set(key, []);
  traces.get(key).push(line);
}

const known = new Map(); // each different history, with how many deliveries and lines have it
for (const [name, trace] of traces) {
  const claims = [];
  const states = trace.map((line) => shown(line, claims));
  const { at_most_once: isOnce, max_attempts: attempts } = trace[0];
  const taken = trace.at(-1).taken ?? null;
  const fingerprint = JSON.stringify([isOnce, attempts, taken, states]);
  const history = known.get(fingerprint) ?? { name, states, isOnce, attempts, taken, claims: Math.max(1, claims.length), deliveries: 0, lines: 0 };
  history.deliveries += 1;
  history.lines += trace.length;
  known.set(fingerprint, history);
}

const machines = new Map(); // by how many claims a delivery had: the fewer, the smaller its states
let steps = 0;

/** Steps along one history; returns what is wrong with it, or null. */
function follow({ name, states, isOnce, attempts, taken, claims }) {
  const kind = `${isOnce} ${claims} ${attempts}`;
  if (!machines.has(kind)) machines.set(kind, new Machine(isOnce, claims, attempts));
  const machine = machines.get(kind);
  let possible = machine.close(machine.first());
  for (const [n, line] of states.entries()) {
    if ([...possible.values()].some((state) => same(seen(state), line))) {
      possible = new Map([...possible].filter(([, state]) => fits(seen(state), line)));
      continue; // touched, and nothing that the model knows of has changed
    }
    const before = possible;
    possible = machine.close(machine.step(possible, line));
    steps += 1;
    if (possible.size === 0)
      return [`delivery ${name}: no step of the specification leads to its line ${n + 1}`,
        ...states.slice(0, n + 1).map((s, k) => `  ${k + 1}. ${JSON.stringify(s)}`),
        `  possible before it: ${before.size} states, such as ${JSON.stringify(seen(before.values().next().value))}`].join("\n");
  }
  if (taken !== null && ![...possible.values()].some((state) => state.taken.d === taken))
    return `delivery ${name}: its phone got ${taken}, and the specification allows ${[...new Set([...possible.values()].map((s) => s.taken.d))]}`;
  return null;
}

const followed = { deliveries: 0, lines: 0, different: 0 };
for (const history of [...known.values()].sort((a, b) => b.deliveries - a.deliveries)) {
  if (Date.now() > until) break;
  soon = isWhole ? Infinity : Date.now() + ONE_MS;
  let wrong;
  try {
    wrong = follow(history);
  } catch (error) {
    if (error instanceof OutOfTime) continue;
    throw error;
  }
  if (wrong) {
    console.error(wrong);
    process.exit(1);
  }
  followed.deliveries += history.deliveries;
  followed.lines += history.lines;
  followed.different += 1;
}
const states = [...machines.values()].reduce((sum, machine) => sum + machine.known.size, 0);
console.log(JSON.stringify({ ...followed, of_lines: lines.length, of_different: known.size, steps, states }));
