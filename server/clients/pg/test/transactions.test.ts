import assert from "node:assert/strict";
import { after, before, mock, test } from "node:test";
import { randomUUID } from "node:crypto";
import * as relevo from "@relevo/pg";
import { drizzle } from "@relevo/pg/drizzle";
import { drizzle as drizzleOverPg } from "drizzle-orm/node-postgres";
import { drizzle as drizzleOverPostgresJs } from "drizzle-orm/postgres-js";
import knex from "knex";
import pg from "pg";
import postgres from "postgres";
import { DataSource } from "typeorm";

const dsn = process.env["DATABASE_URL"] as string;
const pool = new pg.Pool({ connectionString: dsn, max: 2 });
const sql = postgres(dsn, { max: 2 });
const knexed = knex({ client: "pg", connection: dsn, pool: { min: 0, max: 2 } });
const drizzled = drizzleOverPg(pool);
const drizzledToo = drizzleOverPostgresJs(sql);
const typeOrm = new DataSource({ type: "postgres", url: dsn, extra: { max: 2 } });

class RolledBack extends Error {}

type Work = (connection: relevo.Connection) => Promise<unknown>;
type Transaction = (work: Work) => Promise<unknown>;

async function inPg(work: Work): Promise<unknown> {
  const client = await pool.connect();
  try {
    await client.query("begin");
    const done = await work(client);
    await client.query("commit");
    return done;
  } catch (error) {
    await client.query("rollback");
    throw error;
  } finally {
    client.release();
  }
}

/** What the folder of a generated Prisma client exports, if a test made one: it is too large to be installed each time. */
interface Prisma {
  $transaction<T>(work: (tx: relevo.Connection) => Promise<T>): Promise<T>;
  $disconnect(): Promise<void>;
}
const generated = process.env["PRISMA_CLIENT"];
const prisma: Prisma | null = generated ? (await import(generated)).connect(dsn) : null;

/** The shape of Prisma's transactions, over node-postgres. */
const likePrisma: Transaction = (work) =>
  inPg((client) =>
    work({
      async $queryRawUnsafe(text: string, ...values: unknown[]) {
        return (await (client as pg.PoolClient).query(text, values as any[])).rows;
      },
    }),
  );

const styles: Record<string, Transaction> = {
  "node-postgres": inPg,
  "postgres.js": (work) => sql.begin((tx) => work(tx)),
  knex: (work) => knexed.transaction((trx) => work(trx)),
  "drizzle over node-postgres": (work) => drizzled.transaction((tx) => work(drizzle(tx))),
  "drizzle over postgres.js": (work) => drizzledToo.transaction((tx) => work(drizzle(tx))),
  "the face of Prisma": likePrisma,
  TypeORM: (work) => typeOrm.transaction((manager) => work(manager)),
  ...(prisma && { Prisma: (work: Work) => prisma.$transaction((tx) => work(tx)) }),
};

function shipped(key: string, owner: string): relevo.RelevoEvent {
  return { type: "order.shipped", key, title: "Va en camino: ñ, '$1', ?", data: { $1: "?" }, audience: "owners", owners: [owner] };
}

before(async () => {
  await typeOrm.initialize();
  await pool.query("create table if not exists orders (id text primary key)");
});

after(async () => {
  await Promise.all([pool.end(), sql.end(), knexed.destroy(), typeOrm.destroy(), prisma?.$disconnect()]);
});

for (const [style, transaction] of Object.entries(styles)) {
  test(`${style}: what is committed was said, once`, async () => {
    const key = randomUUID();
    const first = (await transaction((tx) => relevo.enqueue(tx, shipped(key, "ana")))) as relevo.Enqueued;
    const again = (await transaction((tx) => relevo.enqueue(tx, shipped(key, "ana")))) as relevo.Enqueued;
    assert.equal(first.created, true);
    assert.equal(typeof first.event_id, "number");
    assert.deepEqual(again, { ...first, created: false });
    const told = (await transaction((tx) => relevo.getEvent(tx, { type: "order.shipped", key }))) as relevo.EventStatus;
    assert.deepEqual([told.id, told.title, told.state], [first.event_id, "Va en camino: ñ, '$1', ?", "waiting"]);
    const kept = await pool.query("select data from relevo.notification_events where id = $1", [first.event_id]);
    assert.deepEqual(kept.rows, [{ data: { $1: "?" } }]);
  });

  test(`${style}: what is rolled back was never said`, async () => {
    const key = randomUUID();
    const failed = transaction(async (tx) => {
      await relevo.enqueue(tx, shipped(key, "ana"));
      throw new RolledBack();
    });
    await assert.rejects(failed, RolledBack);
    assert.equal(await relevo.getEvent(pool, { type: "order.shipped", key }), null);
  });

  test(`${style}: every verb does what its function does`, async () => {
    const owner = randomUUID();
    const phone = (await transaction((tx) => relevo.register(tx, { token: `ExponentPushToken[${owner}]`, owner, platform: "ios" }))) as string;
    await transaction(async (tx) => {
      assert.deepEqual(await relevo.registerMany(tx, [{ installation_id: phone, locale: "es-CL" }]), [phone]);
      assert.deepEqual((await relevo.listInstallations(tx, owner)).map((each) => each.installation_id), [phone]);
      const many = await relevo.enqueueMany(tx, ["a", "b", "c"].map((name) => ({ ...shipped(`${owner}-${name}`, owner), scheduled_at: new Date(Date.now() + 3_600_000) })));
      assert.deepEqual(many.map((each) => each.created), [true, true, true]);
      const [a, b, c] = many.map((each) => each.event_id) as [number, number, number];
      const later = { ...shipped(`${owner}-a`, owner), title: "Later", scheduled_at: new Date(Date.now() + 7_200_000) };
      assert.equal(await relevo.change(tx, later), true);
      assert.equal(await relevo.cancel(tx, a, "no longer"), true);
      assert.equal(await relevo.cancel(tx, { type: "order.shipped", key: `${owner}-a` }), false);
      assert.equal(await relevo.complete(tx, b, { owner }), true);
      assert.equal(await relevo.complete(tx, b), true);
      assert.equal(await relevo.complete(tx, { type: "order.shipped", key: "nothing" }), false);
      assert.equal(await relevo.deleteEvents(tx, [c]), 1);
      assert.equal(await relevo.completeOwner(tx, owner), true);
      assert.equal(await relevo.completeInstallation(tx, phone, "read"), true);
      assert.equal(await relevo.setPreference(tx, phone, "news", { topics: ["news"] }), true);
      assert.equal(await relevo.setPreference(tx, phone, "news", null), true);
      assert.equal(await relevo.setAttributes(tx, { owner }, { plan: "pro", tags: ["a", "b"] }), true);
      assert.equal(await relevo.setAttributes(tx, { owner }, { tags: null }), true);
      assert.equal(await relevo.setAttributes(tx, { installation_id: phone }, { city: "Talca" }), true);
      assert.deepEqual(await relevo.getAttributes(tx, { installation_id: phone }), { plan: "pro", city: "Talca" });
      const ofShop = await relevo.enqueue(tx, { ...shipped(`${owner}-shop`, owner), project: "shop" });
      const named = { type: "order.shipped", key: `${owner}-shop`, project: "shop" };
      assert.equal((await relevo.getEvent(tx, named))?.id, ofShop.event_id);
      assert.equal(await relevo.getEvent(tx, { ...named, project: "bank" }), null);
      assert.deepEqual(await relevo.inboxCounts(tx, { owner }), { unread: 0, unseen: 0 });
      assert.deepEqual((await relevo.inbox(tx, { owner, status: "unread", limit: 10 })).items, []);
      assert.equal(await relevo.markInbox(tx, b, "read", { owner }), false);
      assert.equal(await relevo.markInboxBefore(tx, "seen", new Date(), { owner }), true);
      assert.equal(await relevo.markInboxBefore(tx, undefined, new Date().toISOString(), { owner }), true);
      const warnings: unknown[] = [];
      mock.method(console, "warn", (words: unknown) => warnings.push(words));
      assert.equal(await relevo.markInbox(tx, { owner }, b, "read"), false, "the former order, until 0.6");
      assert.equal(await relevo.markInboxBefore(tx, { owner }, "seen", new Date()), true, "the former order, until 0.6");
      mock.restoreAll();
      for (const words of warnings) assert.match(String(words), /leaves in 0\.6/);
      assert.equal(await relevo.unregister(tx, phone), true);
      assert.equal(await relevo.unregisterOwner(tx, owner), 0);
      assert.equal(await relevo.forget(tx, phone), true);
      assert.equal(await relevo.forgetOwner(tx, owner), 0);
    });
  });

  test(`${style}: what is refused says why`, async () => {
    const wrong = { type: "order.shipped", key: "k", title: "x", audience: "owners" } as unknown as relevo.RelevoEvent;
    await assert.rejects(
      transaction((tx) => relevo.enqueue(tx, wrong)),
      (error: Error) => /owners must/.test(`${error.message} ${String(error.cause)}`),
    );
  });
}

test("what is no connection is named", async () => {
  await assert.rejects(relevo.enqueueMany({} as relevo.Connection, []), /connection must be a client of pg/);
});

test("a function is a connection, too", async () => {
  const query: relevo.Query = async (text, values) => (await pool.query(text, [...values])).rows as relevo.Row[];
  assert.deepEqual(await relevo.enqueueMany(query, []), []);
});
