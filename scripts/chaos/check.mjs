// Reads the history of a run and says what must not be there. It knows the files alone: what writers were told, what phones got, what
// the tables hold; each may be compressed. node check.mjs FOLDER…
import { existsSync, readFileSync, readdirSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { gunzipSync } from "node:zlib";

const REQUEST_S = 20; // how long a request may be under way: its time-out, and as long as its process may be stopped in its midst
const LEASE_S = 4; // what may be sent is decided when it is claimed; it is sent within a lease
const WINDOWS_S = [10, 20, 40]; // over which a rate is looked at: a claim sends within a lease, so a short one tells least
const SEEN_S = 0.2; // what was acknowledged so long before a request was written down is seen by it
const PUSHED = new Set(["sent", "ok", "unconfirmed"]);
const OPEN = new Set(["pending", "retryable", "sent"]);
const WAITING = new Set(["pending", "retryable"]);
/** What a push service says of a message that it did not take. */
const NOT_TAKEN = new Set(["GoAway", "RefusedStream", "NotBegun", "IdleTimeout", "TooManyRequests", "QUOTA_EXCEEDED", "MessageRateExceeded"]);

const group = (rows, key) => {
  const found = new Map();
  for (const row of rows)
    for (const k of [key(row)].flat()) {
      if (!found.has(k)) found.set(k, []);
      found.get(k).push(row);
    }
  return found;
};
const linesOf = (path) => (path.endsWith(".gz") ? gunzipSync(readFileSync(path)) : readFileSync(path)).toString("utf8").split("\n");
const isUnseen = (request) => request.answered_at === null || request.outcome === "unclear";

/** Judges one history; returns whether all is well. */
function judge(folder) {
  const read = (name) => {
    const path = join(folder, "history", `${name}.jsonl`);
    return linesOf(existsSync(path) ? path : `${path}.gz`).filter(Boolean).map((line) => JSON.parse(line));
  };
  const [allTold, allReceived, events, deliveries, requests, failures, queue, claims, lateTickets, counts, runs] =
    ["told", "received", "events", "deliveries", "requests", "failed_attempts", "queue", "claims", "late_tickets", "counts", "runs"].map(read);
  const [steps, deadLetters, marks, incidents, names, archived, digests] =
    ["steps", "dead_letters", "marks", "incidents", "names", "archived", "digests"].map(read);
  const summary = JSON.parse(readFileSync(join(folder, "history", "summary.json"), "utf8"));
  /** Restores from a backup: what was told from the backup on until the restore is not so any more, and numbers above the last are given again. */
  const restores = allTold.filter((line) => line.what === "restored");
  const restoreOver = (at) => restores.find((line) => at >= line.since && at <= line.until);
  const told = allTold.filter((line) => !restoreOver(line.at));
  const taken = allTold.filter((line) => line.what === "enqueued" && restoreOver(line.at));
  const received = allReceived.filter((row) => !(restoreOver(row.at)?.last_delivery < row.delivery));
  const eventById = new Map(events.map((event) => [event.id, event]));
  const receivedOf = group(received, (row) => row.delivery);
  const requestsOf = group(requests, (row) => row.ids);
  const failuresOf = group(failures, (row) => row.delivery);
  const deliveriesOf = group(deliveries, (row) => row.event);
  const deliveryById = new Map(deliveries.map((row) => [row.id, row]));
  const toldOf = group(told, (line) => line.what);
  const all = (what) => toldOf.get(what) ?? [];
  const logs = readdirSync(folder).filter((name) => /\.log(\.gz)?$/.test(name)).map((name) => linesOf(join(folder, name))).flat();

  const requestById = new Map(requests.map((request) => [request.id, request]));
  /** How many of a delivery's requests nobody saw the answer of, as a whole or for this message: those may have been taken. */
  const doubts = (delivery) =>
    (requestsOf.get(delivery.id) ?? []).filter(isUnseen).length
    + (failuresOf.get(delivery.id) ?? []).filter((failure) => failure.found_by === "dispatch" && requestById.has(failure.request)
        && !isUnseen(requestById.get(failure.request)) && !NOT_TAKEN.has(failure.error_code)).length
    + (failuresOf.get(delivery.id) ?? []).filter((failure) => failure.found_by === "reaper" && failure.error_code === "answer_not_seen"
        && requestById.has(failure.request) && !isUnseen(requestById.get(failure.request))).length; // its answer came late
  /** How often a phone got it, as far as the database can know: what it forgot by a restore is not its doubling. */
  const times = (delivery) => (receivedOf.get(delivery.id) ?? []).filter((row) => !restoreOver(row.at)).length;
  /** What was sent of events after a moment: begun after it, or come so late that it cannot have begun before. */
  const sentAfter = (moments) => {
    const momentOf = (id) => moments.get(deliveryById.get(id)?.event) ?? Infinity;
    return [...requests.filter((row) => row.ids.some((id) => row.at > momentOf(id))), ...received.filter((row) => row.at > momentOf(row.delivery) + REQUEST_S)];
  };

  /** Positions of the news that were read, each with what it said. */
  const news = group(all("news"), (line) => line.position);
  const finished = new Set(all("news").filter((line) => line.kind === "event.finished").map((line) => line.event));
  const failed = new Set(all("news").filter((line) => line.kind === "delivery.failed").map((line) => line.delivery));
  const cancelledAt = new Map(all("cancelled").map((line) => [line.event, line.at]));
  const forgotten = new Set(all("forgotten").map((line) => line.owner));

  /** Events that a restore may or may not have left cancelled: their cancel was acknowledged while the backup was made. */
  const maybeCancelled = new Set(allTold.filter((line) => line.what === "cancelled").map((line) => line.event));
  const isCancelled = (id) => cancelledAt.has(id) || (maybeCancelled.has(id) && eventById.get(id)?.state === "cancelled");
  const tenders = all("enqueued").filter((line) => line.topic && !isCancelled(line.event));
  const readers = new Set(all("reads").map((line) => line.installation));
  /** How often each phone that reads digests was told of each event, by a digest or by itself. */
  const tellings = new Map();
  for (const key of [
    ...digests.flatMap((row) => row.items.map((item) => `${row.installation} ${item}`)),
    ...tenders.flatMap((line) => (deliveriesOf.get(line.event) ?? []).filter((row) => readers.has(row.installation) && row.status !== "skipped").map((row) => `${row.installation} ${line.event}`)),
  ]) tellings.set(key, (tellings.get(key) ?? 0) + 1);
  /** Whether a process of the last release took part, which does not look at quiet hours before each request. */
  const isBesideOlder = (at) => all("older").some((line) => at > line.since && at < line.at + REQUEST_S);

  const everForgotten = new Set(allTold.filter((line) => line.what === "forgotten").map((line) => line.owner)); // their keys are hidden

  const INVARIANTS = {
    "acknowledged and lost": () =>
      all("enqueued").filter((line) => !eventById.has(line.event) || (eventById.get(line.event).event_key !== line.key && !everForgotten.has(line.owner))),
    "not over after calm": () => [
      ...events.filter((event) => event.state === "waiting" || event.state === "fanning"),
      ...deliveries.filter((delivery) => OPEN.has(delivery.status)),
    ],
    "called sent, and its phone got nothing": () => deliveries.filter((delivery) => PUSHED.has(delivery.status) && !receivedOf.has(delivery.id)),
    "doubled without an unseen answer": () =>
      deliveries.filter((delivery) => times(delivery) > 1 + doubts(delivery)),
    "at most once, and doubled": () =>
      deliveries.filter((delivery) => eventById.get(delivery.event)?.at_most_once && times(delivery) > 1),
    "written by a stale claim": () =>
      [...group(steps, (step) => step.delivery_id).values()].flatMap((lines) => lines.filter((line, n) => {
        const before = lines[n - 1];
        return before && WAITING.has(before.status) && PUSHED.has(line.status) && !before.is_journalled && !before.has_late;
      })),
    "pushed after its cancel was acknowledged": () => sentAfter(cancelledAt),
    "pushed after its deadline": () =>
      sentAfter(new Map(all("enqueued").filter((line) => line.deadline).map((line) => [line.event, line.deadline]))),
    "pushed to a token that had moved": () => {
      const moves = group([...all("registered"), ...all("moved")], (line) => line.installation);
      return received.filter((row) => {
        const installation = deliveryById.get(row.delivery)?.installation;
        const next = (moves.get(installation) ?? []).filter((line) => row.phone !== `ExponentPushToken[${line.phone}]`);
        const own = (moves.get(installation) ?? []).filter((line) => row.phone === `ExponentPushToken[${line.phone}]`);
        // judged by when its request was written down, which comes before the look at its phone, and where that is not known by the clock
        const begun = (requestsOf.get(row.delivery) ?? []).map((request) => request.at).filter((at) => at <= row.at);
        const isLate = (at) => row.at > at + REQUEST_S || (begun.length > 0 && !restoreOver(row.at) && !isBesideOlder(row.at) && begun.every((one) => one > at + SEEN_S));
        return own.length > 0 && next.some((line) => line.at > own.at(-1).at && isLate(line.at));
      });
    },
    "in two places, or in none": () => {
      const places = group([...queue, ...claims], (row) => row.ids);
      return deliveries.filter((delivery) => (places.get(delivery.id)?.length ?? 0) !== (WAITING.has(delivery.status) ? 1 : 0));
    },
    "failed, and not among the dead letters": () => {
      const dead = new Set(deadLetters.map((row) => row.delivery));
      return deliveries.filter((delivery) => (delivery.status === "failed") !== dead.has(delivery.id));
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
    "rate above the bucket": () => {
      const sent = requests.filter((row) => !row.project.includes("::")).sort((a, b) => a.at - b.at);
      return WINDOWS_S.flatMap((window) => {
        const most = summary.rate_per_s * (window + LEASE_S + 1);
        let first = 0, sum = 0;
        return sent.filter((row) => {
          sum += row.ids.length;
          while (sent[first].at <= row.at - window) sum -= sent[first++].ids.length;
          return sum > most;
        });
      });
    },
    "more of a category than its cap": () => {
      const offers = all("enqueued").filter((line) => line.category === "offers" && !cancelledAt.has(line.event));
      const pushed = offers.filter((line) => (deliveriesOf.get(line.event) ?? []).some((row) => PUSHED.has(row.status)));
      return [...group(pushed, (line) => line.owner).values()].filter((of) => of.length > summary.offers_a_week);
    },
    "two digests of one time on a phone": () =>
      [...group(digests, (row) => `${row.installation} ${row.delivery} ${row.zone} ${row.closed_at}`).values()].filter((same) => same.length > 1),
    "told twice, by digests or beside one": () => [...tellings].filter(([, count]) => count > 1),
    "told by no digest": () =>
      all("reads").flatMap((reader) => tenders.filter((line) => !tellings.has(`${reader.installation} ${line.event}`))),
    "pushed in quiet hours": () => {
      const hours = group(all("quiet"), (line) => line.owner);
      const isEnd = (line) => line.until <= line.at; // others only make them longer
      const waits = new Map(all("enqueued").filter((line) => line.waits).map((line) => [line.event, line.owner]));
      return received.filter((row) => (hours.get(waits.get(deliveryById.get(row.delivery)?.event)) ?? []).some((line, n, of) =>
        row.at > line.at + REQUEST_S && row.at < Math.min(line.until, of.slice(n + 1).find(isEnd)?.at ?? Infinity) && !isBesideOlder(row.at)));
    },
    "pushed from a restored database before it was adopted": () => {
      const adopted = all("adopted").map((line) => line.at);
      return received.filter((row) => restores.filter((line) => !line.under_workers).some((line) => row.at > line.until && row.at < (adopted.find((at) => at > line.until) ?? Infinity)));
    },
    "news missing, or numbered twice": () => [
      ...[...news.values()].filter((same) => new Set(same.map((line) => `${line.kind} ${line.event} ${line.delivery}`)).size > 1),
      ...[...Array(Math.max(0, ...news.keys())).keys()].filter((n) => !news.has(n + 1)),
      ...all("enqueued").filter((line) => eventById.has(line.event) && !finished.has(line.event)),
      ...deadLetters.filter((row) => deliveryById.has(row.delivery) && !failed.has(row.delivery)),
    ],
    "marks of an inbox that were lost": () => {
      const kept = new Set(marks.filter((row) => row.is_read).map((row) => `${row.owner} ${row.event}`));
      return all("marked").filter((line) => !kept.has(`${line.owner} ${line.event}`) && !forgotten.has(line.owner));
    },
    "archive rows missing or doubled": () => {
      const found = group(archived, (row) => row.id);
      return all("archived").flatMap((line) => line.ids).filter((id) => (found.get(id)?.length ?? 0) !== 1);
    },
    "forgotten names found anywhere": () => {
      const said = logs.flatMap((line) => line.match(/person-writer-\d+-\d+-/g) ?? []).map((name) => ({ table: "log", name }));
      return [...names, ...said].filter((row) => forgotten.has(row.name));
    },
    "secrets or whole tokens in logs": () => {
      const forbidden = /ExponentPushToken\[[^\]…]{9,}\]|relevo_[A-Za-z0-9_-]{20,}|BEGIN [A-Z ]*PRIVATE KEY/;
      return logs.filter((line) => forbidden.test(line));
    },
  };

  /** Seconds at whose end the rate of Expo had been used up, as far as requests of a chunk tell. */
  const usedUp = () => {
    const perSecond = new Map();
    for (const row of requests.filter((each) => !each.project.includes("::"))) {
      const second = Math.floor(row.at);
      perSecond.set(second, (perSecond.get(second) ?? 0) + row.ids.length);
    }
    return [...perSecond.values()].filter((sent) => sent >= summary.rate_per_s * 0.9).length;
  };
  const said = (word) => logs.filter((line) => line.includes(`"${word}"`)).length;
  const outcomes = (...kinds) => requests.filter((row) => kinds.includes(row.outcome)).length;
  /** How often a fault hit a moment that matters; a run that never met one proves nothing about it. */
  const WINDOWS = {
    ...summary.hits,
    "answers that a reaper found unseen": failures.filter((row) => row.error_code === "answer_not_seen" && row.found_by === "reaper").length,
    "claims taken back by a reaper": said("claim_reaped"),
    "a holder that found its claim lost": said("claim_lost"),
    "claims adopted after the answer to their COMMIT was lost": said("claim_adopted"),
    "tickets that came after their claim was lost": lateTickets.length + runs.reduce((sum, run) => sum + (run.counts?.late_tickets ?? 0), 0),
    "answers that nobody could read": outcomes("unclear"),
    "requests that were turned away": outcomes("not_taken", "not_sent", "throttled", "held_back"),
    "breakers that opened": incidents.filter((row) => row.what === "breaker_opened").length,
    "phones that got a push twice": [...receivedOf.values()].filter((rows) => rows.length > 1).length,
    "at-most-once pushes given up in doubt": deliveries.filter((row) => row.status === "unknown").length,
    "dead letters opened again": all("redriven").reduce((sum, line) => sum + line.deliveries, 0),
    "pushes that came too late and were not sent": deliveries.filter((row) => row.status === "expired").length,
    "pushes above a cap that were not sent": deliveries.filter((row) => row.code === "capped").length,
    "tokens that push services called gone": deliveries.filter((row) => row.status === "invalid").length,
    "seconds in which a rate was used up": usedUp(),
    "processes that stopped as told": said("worker_stopped"),
    "events acknowledged after a backup that a restore took": taken.filter((line) => eventById.get(line.event)?.event_key !== line.key).length,
    "events told by digests": digests.reduce((sum, row) => sum + row.items.length, 0),
    "times that quiet hours were set": all("quiet").length,
    "people forgotten": forgotten.size,
    ...Object.fromEntries(["Python", "SQL", "HTTP"].map((way) => [`events acknowledged by ${way}`, all("enqueued").filter((line) => line.by === way).length])),
    "cancels acknowledged": cancelledAt.size,
    "tokens that moved": all("moved").length,
    "items of inboxes marked": all("marked").length,
    "news read": news.size,
    "rows in the archive": archived.length,
  };

  const rules = {};
  console.log(`${all("enqueued").length} events acknowledged, ${deliveries.length} deliveries, ${received.length} pushes on phones`);
  for (const [name, find] of Object.entries(INVARIANTS)) {
    const found = find();
    rules[name] = found.length;
    console.log(`${found.length ? "BROKEN" : "    ok"}  ${name}: ${found.length}${found.length ? ` such as ${JSON.stringify(found[0])}` : ""}`);
  }
  for (const [name, hits] of Object.entries(WINDOWS)) console.log(`${hits ? "   hit" : " NEVER"}  ${name}: ${hits}`);
  if (!summary.calm) console.log("BROKEN  calm was not reached");
  const totals = { events: all("enqueued").length, deliveries: deliveries.length, pushes: received.length };
  writeFileSync(join(folder, "history", "verdict.json"), JSON.stringify({ totals, rules, windows: WINDOWS }, null, 1));
  return summary.calm && Object.values(rules).every((count) => count === 0);
}

const folders = process.argv.slice(2);
const verdicts = folders.map((folder) => {
  if (folders.length > 1) console.log(`FOLDER ${folder}`);
  return judge(folder);
});
process.exitCode = verdicts.every(Boolean) ? 0 : 1;
