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
  getEvent(event: number | { type: string; key: string; project?: string }, query: { wait_ms?: number; until?: "sent" | "confirmed" } = {}): Promise<api.EventOut> {
    const asked = { wait_ms: 0, ...query };
    if (typeof event === "number") {
      const call = { path: { event_id: event }, query: asked, waitMs: asked.wait_ms };
      return this.http.send<api.GetEventData, api.EventOut>("GET", "/v1/events/{event_id}", call);
    }
    return this.http.send<api.FindEventData, api.EventOut>("GET", "/v1/events", { query: { ...event, ...asked }, waitMs: asked.wait_ms });
  }

  /** End an event: nothing of it is sent any more. */
  cancel(eventId: number, reason = ""): Promise<api.CancelOut> {
    const call = { path: { event_id: eventId }, body: { reason }, repeatable: true };
    return this.http.send<api.CancelEventData, api.CancelOut>("POST", "/v1/events/{event_id}/cancel", call);
  }

  /** Say that an event was handled elsewhere, by everybody or by one owner. */
  complete(eventId: number, body: api.CompleteIn = {}): Promise<api.CompleteOut> {
    const call = { path: { event_id: eventId }, body, repeatable: true };
    return this.http.send<api.CompleteEventData, api.CompleteOut>("POST", "/v1/events/{event_id}/complete", call);
  }

  /** Set attributes of an owner, in one project: one that is left out stays, and null removes it. */
  async setOwnerAttributes(owner: string, attributes: AttributesIn, project?: string): Promise<boolean> {
    const call = { body: { owner, attributes, ...(project === undefined ? {} : { project }) }, repeatable: true };
    return (await this.http.send<api.SetOwnerAttributesData, api.OwnerChanged>("POST", "/v1/owners/attributes", call)).changed;
  }

  // A phone.

  /** Register an installation, or refresh it. A signature is good once, so only a call without one is repeated. */
  register(installationId: string, body: api.InstallationBody, proof: Proof = {}): Promise<api.RegisteredBody> {
    const call = { path: { installation_id: installationId }, body, ...proof, repeatable: !proof.signature && !!proof.secret };
    return this.http.send<api.RegisterInstallationData, api.RegisteredBody>("PUT", "/v1/installations/{installation_id}", call);
  }

  /** Tell the attributes that hold for a phone; a phone itself is told those that begin with `device.`. */
  async attributes(installationId: string, as: As = {}): Promise<Attributes> {
    const call = { path: { installation_id: installationId }, ...as };
    const url = "/v1/installations/{installation_id}/attributes";
    return (await this.http.send<api.GetAttributesData, api.PhoneAttributes>("GET", url, call)).attributes;
  }

  /** Set attributes of a phone: one that is left out stays, and null removes it. A phone itself sets those that begin with `device.`. */
  async setAttributes(installationId: string, attributes: AttributesIn, as: As = {}): Promise<boolean> {
    const call = { path: { installation_id: installationId }, body: { attributes }, ...as, repeatable: true };
    const url = "/v1/installations/{installation_id}/attributes";
    return (await this.http.send<api.SetAttributesData, api.Changed>("POST", url, call)).changed;
  }

  /** Log a phone out: nothing is sent to it until it registers again, and its secret ends. */
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

  /** List the categories, and what the phone's owner chose of them. */
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

  /** Set one preference of a phone. */
  setPreference(installationId: string, name: string, body: api.PreferenceBody, as: As = {}): Promise<api.NamedPreference> {
    const call = { path: { installation_id: installationId, name }, body, ...as };
    const url = "/v1/installations/{installation_id}/preferences/{name}";
    return this.http.send<api.SetPreferenceData, api.NamedPreference>("PUT", url, call);
  }

  /** Remove one preference of a phone. */
  async deletePreference(installationId: string, name: string, as: As = {}): Promise<void> {
    const call = { path: { installation_id: installationId, name }, ...as };
    await this.http.send<api.DeletePreferenceData, null>("DELETE", "/v1/installations/{installation_id}/preferences/{name}", call);
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
  async markInboxBefore(mark: "read" | "seen", before?: string, whose: Whose = {}, as: As = {}): Promise<boolean> {
    const call = { body: { ...whose, ...(before ? { before } : {}) }, ...as, repeatable: true };
    return (await this.http.send<{ url: string }, api.MarkedOut>("POST", `/v1/inbox/${mark}-before`, call)).marked;
  }
}
