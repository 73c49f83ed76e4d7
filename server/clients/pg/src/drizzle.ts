import { type SQL, sql } from "drizzle-orm";
import { type Query, rowsOf } from "./connections.js";

/** Drizzle: the database, or what `transaction` hands over. */
export interface Drizzle {
  execute(query: SQL): PromiseLike<unknown>;
}

/** Let Relevo's verbs run in a transaction of Drizzle's: `enqueue(drizzle(tx), event)`. */
export function drizzle(connection: Drizzle): Query {
  return async (text, values) => {
    const parts = text.split(/(\$\d+)/).map((part) => (/^\$\d+$/.test(part) ? sql`${values[Number(part.slice(1)) - 1]}` : sql.raw(part)));
    return rowsOf(await connection.execute(sql.join(parts)));
  };
}
