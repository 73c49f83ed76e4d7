import { RelevoError } from "./errors.js";
import { Http, type HttpOptions } from "./http.js";
import type * as api from "./generated/index.js";

/** Who calls for a phone: its secret, where the client has no token of the app's. */
export interface As {
  secret?: string | null;
  signal?: AbortSignal;
}

/** How a registration is proven: by the phone's secret, or by what the app's server signed for this one call. */
export interface Proof {
  secret?: string | null;
  signature?: string;
}

/** What the app knows of a person or a phone: texts, numbers, true or false, lists of texts. */
export type Attributes = Record<string, string | number | boolean | string[]>;
/** Attributes to set; null removes one. */
export type AttributesIn = Record<string, string | number | boolean | string[] | null>;
export type Mark = api.MarkInboxItemData["path"]["mark"];
export type InboxQuery = NonNullable<api.ReadInboxData["query"]>;
export type Whose = Pick<InboxQuery, "owner" | "installation_id" | "project">;
/** An event by its number, or by type and key, and its project if it has one. */
export type EventRef = number | { type: string; key: string; project?: string };
/** A phone with its id, as it is registered. */
export type Installation = api.InstallationBody & { installation_id: string };

/** Relevo over HTTP: the app's verbs with a token, a phone's with its secret. */
export class RelevoClient {
  /** For every route that has no method here. */
  readonly http: Http;

  constructor(options: HttpOptions) {
    this.http = new Http(options);
  }

  // The app's server, with its token.

  /** Enqueue an event, once: type and key make it the same event, so it is sent again after a lost answer. */
  enqueue(event: api.KeyedEventIn): Promise<api.EnqueuedOut> {
    return this.http.send<api.EnqueueEventData, api.EnqueuedOut>("POST", "/v1/events", { body: event, repeatable: true });
  }

  /** Enqueue events, all or none. */
  async enqueueMany(events: readonly api.KeyedEventIn[]): Promise<api.EnqueuedOut[]> {
    const call = { body: { events }, repeatable: true };
    return (await this.http.send<api.EnqueueEventsData, api.EnqueuedBatch>("POST", "/v1/events/batch", call)).items;
  }

  /** Tell how far an event is; with `wait_ms`, once it is sent or the wait is over. An event of which nothing was sent is an error of status 422. */
  getEvent(event: EventRef, query: { wait_ms?: number; until?: "sent" | "confirmed" } = {}): Promise<api.EventOut> {
    const asked = { wait_ms: 0, ...query };
    if (typeof event === "number") {
      const call = { path: { event_id: event }, query: asked, waitMs: asked.wait_ms };
      return this.http.send<api.GetEventData, api.EventOut>("GET", "/v1/events/{event_id}", call);
    }
    return this.http.send<api.FindEventData, api.EventOut>("GET", "/v1/events", { query: { ...event, ...asked }, waitMs: asked.wait_ms });
  }

  /** End an event: nothing of it is sent any more. */
  async cancel(event: EventRef, reason = ""): Promise<api.CancelOut> {
    const call = { path: { event_id: await this.#idOf(event) }, body: { reason }, repeatable: true };
    return this.http.send<api.CancelEventData, api.CancelOut>("POST", "/v1/events/{event_id}/cancel", call);
  }

  /** Say that an event was handled elsewhere, by everybody or by one owner. */
  async complete(event: EventRef, { owner, reason = "" }: { owner?: string; reason?: string } = {}): Promise<api.CompleteOut> {
    const body = { reason, ...(owner === undefined ? {} : { owner }) };
    const call = { path: { event_id: await this.#idOf(event) }, body, repeatable: true };
    return this.http.send<api.CompleteEventData, api.CompleteOut>("POST", "/v1/events/{event_id}/complete", call);
  }

  async #idOf(event: EventRef): Promise<number> {
    if (typeof event === "number") return event;
    try {
      return (await this.getEvent(event)).event_id;
    } catch (error) {
      if (error instanceof RelevoError && error.eventId !== null) return error.eventId;
      throw error;
    }
  }

  /** The former name of `setAttributes({ owner, project }, attributes)`; leaves in 0.6. */
  setOwnerAttributes(owner: string, attributes: AttributesIn, project?: string): Promise<boolean> {
    warnOf("setOwnerAttributes(owner, attributes, project)", "setAttributes({ owner, project }, attributes)");
    return this.setAttributes({ owner, ...(project === undefined ? {} : { project }) }, attributes);
  }

  // A phone.

  /** Register an installation, or refresh it. A signature is good once, so only a call without one is repeated. */
  register(installation: Installation, proof?: Proof): Promise<api.RegisteredBody>;
  /** The former arguments; they leave in 0.6. */
  register(installationId: string, body: api.InstallationBody, proof?: Proof): Promise<api.RegisteredBody>;
  register(installation: Installation | string, bodyOrProof: api.InstallationBody | Proof = {}, formerProof: Proof = {}): Promise<api.RegisteredBody> {
    if (typeof installation === "string") {
      warnOf("register(installationId, body, proof)", "register({ installation_id, … }, proof)");
      return this.register({ ...(bodyOrProof as api.InstallationBody), installation_id: installation }, formerProof);
    }
    const { installation_id, ...body } = installation;
    const proof = bodyOrProof as Proof;
    const call = { path: { installation_id }, body, ...proof, repeatable: !proof.signature && !!proof.secret };
    return this.http.send<api.RegisterInstallationData, api.RegisteredBody>("PUT", "/v1/installations/{installation_id}", call);
  }

  /** Tell the attributes that hold for a phone; a phone itself is told those that begin with `device.`. */
  async getAttributes(whose: { installation_id: string }, as: As = {}): Promise<Attributes> {
    const call = { path: { installation_id: whose.installation_id }, ...as };
    const url = "/v1/installations/{installation_id}/attributes";
    return (await this.http.send<api.GetAttributesData, api.PhoneAttributes>("GET", url, call)).attributes;
  }

  /** The former name of `getAttributes({ installation_id })`; leaves in 0.6. */
  attributes(installationId: string, as: As = {}): Promise<Attributes> {
    warnOf("attributes(installationId)", "getAttributes({ installation_id })");
    return this.getAttributes({ installation_id: installationId }, as);
  }

  /**
   * Set attributes of an owner, in one project, or of a phone: one that is left out stays, and null removes it.
   * A phone itself sets those that begin with `device.`. The phone's id as a text in place of `whose` leaves in 0.6.
   */
  async setAttributes(whose: Whose | string, attributes: AttributesIn, as: As = {}): Promise<boolean> {
    if (typeof whose === "string") {
      warnOf("setAttributes(installationId, attributes)", "setAttributes({ installation_id }, attributes)");
      return this.setAttributes({ installation_id: whose }, attributes, as);
    }
    if (!whose.installation_id) {
      const call = { body: { ...whose, attributes }, ...as, repeatable: true };
      return (await this.http.send<{ url: string }, api.OwnerChanged>("POST", "/v1/owners/attributes", call)).changed;
    }
    const call = { path: { installation_id: whose.installation_id }, body: { attributes }, ...as, repeatable: true };
    const url = "/v1/installations/{installation_id}/attributes";
    return (await this.http.send<api.SetAttributesData, api.Changed>("POST", url, call)).changed;
  }

  /** Log a phone out: Relevo sends nothing to it until it registers again, and its secret ends. */
  async logOut(installationId: string, as: As = {}): Promise<boolean> {
    const call = { path: { installation_id: installationId }, ...as, repeatable: true };
    const url = "/v1/installations/{installation_id}/log-out";
    return (await this.http.send<api.LogOutInstallationData, api.LoggedOutBody>("POST", url, call)).logged_out;
  }

  /** Delete a phone, and what was said to it alone. */
  async deleteInstallation(installationId: string, as: As = {}): Promise<void> {
    const call = { path: { installation_id: installationId }, ...as };
    await this.http.send<api.DeleteInstallationData, null>("DELETE", "/v1/installations/{installation_id}", call);
  }

  /** Report that a push was opened; the same report again changes nothing. */
  async opened(installationId: string, tap: api.OpenedIn, as: As = {}): Promise<api.OpenedBody["outcome"]> {
    const call = { path: { installation_id: installationId }, body: tap, ...as, repeatable: true };
    const url = "/v1/installations/{installation_id}/opened";
    return (await this.http.send<api.ReportOpenedData, api.OpenedBody>("POST", url, call)).outcome;
  }

  /** List the categories, with the choices of the phone's owner. */
  async categories(installationId: string, locale?: string, as: As = {}): Promise<api.CategoryBody[]> {
    const call = { path: { installation_id: installationId }, query: { locale }, ...as };
    const url = "/v1/installations/{installation_id}/choices";
    return (await this.http.send<api.ListChoicesData, api.Categories>("GET", url, call)).items;
  }

  /** Note what the phone's owner chose of a category: it holds on all their phones. */
  async choose(installationId: string, category: string, choice: api.PhoneChoiceIn, as: As = {}): Promise<boolean> {
    const call = { path: { installation_id: installationId, category }, body: choice, ...as };
    const url = "/v1/installations/{installation_id}/choices/{category}";
    return (await this.http.send<api.PutChoiceData, api.Chosen>("PUT", url, call)).changed;
  }

  /** Tell what a phone asks for. */
  async preferences(installationId: string, as: As = {}): Promise<api.NamedPreference[]> {
    const call = { path: { installation_id: installationId }, ...as };
    const url = "/v1/installations/{installation_id}/preferences";
    return (await this.http.send<api.ListPreferencesData, api.Preferences>("GET", url, call)).items;
  }

  /** Set one preference of a phone; null removes it. */
  setPreference(installationId: string, name: string, preference: api.PreferenceBody, as?: As): Promise<api.NamedPreference>;
  setPreference(installationId: string, name: string, preference: api.PreferenceBody | null, as?: As): Promise<api.NamedPreference | null>;
  async setPreference(installationId: string, name: string, preference: api.PreferenceBody | null, as: As = {}): Promise<api.NamedPreference | null> {
    if (preference === null) {
      await this.deletePreference(installationId, name, as);
      return null;
    }
    const call = { path: { installation_id: installationId, name }, body: preference, ...as };
    const url = "/v1/installations/{installation_id}/preferences/{name}";
    return this.http.send<api.SetPreferenceData, api.NamedPreference>("PUT", url, call);
  }

  /** Remove one preference of a phone. */
  async deletePreference(installationId: string, name: string, as: As = {}): Promise<void> {
    const call = { path: { installation_id: installationId, name }, ...as };
    await this.http.send<api.DeletePreferenceData, null>("DELETE", "/v1/installations/{installation_id}/preferences/{name}", call);
  }

  /** Tell the quiet hours that hold for a phone, and whose they are. */
  quiet(installationId: string, as: As = {}): Promise<api.Hours> {
    const call = { path: { installation_id: installationId }, ...as };
    return this.http.send<api.GetQuietData, api.Hours>("GET", "/v1/installations/{installation_id}/quiet", call);
  }

  /** Set the quiet hours of a phone, or with `all_phones` those of its owner: windows or zone that are left out stay, and null removes them. */
  setQuiet(installationId: string, hours: api.PhoneHoursIn, as: As = {}): Promise<api.HoursSet> {
    const call = { path: { installation_id: installationId }, body: hours, ...as };
    return this.http.send<api.PutQuietData, api.HoursSet>("PUT", "/v1/installations/{installation_id}/quiet", call);
  }

  // Inboxes: of anybody with the app's token, of its own owner for a phone.

  /** Read a page of an inbox, newest first; with `after` and `wait_ms`, once something newer is there. */
  inbox(query: InboxQuery = {}, as: As = {}): Promise<api.InboxOut> {
    return this.http.send<api.ReadInboxData, api.InboxOut>("GET", "/v1/inbox", { query, ...as, waitMs: query.wait_ms ?? 0 });
  }

  /** Count what is unread and unseen: exactly up to 99, then "99+". */
  inboxCounts(whose: Whose = {}, as: As = {}): Promise<api.InboxCountsOut> {
    return this.http.send<api.CountInboxData, api.InboxCountsOut>("GET", "/v1/inbox/counts", { query: whose, ...as });
  }

  /** Mark one item, or take a mark back; the same mark again changes nothing. */
  async markInbox(eventId: number, mark: Mark, whose: Whose = {}, as: As = {}): Promise<boolean> {
    const call = { path: { event_id: eventId, mark }, body: whose, ...as, repeatable: true };
    return (await this.http.send<api.MarkInboxItemData, api.MarkedOut>("POST", "/v1/inbox/{event_id}/{mark}", call)).marked;
  }

  /** Mark everything that came until an instant, or until now. */
  async markInboxBefore(mark: "read" | "seen" = "read", before?: string | Date, whose: Whose = {}, as: As = {}): Promise<boolean> {
    const until = before instanceof Date ? before.toISOString() : before;
    const call = { body: { ...whose, ...(until ? { before: until } : {}) }, ...as, repeatable: true };
    return (await this.http.send<{ url: string }, api.MarkedOut>("POST", `/v1/inbox/${mark}-before`, call)).marked;
  }
}

const warned = new Set<string>();

/** Warn, once for each, of a name or arguments that leave in 0.6. */
function warnOf(former: string, now: string): void {
  if (warned.has(former)) return;
  warned.add(former);
  console.warn(`@relevo/client: ${former} leaves in 0.6: use ${now}.`);
}
