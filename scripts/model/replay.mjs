// Steps the specification Claim.tla along what a database wrote down, and fails at the first line that no step explains.
// node replay.mjs TRACE.jsonl[.gz]   (lines of relevo_trace.steps in their order; see trace.sql)
import { createReadStream } from "node:fs";
import { createInterface } from "node:readline";
import { createGunzip } from "node:zlib";
import { Machine } from "./machine.mjs";

const STATUS = { pending: "open", retryable: "open", sent: "sent", ok: "sent", unconfirmed: "sent", invalid: "failed", failed: "failed",
                 unknown: "unknown", cancelled: "ended", expired: "ended", skipped: "ended" };

const looks = new Map(); // each way in which a delivery looks, made once

function once(look) {
  const key = Object.values(look).join(" ");
  if (!looks.has(key)) looks.set(key, look);
  return looks.get(key);
}

/** What a line shows, in the words in which a machine says it of a state. `claims` are those that the delivery had before it. */
function shown(line, claims) {
  const isClaimed = line.place !== null && line.place !== "queue";
  const place = !isClaimed ? line.place : line.place === claims.at(-1) ? "claim" : claims.includes(line.place) ? "former claim" : "new claim";
  if (place === "new claim") claims.push(line.place);
  return once({ status: STATUS[line.status], attempts: line.attempts, place, is_journalled: line.is_journalled, has_late: line.has_late });
}

let unordered = 0;

/** A ticket that comes late, and what the holder of the next claim commits right after it, are not ordered by a lock: the holder may not have seen
 *  the ticket. Then the holder came first. What it does after a ticket that was there when it took the claim is left as it is. */
function order(lines) {
  for (let n = 1; n + 1 < lines.length; n += 1) {
    const [before, ticket, after] = lines.slice(n - 1, n + 2);
    if (before.has_late || !ticket.has_late || ticket.place !== "claim" || ticket.is_journalled) continue;
    if (after.place === "claim" && after.is_journalled && after.has_late) lines[n] = once({ ...after, has_late: false });
    else if (after.status === "ended") lines[n] = once({ ...ticket, has_late: false });
    else continue;
    unordered += 1;
  }
}

/** Reads what each delivery went through. */
async function histories(path) {
  const found = new Map();
  const bytes = createReadStream(path);
  for await (const text of createInterface({ input: path.endsWith(".gz") ? bytes.pipe(createGunzip()) : bytes })) {
    if (!text) continue;
    const line = JSON.parse(text), name = `${line.test ?? ""}/${line.delivery_id}`;
    if (!found.has(name)) found.set(name, { name, isOnce: line.at_most_once, attempts: line.max_attempts, claims: [], lines: [], taken: null });
    const history = found.get(name);
    history.lines.push(shown(line, history.claims));
    history.taken = line.taken ?? null;
  }
  for (const history of found.values()) order(history.lines);
  return [...found.values()];
}

const machines = new Map(); // by kind of delivery

function machineFor({ isOnce, attempts, taken }) {
  const kind = `${isOnce} ${attempts} ${taken !== null}`;
  if (!machines.has(kind)) machines.set(kind, new Machine(isOnce, attempts, taken !== null));
  return machines.get(kind);
}

/** Steps along one history; returns what is wrong with it, or null. */
function follow(history) {
  const { name, lines, taken } = history;
  const machine = machineFor(history);
  let possible = machine.first();
  for (const [n, line] of lines.entries()) {
    const before = possible;
    possible = machine.after(possible, line);
    if (possible === null)
      return [`delivery ${name}: no step of the specification leads to its line ${n + 1}`,
        ...lines.slice(0, n + 1).map((s, k) => `  ${k + 1}. ${JSON.stringify(s)}`),
        `  possible before it: ${before.states.length} states, such as ${JSON.stringify(before.states[0].looks)}`].join("\n");
  }
  const allowed = new Set(possible.states.map((state) => state.core.taken.d));
  if (taken !== null && !allowed.has(taken)) return `delivery ${name}: its phone got ${taken}, and the specification allows ${[...allowed]}`;
  return null;
}

const all = await histories(process.argv[2]);
for (const history of all) {
  const wrong = follow(history);
  if (wrong) {
    console.error(wrong);
    process.exit(1);
  }
}
const states = [...machines.values()].reduce((sum, machine) => sum + machine.states.size, 0);
console.log(JSON.stringify({ deliveries: all.length, lines: all.reduce((sum, { lines }) => sum + lines.length, 0), states, unordered }));
