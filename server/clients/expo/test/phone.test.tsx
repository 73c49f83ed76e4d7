import assert from "node:assert/strict";
import { after, before, test } from "node:test";
import { linkOf, RelevoProvider, type RelevoProviderProps, useInbox, usePreferences, useRelevoPush } from "@relevo/expo";
import type { NotificationResponse } from "expo-notifications";
import { act, create, type ReactTestRenderer } from "react-test-renderer";
import { app as server, database, eventually, fresh, Network, phonesOf, push, received, sign, url } from "@relevo/testing";
import { type FakePhone, newPhone, phone, shown } from "./fakes/phone.js";

Object.assign(globalThis, { IS_REACT_ACT_ENVIRONMENT: true });
const TAPPED = "expo.modules.notifications.actions.DEFAULT";

interface Screen {
  push: ReturnType<typeof useRelevoPush>;
  inbox: ReturnType<typeof useInbox>;
  preferences: ReturnType<typeof usePreferences>;
}

/** The app as it runs: one screen that shows everything. */
class App {
  readonly taps: NotificationResponse[] = [];
  readonly network = new Network();
  screen!: Screen;
  #rendered!: ReactTestRenderer;

  readonly Screen = (): null => {
    const push = useRelevoPush({ onTap: (response) => this.taps.push(response) });
    this.screen = { push, inbox: useInbox({ badge: true }), preferences: usePreferences() };
    return null;
  };

  #element(props: Partial<RelevoProviderProps>): React.ReactElement {
    return (
      <RelevoProvider url={url} sign={sign} fetch={this.network.fetch} {...props}>
        <this.Screen />
      </RelevoProvider>
    );
  }

  async start(props: Partial<RelevoProviderProps>): Promise<this> {
    await act(async () => {
      this.#rendered = create(this.#element(props));
    });
    return this;
  }

  async show(props: Partial<RelevoProviderProps>): Promise<void> {
    await act(async () => this.#rendered.update(this.#element(props)));
  }

  async sees(look: () => boolean, what: string): Promise<void> {
    await eventually(async () => {
      await act(async () => new Promise((resolve) => setTimeout(resolve, 10)));
      return look();
    }, () => `${what}; the screen has ${JSON.stringify(this.screen, (_, value: unknown) => (value instanceof Error ? String(value) : value))}`);
  }

  registered(): Promise<void> {
    return this.sees(() => this.screen.push.status === "registered", "registered");
  }

  async end(): Promise<void> {
    await act(async () => this.#rendered.unmount());
  }
}

after(() => database.end());

function tapOn(message: Parameters<typeof shown>[0], actionIdentifier = TAPPED): NotificationResponse {
  return { notification: shown(message), actionIdentifier };
}

function freshPhone(): FakePhone {
  return newPhone(`ExponentPushToken[${fresh("phone")}]`);
}

/** How often a tap was reported. */
function reports(app: App): number {
  return app.network.calls.filter((call) => call.startsWith("POST /v1/installations/…/opened")).length;
}

/** A push of an event whose type asks to hear of taps, and says so. */
async function tracked(token: string): Promise<Parameters<typeof shown>[0]> {
  const [message] = await received(token);
  assert.equal(message?.data["reportOpened"], true);
  return message;
}

/** Until Relevo knows that an event was opened. */
async function opened(eventId: number): Promise<void> {
  const find = "select count(*)::int as n from relevo.notification_deliveries where notification_event_id = $1 and opened_at is not null";
  await eventually(async () => (await database.query<{ n: number }>(find, [eventId])).rows[0]?.n === 1, "Relevo was told of the tap");
}

before(() => database.query("insert into relevo.event_types (event_type, opens) values ('order.shipped', true)"));

test("register, push, tap that starts the app, inbox, log out", async () => {
  const owner = fresh("ana");
  const { token } = freshPhone();
  const first = await new App().start({ owner });
  await first.registered();
  assert.equal(phone.asked, 0); // nobody was asked for permission by a start
  await first.end();

  const event = await push(owner, "On its way");
  const message = await tracked(token);
  assert.equal(message.title, "On its way");

  phone.last = tapOn(message); // the app is not running: the tap starts it
  const app = await new App().start({ owner });
  await app.registered();
  await app.sees(() => app.taps.length > 0, "the tap that started the app is told");
  await act(async () => phone.tell("response", tapOn(message))); // and, as platforms do, told again
  await opened(event);
  assert.equal(reports(app), 1);
  assert.equal(app.taps.length, 1);

  await app.sees(() => app.screen.inbox.items.length === 1, "it is in the inbox");
  await app.sees(() => app.screen.inbox.unread === 1 && phone.badge === 1, "it counts");
  await act(async () => app.screen.inbox.markRead(event));
  await app.sees(() => app.screen.inbox.unread === 0 && phone.badge === 0, "it was read");

  await act(async () => void (await Promise.all([app.screen.push.register(), app.screen.push.logOut()]))); // what began before it ends with it
  assert.equal(app.screen.push.status, "logged-out");
  assert.deepEqual((await phonesOf(owner)).map((each) => each.receives), [false]);
  await push(owner, "nobody's");
  assert.equal((await received(token)).length, 1);
  await app.end();
});

test("a tap on a button is reported by its id, and leads to its link", async () => {
  const owner = fresh("ana");
  const { token } = freshPhone();
  const categories = [{ id: "order", actions: [{ id: "track", title: "Track it" }, { id: "later", title: "Later", options: { opensAppToForeground: false } }] }];
  const app = await new App().start({ owner, categories });
  await app.registered();
  assert.deepEqual(phone.categories.get("order"), [
    { identifier: "track", buttonTitle: "Track it" },
    { identifier: "later", buttonTitle: "Later", options: { opensAppToForeground: false } },
  ]);
  const actions = [{ id: "track", title: "Track it", link: "/orders/17/track" }, { id: "later", title: "Later" }];
  const push = { link: "/orders/17", actions, categoryId: "none", apns: { categoryId: "order" } };
  const { event_id } = await server.enqueue({ type: "order.shipped", key: fresh("order"), title: "Buttons", audience: "owners", owners: [owner], push });
  await eventually(async () => (await received(token)).length === 1, "it was sent");
  const message = await tracked(token);
  assert.equal((message as { categoryId?: string }).categoryId, "order");
  const asTexts = { ...message, data: { ...message.data, actions: JSON.stringify(message.data["actions"]) } }; // as FCM has it
  assert.deepEqual([tapOn(message), tapOn(message, "track"), tapOn(message, "later"), tapOn(asTexts, "track")].map(linkOf), ["/orders/17", "/orders/17/track", "/orders/17", "/orders/17/track"]);
  await act(async () => phone.tell("response", tapOn(message, "track")));
  await opened(event_id);
  const find = "select opened_action from relevo.notification_deliveries where notification_event_id = $1";
  assert.equal((await database.query<{ opened_action: string }>(find, [event_id])).rows[0]?.opened_action, "track");
  await app.end();
});

test("a development build is registered with Apple's sandbox, any other with production", async () => {
  for (const [build, environment] of [["development", "sandbox"], ["production", "production"], [null, "production"]] as const) {
    const owner = fresh("ana");
    newPhone(fresh("").replace(/[^0-9a-f]/g, "").padStart(64, "a").slice(-64)).build = build;
    const app = await new App().start({ owner, provider: "native" });
    await app.registered();
    assert.deepEqual((await phonesOf(owner)).map((each) => (each as { environment?: string }).environment), [environment]);
    await app.end();
  }
});

test("what is new comes to the open screen", async () => {
  const owner = fresh("ana");
  freshPhone();
  const app = await new App().start({ owner });
  await app.registered();
  await push(owner, "while you look");
  await app.sees(() => app.screen.inbox.items[0]?.title === "while you look", "the long poll tells it");
  await app.end();
});

test("two owners on one phone: each gets only what is theirs", async () => {
  const [ana, ben] = [fresh("ana"), fresh("ben")];
  const { token } = freshPhone();
  const app = await new App().start({ owner: ana });
  await app.registered();
  const installation = app.screen.push.installationId;
  await push(ana, "for Ana");
  await app.sees(() => app.screen.inbox.items.length === 1, "Ana sees hers");

  await app.show({ owner: undefined }); // Ana logs out
  await app.sees(() => app.screen.push.status === "logged-out", "logged out");
  await push(ana, "Ana again");
  await app.show({ owner: ben });
  await app.registered();
  await eventually(async () => (await phonesOf(ben)).length === 1, "it is Ben's");
  await push(ben, "for Ben");
  await app.sees(() => app.screen.inbox.items.map((item) => item.title).join() === "for Ben", "Ben sees his alone");
  assert.equal(app.screen.push.installationId, installation);
  assert.deepEqual((await received(token)).map((each) => each.title), ["for Ana", "for Ben"]);
  await app.end();
});

test("before it is known who is logged in, nothing is registered and nobody is logged out", async () => {
  const owner = fresh("ana");
  freshPhone();
  const before = await new App().start({ owner });
  await before.registered();
  await before.end();
  const app = await new App().start({ owner: undefined, enabled: false });
  assert.equal(app.screen.push.status, "idle");
  assert.deepEqual(app.network.calls, []);
  await app.show({ owner, enabled: true });
  await app.registered();
  assert.deepEqual((await phonesOf(owner)).map((each) => each.receives), [true]);
  await app.end();
});

test("a lost answer leaves the phone registered once, and its inbox readable", async () => {
  const owner = fresh("ana");
  freshPhone();
  const app = new App();
  app.network.loseNext = 1;
  await app.start({ owner });
  await app.registered();
  await push(owner, "after all");
  await app.sees(() => app.screen.inbox.items.length === 1, "the inbox is read");
  assert.equal((await phonesOf(owner)).length, 1);
  await app.end();
});

test("offline for a day: taps, marks and the log-out wait, and go in order", async () => {
  const [ana, ben] = [fresh("ana"), fresh("ben")];
  const { token } = freshPhone();
  const app = await new App().start({ owner: ana });
  await app.registered();
  const event = await push(ana, "tapped in a tunnel");
  await app.sees(() => app.screen.inbox.items.length === 1, "it is in the inbox");
  phone.online = app.network.online = false;
  await act(async () => phone.tell("response", tapOn(await tracked(token))));
  await app.sees(() => app.taps.length === 1, "the tap is told at once");
  await act(async () => app.screen.inbox.markRead(event));
  assert.equal(app.screen.inbox.items[0]?.read_at !== null, true);
  await app.end();

  phone.online = true;
  const next = await new App().start({ owner: ana }); // the day after
  await next.registered();
  await opened(event);
  assert.equal(reports(next), 1);
  await next.sees(() => next.screen.inbox.unread === 0, "and so was the mark");
  phone.online = next.network.online = false;
  await act(async () => next.screen.push.logOut());
  assert.equal(next.screen.push.status, "logged-out");
  assert.equal(phone.unregistered, 1); // so that nothing is shown meanwhile
  await next.end();

  phone.online = true;
  const last = await new App().start({ owner: ben });
  await last.registered();
  assert.ok(last.network.calls[0]?.startsWith("POST /v1/installations/…/log-out"), last.network.calls.join());
  assert.deepEqual([(await phonesOf(ana)).length, (await phonesOf(ben)).length], [0, 1]);
  await last.end();
});

test("a phone that starts offline registers by itself when it is back", async () => {
  const owner = fresh("ana");
  freshPhone();
  const app = new App();
  phone.online = app.network.online = false;
  await app.start({ owner });
  await app.sees(() => app.screen.push.status === "offline", "offline");
  phone.online = app.network.online = true;
  await act(async () => phone.tell("state", "active"));
  await app.registered();
  await app.end();
});

test("a push token that changes reaches Relevo", async () => {
  const owner = fresh("ana");
  freshPhone();
  const app = await new App().start({ owner });
  await app.registered();
  phone.token = `ExponentPushToken[${fresh("rotated")}]`;
  await act(async () => phone.tell("token", { type: "ios", data: "x" }));
  await eventually(() => app.network.calls.filter((call) => call.startsWith("PUT")).length === 2, "it was told");
  await push(owner, "to the new token");
  assert.equal((await received(phone.token)).length, 1);
  await app.end();
});

test("permission is asked for when the app says so; without it the inbox works", async () => {
  const owner = fresh("ana");
  freshPhone();
  phone.permission = "undetermined";
  phone.os = "android";
  const app = await new App().start({ owner });
  await app.registered();
  assert.deepEqual([phone.asked, app.screen.push.permission, phone.channels[0]], [0, "undetermined", "default"]);
  await push(owner, "unseen");
  await app.sees(() => app.screen.inbox.items.length === 1, "it is in the inbox");
  await act(async () => app.screen.push.register("now"));
  assert.deepEqual([phone.asked, app.screen.push.permission], [1, "granted"]);
  await push(owner, "seen");
  assert.deepEqual((await received(phone.token)).map((each) => each.title), ["seen"]);
  await app.end();
});

test("preferences are shown and set", async () => {
  freshPhone();
  const app = await new App().start({ owner: fresh("ana") });
  await app.registered();
  await app.sees(() => app.screen.preferences.preferences.length === 1, "the first one");
  await act(async () => app.screen.preferences.set("news", { topics: ["news"] }));
  assert.deepEqual(app.screen.preferences.preferences.map((each) => each.name).sort(), ["default", "news"]);
  await app.end();
});

test("categories are shown in the phone's language, and what is chosen holds", async () => {
  const texts = { en: { name: "Offers", sentence: "What is cheaper this week" } };
  await database.query("select relevo.set_category($1::jsonb)", [{ category: "offers", rule: "on", texts }]);
  const owner = fresh("ana");
  const { token } = freshPhone();
  const app = await new App().start({ owner });
  await app.registered();
  const shownCategory = (): { name: string; push: boolean } | undefined => app.screen.preferences.categories.find((each) => each.category === "offers");
  await app.sees(() => shownCategory()?.name === "Offers" && shownCategory()?.push === true, "the category");
  await act(async () => app.screen.preferences.choose("offers", false, "Offers: off"));
  assert.equal(shownCategory()?.push, false);
  const { event_id } = await server.enqueue({ type: "offer", key: fresh("offer"), title: "Cheaper", audience: "owners", owners: [owner], category: "offers" });
  await eventually(async () => (await database.query("select from relevo.notification_events where id = $1 and fanout_finished_at is not null", [event_id])).rowCount, "fanned out");
  assert.equal((await received(token)).length, 0);
  await app.end();
});
