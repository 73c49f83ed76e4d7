// The model checker, loaded once, and the specifications as they lie here.
import { readFileSync, readdirSync } from "node:fs";
import { createRequire } from "node:module";
import * as tla from "tla-checker";

const HERE = new URL(".", import.meta.url);
const wasm = createRequire(import.meta.url).resolve("tla-checker/tla_checker_bg.wasm");
await tla.default({ module_or_path: readFileSync(wasm) });

/** Reads a file of this folder. */
export const read = (name) => readFileSync(new URL(name, HERE), "utf8");

/** Lists the configurations, `Claim.cfg` and the like, with what each is expected to do. */
export function configurations() {
  const names = readdirSync(HERE).filter((name) => name.endsWith(".cfg")).sort();
  return names.map((name) => {
    const text = read(name);
    const breaks = /^\\\* .*Must break (\w+)\./.exec(text)?.[1] ?? null;
    if (name.includes(".broken.") !== (breaks !== null)) throw new Error(`${name}: its first line does not say what it must break`);
    return { name, spec: name.split(".")[0], text, breaks, isLong: name.includes(".long."), what: text.split("\n")[0].slice(3) };
  });
}

/** Explores every state that a configuration can reach, and returns the invariant that broke, if one did. */
export function explore(spec, configuration) {
  const invariants = /^INVARIANTS (.*)$/m.exec(configuration)[1].split(" ");
  const found = JSON.parse(tla.check_spec_with_cfg(spec, configuration, "{}", 10_000_000, 10_000, true, false));
  const broken = /Invariant (\d+) violated/.exec(found.error_message ?? "");
  if (!found.success && !broken) throw new Error(`${found.error_type}: ${found.error_message}`);
  return { states: found.states_explored, broken: broken ? invariants[Number(broken[1])] : null, trace: found.trace };
}

const told = (answer) => {
  const value = JSON.parse(answer);
  if (!value.ok) throw new Error(value.error);
  return value;
};

/** The states a specification begins with. */
export const initial = (spec, configuration) => told(tla.explore_init(spec, configuration, "{}")).states.map((s) => s.json);

/** The states that one step leads to from a state, each with the action's name. */
export const successors = (spec, configuration, state) => told(tla.explore_next(spec, configuration, "{}", JSON.stringify(state)));
