/** Runs a statement with `$1`, `$2`, … in the app's transaction and returns its rows. */
export type Query = (text: string, values: readonly (string | null)[]) => Promise<readonly Row[]>;

export type Row = Record<string, unknown>;

/** A client of node-postgres (not a pool, if it is to be in a transaction), or a query runner of TypeORM. */
export interface Querying {
  query(text: string, values: any[]): Promise<any>;
}

/** postgres.js: `sql`, or what `sql.begin` hands over. */
export interface PostgresJs {
  unsafe(text: string, values?: any[]): PromiseLike<any>;
}

/** Prisma: the client, or what `$transaction` hands over. */
export interface Prisma {
  $queryRawUnsafe(text: string, ...values: any[]): PromiseLike<any>;
}

/** Knex: the client, or a transaction. */
export interface Knex {
  raw(text: string, bindings: any): PromiseLike<any>;
}

/** Anything a statement can be run on. What is not here can be given as a function. */
export type Connection = Querying | PostgresJs | Prisma | Knex | Query;

/** Return how to run a statement on a connection. */
export function queryOf(connection: Connection): Query {
  const face = connection as Partial<Querying & PostgresJs & Prisma & Knex>;
  if (typeof face?.$queryRawUnsafe === "function") {
    const prisma = connection as Prisma;
    return async (text, values) => rowsOf(await prisma.$queryRawUnsafe(text, ...values));
  }
  if (typeof face?.unsafe === "function") {
    const sql = connection as PostgresJs;
    return async (text, values) => rowsOf(await sql.unsafe(text, [...values]));
  }
  if (typeof face?.raw === "function") {
    const knex = connection as Knex;
    return async (text, values) => {
      const bindings = [...text.matchAll(/\$(\d+)/g)].map((found) => values[Number(found[1]) - 1]);
      return rowsOf(await knex.raw(text.replace(/\$\d+/g, "?"), bindings));
    };
  }
  if (typeof face?.query === "function") {
    const client = connection as Querying;
    return async (text, values) => rowsOf(await client.query(text, [...values]));
  }
  if (typeof connection === "function") return connection;
  throw new TypeError(
    "connection must be a client of pg, postgres, Prisma, Knex or TypeORM, or a function; Drizzle's goes through @relevo/pg/drizzle",
  );
}

/** Return the rows of an answer: some drivers wrap them. */
export function rowsOf(answer: unknown): readonly Row[] {
  if (Array.isArray(answer)) return answer as Row[];
  return (answer as { rows: Row[] }).rows;
}
