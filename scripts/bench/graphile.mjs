// graphile-worker drains jobs that do nothing, with its local queue and batches. Speaks in lines: "ready", then "done".
import { createInterface } from "node:readline";
import { makeWorkerUtils, run } from "graphile-worker";

const [dsn, jobs] = [process.argv[2], Number(process.argv[3])];
const lines = createInterface({ input: process.stdin })[Symbol.asyncIterator]();
const utils = await makeWorkerUtils({ connectionString: dsn });
await utils.migrate();
for (let made = 0; made < jobs; made += 1000) {
  const some = Math.min(1000, jobs - made);
  await utils.addJobs(Array.from({ length: some }, () => ({ identifier: "noop", payload: {} })));
}
console.log("ready");
await lines.next();

let left = jobs;
const silent = { debug() {}, info() {}, warn: console.error, error: console.error };
const { Logger } = await import("graphile-worker");
const preset = {
  worker: {
    connectionString: dsn,
    concurrentJobs: 24,
    maxPoolSize: 10,
    localQueue: { size: 500 },
    completeJobBatchDelay: 0,
    failJobBatchDelay: 0,
  },
};
const drained = new Promise((resolve) => {
  globalThis.finish = resolve;
});
const runner = await run({
  preset,
  noHandleSignals: true,
  logger: new Logger(() => (level, message) => silent[level === "warning" ? "warn" : level]?.(message)),
  taskList: {
    noop: async () => {
      left -= 1;
      if (left === 0) globalThis.finish();
    },
  },
});
await drained;
await runner.stop();
console.log("done");
await utils.release();
