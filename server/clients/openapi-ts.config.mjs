// Types alone: the calls are written by hand in client/src, and operators have their own tools.
export default {
  input: process.env.RELEVO_OPENAPI ?? "openapi.json",
  output: { path: process.env.RELEVO_TYPES ?? "client/src/generated", module: { extension: ".js" } },
  parser: { filters: { tags: { exclude: ["operators", "health"] } } },
  plugins: ["@hey-api/typescript"],
  logs: { level: "error" },
};
