// Reads the history of a run and says what must not be there. It knows the files alone: what writers were told, what phones got, what
// the tables hold. node check.mjs FOLDER
import { existsSync, readFileSync, readdirSync } from "node:fs";
import { join } from "node:path";

const folder = process.argv[2];
const read = (name) => readFileSync(join(folder, "history", `${name}.jsonl`), "utf8").split("\n").filter(Boolean).map((line) => JSON.parse(line));
const [told, received, events, deliveries, requests, failures, queue, claims, lateTickets, counts, runs] =
  ["told", "received", "events", "deliveries", "requests", "failed_attempts", "queue", "claims", "late_tickets", "counts", "runs"].map(read);
const summary = JSON.parse(readFileSync(join(folder, "history", "summary.json"), "utf8"));
const REQUEST_S = 6; // how long a request may be under way: its time-out, and the process's own delay
const PUSHED = new Set(["sent", "ok", "unconfirmed"]);
const OPEN = new Set(["pending", "retryable", "sent"]);

const group = (rows, key) => {
  const found = new Map();
  for (const row of rows) for (const k of [key(row)].flat()) found.set(k, [...(found.get(k) ?? []), row]);
  return found;
};
const eventById = new Map(events.map((event) => [event.id, event]));
const receivedOf = group(received, (row) => row.delivery);
const requestsOf = group(requests, (row) => row.ids);
const failuresOf = group(failures, (row) => row.delivery);
const deliveriesOf = group(deliveries, (row) => row.event);
const deliveryById = new Map(deliveries.map((row) => [row.id, row]));

const isUnseen = (request) => request.answered_at === null || request.outcome === "unclear";
const requestById = new Map(requests.map((request) => [request.id, request]));
/** What a push service says of a message that it did not take. */
const NOT_TAKEN = new Set(["GoAway", "RefusedStream", "NotBegun", "IdleTimeout", "TooManyRequests", "QUOTA_EXCEEDED", "MessageRateExceeded"]);
/** How many of a delivery's requests nobody saw the answer of, as a whole or for this message: those may have been taken. */
const doubts = (delivery) =>
  (requestsOf.get(delivery.id) ?? []).filter(isUnseen).length
  + (failuresOf.get(delivery.id) ?? []).filter((failure) => failure.found_by === "dispatch" && requestById.has(failure.request)
      && !isUnseen(requestById.get(failure.request)) && !NOT_TAKEN.has(failure.error_code)).length;

const INVARIANTS = {
  "acknowledged and lost": () => told.filter((line) => line.what === "enqueued" && !eventById.has(line.event)),
  "not over after calm": () => [
    ...events.filter((event) => event.state === "waiting" || event.state === "fanning"),
    ...deliveries.filter((delivery) => OPEN.has(delivery.status)),
  ],
  "called sent, and its phone got nothing": () => deliveries.filter((delivery) => PUSHED.has(delivery.status) && !receivedOf.has(delivery.id)),
  "doubled without an unseen answer": () =>
    deliveries.filter((delivery) => (receivedOf.get(delivery.id)?.length ?? 0) > 1 + doubts(delivery)),
  "at most once, and doubled": () =>
    deliveries.filter((delivery) => eventById.get(delivery.event)?.at_most_once && (receivedOf.get(delivery.id)?.length ?? 0) > 1),
  "pushed after its cancel was acknowledged": () => {
    const ended = new Map(told.filter((line) => line.what === "cancelled").map((line) => [line.event, line.at]));
    return received.filter((row) => row.at > (ended.get(deliveryById.get(row.delivery)?.event) ?? Infinity) + REQUEST_S);
  },
  "pushed to a token that had moved": () => {
    const moves = group(told.filter((line) => line.what === "moved" || line.what === "registered"), (line) => line.installation);
    return received.filter((row) => {
      const installation = deliveryById.get(row.delivery)?.installation;
      const next = (moves.get(installation) ?? []).filter((line) => row.phone !== `ExponentPushToken[${line.phone}]`);
      const own = (moves.get(installation) ?? []).filter((line) => row.phone === `ExponentPushToken[${line.phone}]`);
      return own.length > 0 && next.some((line) => line.at > own.at(-1).at && row.at > line.at + REQUEST_S);
    });
  },
  "in two places, or in none": () => {
    const places = group([...queue, ...claims], (row) => row.ids);
    return deliveries.filter((delivery) => {
      const count = places.get(delivery.id)?.length ?? 0;
      return delivery.status === "pending" || delivery.status === "retryable" ? count !== 1 : count !== 0;
    });
  },
  "one phone twice in an event": () =>
    [...deliveriesOf.values()].flatMap((rows) => [...group(rows, (row) => row.installation).values()].filter((same) => same.length > 1)),
  "counters that differ": () => {
    const counted = new Map(counts.filter((row) => row.deliveries !== 0).map((row) => [`${row.event} ${row.status}`, row.deliveries]));
    const real = new Map();
    for (const row of deliveries) real.set(`${row.event} ${row.status}`, (real.get(`${row.event} ${row.status}`) ?? 0) + 1);
    return [...new Set([...counted.keys(), ...real.keys()])].filter((key) => counted.get(key) !== real.get(key));
  },
  "slots that were filled twice": () =>
    [...group(runs.filter((run) => run.slot_at && ["ok", "partial", "running"].includes(run.outcome)), (run) => `${run.cycle} ${run.source} ${run.slot_at}`).values()]
      .filter((same) => same.length > 1),
  "secrets or whole tokens in logs": () => {
    const logs = readdirSync(folder).filter((name) => name.endsWith(".log"));
    const forbidden = /ExponentPushToken\[[^\]…]{9,}\]|relevo_[A-Za-z0-9_-]{20,}|BEGIN [A-Z ]*PRIVATE KEY/;
    return logs.flatMap((name) => readFileSync(join(folder, name), "utf8").split("\n").filter((line) => forbidden.test(line)).slice(0, 3));
  },
};

const logs = existsSync(folder) ? readdirSync(folder).filter((name) => name.endsWith(".log")).map((name) => readFileSync(join(folder, name), "utf8")).join("\n") : "";
const said = (word) => logs.split(`"${word}"`).length - 1;
/** How often a fault hit a moment that matters; a run that never met one proves nothing about it. */
const WINDOWS = {
  "killed or paused between journal and answer": failures.filter((row) => row.error_code === "answer_not_seen" && row.found_by === "reaper").length,
  "claims taken back by a reaper": said("claim_reaped"),
  "a holder that found its claim lost": said("claim_lost"),
  "tickets that came after their claim was lost": lateTickets.length + runs.reduce((sum, run) => sum + (run.counts?.late_tickets ?? 0), 0),
  "answers that nobody could read": requests.filter((row) => row.outcome === "unclear").length,
  "requests that were turned away": requests.filter((row) => ["not_taken", "not_sent", "throttled", "held_back"].includes(row.outcome)).length,
  "phones that got a push twice": [...receivedOf.values()].filter((rows) => rows.length > 1).length,
  "at-most-once pushes given up in doubt": deliveries.filter((row) => row.status === "unknown").length,
};

let broken = 0;
console.log(`${told.filter((line) => line.what === "enqueued").length} events acknowledged, ${deliveries.length} deliveries, ${received.length} pushes on phones`);
for (const [name, find] of Object.entries(INVARIANTS)) {
  const found = find();
  if (found.length) broken += 1;
  console.log(`${found.length ? "BROKEN" : "    ok"}  ${name}: ${found.length}${found.length ? ` such as ${JSON.stringify(found[0])}` : ""}`);
}
for (const [name, hits] of Object.entries(WINDOWS)) console.log(`${hits ? "   hit" : " NEVER"}  ${name}: ${hits}`);
if (!summary.calm) console.log("BROKEN  calm was not reached");
process.exitCode = broken || !summary.calm ? 1 : 0;
