// Explores each specification exhaustively: the product's configurations must hold, each broken twin must break what it names.
// node check.mjs [--long] [--quick] [--json FILE]
import { writeFileSync } from "node:fs";
import { configurations, explore, read } from "./checker.mjs";

const words = process.argv.slice(2);
const report = words.includes("--json") ? words[words.indexOf("--json") + 1] : null;
const rows = [];
let surprises = 0;

for (const { name, spec, text, breaks, isLong, what } of configurations()) {
  if (isLong && !words.includes("--long")) continue;
  const configuration = words.includes("--quick") && !breaks ? text.replace(/MaxClaims = \d/, "MaxClaims = 2") : text;
  const began = Date.now();
  const { states, broken, trace } = explore(read(`${spec}.tla`), configuration);
  const isAsExpected = broken === breaks;
  if (!isAsExpected) surprises += 1;
  const verdict = broken ? `${broken} breaks` : "holds";
  rows.push({ name, what, states, verdict, as_expected: isAsExpected });
  console.log(`${isAsExpected ? "as expected" : "UNEXPECTED "}  ${name.padEnd(36)} ${verdict.padEnd(26)} ${String(states).padStart(8)} states  ${((Date.now() - began) / 1000).toFixed(1)} s`);
  if (!isAsExpected && trace) console.log(trace);
}

if (report) writeFileSync(report, JSON.stringify(rows, null, 1));
process.exitCode = surprises ? 1 : 0;
