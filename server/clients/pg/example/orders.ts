// An order is shipped, and the customer is told: both, or neither.
import { cancel, enqueue } from "@relevo/pg";
import type { Pool } from "pg";

export async function ship(pool: Pool, order: number, customer: string): Promise<number> {
  const client = await pool.connect();
  try {
    await client.query("begin");
    await client.query("update orders set shipped_at = now() where id = $1", [order]);
    const told = await enqueue(client, {
      type: "order.shipped",
      key: `order-${order}`,
      title: "On its way",
      body: `Order ${order} has left our store.`,
      audience: "owners",
      owners: [customer],
    });
    await client.query("commit");
    return told.event_id;
  } catch (error) {
    await client.query("rollback");
    throw error;
  } finally {
    client.release();
  }
}

export async function callBack(pool: Pool, order: number): Promise<boolean> {
  return cancel(pool, { type: "order.shipped", key: `order-${order}` }, "it was called back");
}
