/** Relevo's verbs in the app's own transaction: what is rolled back was never said. */
import type { Attributes, AttributesIn, DeliveryOut, EventOut, InstallationBody, KeyedEventIn, OwnedInstallation, PreferenceBody } from "@relevo/client";
import { type Connection, queryOf } from "./connections.js";

export type { Connection, Knex, PostgresJs, Prisma, Query, Querying, Row } from "./connections.js";

/** An event; the same type and key again is the same event. Instants are texts of RFC 3339, or Dates. */
export type RelevoEvent = Timed<KeyedEventIn>;
type Timed<T> = T extends unknown ? Omit<T, "scheduled_at" | "deadline_at"> & { scheduled_at?: string | Date | null; deadline_at?: string | Date | null } : never;
/** An event by its number, or by type and key, and its project if it has one. */
export type EventRef = number | { type: string; key: string; project?: string };
export type Installation = Omit<InstallationBody, "renew_secret"> & { installation_id?: string };
export type Preference = PreferenceBody;

export interface Enqueued {
  event_id: number;
  created: boolean;
  /** Whether one that was there says the same; null if not known any more. */
  same_content: boolean | null;
  /** Installations that nobody registered: they get nothing. */
  unknown_installations: string[];
}

export type EventState = "waiting" | "held" | "fanning" | "fanned" | "cancelled" | "completed";
export type Progress = EventOut["progress"];
export type DeliveryStatus = DeliveryOut["status"];

/** How far an event is; the page of the SQL functions has all fields. */
export interface EventStatus {
  id: number;
  type: string;
  key: string;
  state: EventState;
  /** Its state, and once its deliveries are made: sending, sent (receipts are awaited) or finished. */
  progress: Progress;
  title: string;
  body: string;
  /** How many deliveries there are of each status. */
  deliveries: Partial<Record<DeliveryStatus, number>>;
  [field: string]: unknown;
}

export interface Whose {
  owner?: string;
  installation_id?: string;
  /** Needed where the owner has phones in several. */
  project?: string;
}

export type Mark = "read" | "unread" | "seen" | "unseen" | "archive" | "unarchive";

export interface InboxItem {
  event_id: number;
  type: string;
  category: string | null;
  title: string;
  body: string;
  data: Record<string, unknown>;
  at: string;
  seen_at: string | null;
  read_at: string | null;
  archived_at: string | null;
  cursor: string;
}

export interface InboxPage {
  items: InboxItem[];
  next: string | null;
}

/** Enqueue an event, once. */
export async function enqueue(connection: Connection, event: RelevoEvent): Promise<Enqueued> {
  return (await enqueueMany(connection, [event]))[0] as Enqueued;
}

/** Enqueue events in one statement, all or none. */
export function enqueueMany(connection: Connection, events: readonly RelevoEvent[]): Promise<Enqueued[]> {
  const text = "coalesce((select jsonb_agg(to_jsonb(e)) from relevo.enqueue_many($1::text::jsonb) e), '[]')";
  return ask(connection, text, [json(events)]);
}

/** Replace what an event says that has not begun; false if it is too late for that. */
export function change(connection: Connection, event: RelevoEvent): Promise<boolean> {
  return ask(connection, "to_jsonb(relevo.change($1::text::jsonb))", [json(event)]);
}

/** End an event: nothing of it is sent any more. */
export function cancel(connection: Connection, event: EventRef, reason = ""): Promise<boolean> {
  return askOf(connection, event, "to_jsonb(relevo.cancel(e.id, $5::text))", reason);
}

/** Say that an event was handled elsewhere, by everybody or by one owner: what is left of it is not sent. */
export function complete(connection: Connection, event: EventRef, { owner, reason = "" }: { owner?: string; reason?: string } = {}): Promise<boolean> {
  if (owner === undefined) return askOf(connection, event, "to_jsonb(relevo.complete(e.id, $5::text))", reason);
  return askOf(connection, event, "to_jsonb(relevo.complete_owner($6::text, e.id, $5::text))", reason, owner);
}

/** Say that an owner has handled everything until now. */
export function completeOwner(connection: Connection, owner: string, reason = ""): Promise<boolean> {
  return ask(connection, "to_jsonb(relevo.complete_owner($1::text, reason => $2::text))", [owner, reason]);
}

/** Say that everything for an installation until now was handled elsewhere. */
export function completeInstallation(connection: Connection, installationId: string, reason = ""): Promise<boolean> {
  return ask(connection, "to_jsonb(relevo.complete_installation($1::text::uuid, $2::text))", [installationId, reason]);
}

/** Tell how far an event is; null if there is none. */
export function getEvent(connection: Connection, event: EventRef): Promise<EventStatus | null> {
  return askOf(connection, event, "relevo.get_event(e.id)");
}

/** Delete events with their deliveries; return how many there were. */
export function deleteEvents(connection: Connection, eventIds: readonly number[]): Promise<number> {
  const text = "to_jsonb(relevo.delete_events(array(select jsonb_array_elements_text($1::text::jsonb)::bigint)))";
  return ask(connection, text, [json(eventIds)]);
}

/** Register an installation, or refresh it; return its id. */
export function register(connection: Connection, installation: Installation): Promise<string> {
  return ask(connection, "to_jsonb(relevo.register_installation($1::text::jsonb))", [json(installation)]);
}

/** Register installations; return their ids in order. */
export function registerMany(connection: Connection, installations: readonly Installation[]): Promise<string[]> {
  return ask(connection, "to_jsonb(relevo.register_many($1::text::jsonb))", [json(installations)]);
}

/** List the installations of an owner. */
export function listInstallations(connection: Connection, owner: string, limit = 100): Promise<OwnedInstallation[]> {
  return ask(connection, "relevo.list_installations($1::text, $2::text::int)", [owner, String(limit)]);
}

/** Send nothing to an installation until it registers again, as at a log-out. */
export function unregister(connection: Connection, installationId: string): Promise<boolean> {
  return ask(connection, "to_jsonb(relevo.unregister_installation($1::text::uuid))", [installationId]);
}

/** Unregister all installations of an owner; return how many there were. */
export function unregisterOwner(connection: Connection, owner: string): Promise<number> {
  return ask(connection, "to_jsonb(relevo.unregister_owner($1::text))", [owner]);
}

/** Delete an installation, and what was said to it alone. */
export function forget(connection: Connection, installationId: string): Promise<boolean> {
  return ask(connection, "to_jsonb(relevo.forget_installation($1::text::uuid))", [installationId]);
}

/** Delete an owner, with all installations; return how many there were. */
export function forgetOwner(connection: Connection, owner: string): Promise<number> {
  return ask(connection, "to_jsonb(relevo.forget_owner($1::text))", [owner]);
}

/** Set attributes of an owner or of an installation: one that is left out stays, and null removes it. Tell whether something changed. */
export function setAttributes(connection: Connection, whose: Whose, attributes: AttributesIn): Promise<boolean> {
  return ask(connection, "to_jsonb(relevo.set_attributes($1::text::jsonb))", [json({ ...whose, attributes })]);
}

/** Tell the attributes of an owner, or those that hold for an installation: its own before its owner's. */
export function getAttributes(connection: Connection, whose: Whose): Promise<Attributes> {
  return ask(connection, "relevo.get_attributes($1::text::jsonb)", [json(whose)]);
}

/** Set one preference of an installation; null removes it. */
export function setPreference(connection: Connection, installationId: string, name: string, preference: Preference | null): Promise<boolean> {
  return ask(connection, "to_jsonb(relevo.set_preference($1::text::uuid, $2::text, $3::text::jsonb))", [installationId, name, json(preference)]);
}

/** Read a page of an inbox, newest first. */
export function inbox(
  connection: Connection,
  asked: Whose & { status?: "current" | "unread" | "unseen" | "read" | "archived" | "all"; category?: string; type?: string; before?: string; limit?: number },
): Promise<InboxPage> {
  return ask(connection, "relevo.inbox($1::text::jsonb)", [json(asked)]);
}

/** Count what is unread and unseen: exactly up to 99, then "99+". */
export function inboxCounts(connection: Connection, whose: Whose): Promise<{ unread: number | "99+"; unseen: number | "99+" }> {
  return ask(connection, "relevo.inbox_counts($1::text::jsonb)", [json(whose)]);
}

/** Mark one item of an inbox, or take a mark back. */
export function markInbox(connection: Connection, eventId: number, mark: Mark, whose: Whose): Promise<boolean>;
/** The former order; it leaves in 0.6. */
export function markInbox(connection: Connection, whose: Whose, eventId: number, mark: Mark): Promise<boolean>;
export function markInbox(connection: Connection, eventId: number | Whose, mark: Mark | number, whose: Whose | Mark): Promise<boolean> {
  if (typeof eventId === "object") {
    warnOf("markInbox(connection, whose, eventId, mark)", "markInbox(connection, eventId, mark, whose)");
    return markInbox(connection, mark as number, whose as Mark, eventId);
  }
  return ask(connection, "to_jsonb(relevo.mark_inbox($1::text::jsonb, $2::text::bigint, $3::text))", [json(whose), String(eventId), mark as Mark]);
}

/** Mark everything in an inbox until an instant, or until now. */
export function markInboxBefore(connection: Connection, mark: "read" | "seen" | undefined, before: string | Date | undefined, whose: Whose): Promise<boolean>;
/** The former order; it leaves in 0.6. */
export function markInboxBefore(connection: Connection, whose: Whose, mark?: "read" | "seen", before?: Date): Promise<boolean>;
export function markInboxBefore(connection: Connection, mark: Whose | "read" | "seen" = "read", before?: string | Date, whose?: Whose | Date): Promise<boolean> {
  if (typeof mark === "object") {
    warnOf("markInboxBefore(connection, whose, mark, before)", "markInboxBefore(connection, mark, before, whose)");
    return markInboxBefore(connection, before as "read" | "seen" | undefined, whose as Date | undefined, mark);
  }
  const until = before instanceof Date ? before.toISOString() : before;
  const text = "to_jsonb(relevo.mark_inbox_before($1::text::jsonb, $2::text::timestamptz, $3::text))";
  return ask(connection, text, [json(whose), until ?? null, mark]);
}

/** Texts go in and a text comes out: no driver reads or writes jsonb, bigint and uuid as another one does. */
async function ask<T>(connection: Connection, told: string, values: readonly (string | null)[], from = ""): Promise<T> {
  const rows = await queryOf(connection)(`select (${told})::text as told${from}`, values);
  const text = rows[0]?.["told"] as string | null | undefined;
  return (text === null || text === undefined ? null : JSON.parse(text)) as T;
}

/** Ask of one event; of one that there is not, null or false. */
async function askOf<T>(connection: Connection, event: EventRef, told: string, ...more: string[]): Promise<T> {
  const named = typeof event === "number" ? [String(event), null, null, null] : [null, event.type, event.key, event.project ?? null];
  const byName = "case when $4::text is null then relevo.event_id($2::text, $3::text) else relevo.event_id_in_project($2::text, $3::text, $4::text) end";
  const from = ` from (select coalesce($1::text::bigint, ${byName}) as id) e where e.id is not null`;
  const found = await ask<T | null>(connection, told, [...named, ...more], from);
  return (found ?? (told.startsWith("to_jsonb") ? false : null)) as T;
}

function json(value: unknown): string {
  return JSON.stringify(value);
}

const warned = new Set<string>();

/** Warn, once for each, of arguments that leave in 0.6. */
function warnOf(former: string, now: string): void {
  if (warned.has(former)) return;
  warned.add(former);
  console.warn(`@relevo/pg: ${former} leaves in 0.6: use ${now}.`);
}
