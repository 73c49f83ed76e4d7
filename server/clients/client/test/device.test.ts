import assert from "node:assert/strict";
import { randomUUID } from "node:crypto";
import { after, mock, test } from "node:test";
import { Device, InboxStore, type KeyValue, NoAnswerError, NotRegisteredError, RelevoClient, RelevoError } from "@relevo/client";
import { app, database, eventually, fresh, memory, Network, phonesOf, push, sign, url } from "@relevo/testing";

after(() => database.end());

interface Made {
  device: Device;
  network: Network;
  storage: KeyValue;
  token: string;
}

function made(storage: KeyValue = memory(), now?: () => number, token = `ExponentPushToken[${fresh("t")}]`): Made {
  const network = new Network();
  const client = new RelevoClient({ url, fetch: network.fetch, timeoutMs: 30_000 });
  return { device: new Device({ client, storage, sign, ...(now ? { now } : {}) }), network, storage, token };
}

test("an answer that is an error is told as Relevo tells it", async () => {
  const wrong = { type: "t", key: "k", title: "x", audience: "owners" } as never;
  await assert.rejects(app.enqueue(wrong), (error: RelevoError) => {
    assert.equal(error.status, 400);
    assert.equal(error.type, "urn:relevo:invalid");
    assert.ok(error.errors.some((each) => each.field === "owners"), JSON.stringify(error.errors));
    assert.ok(error.requestId);
    return true;
  });
});

test("what may be repeated is tried again, and what may not is not", async () => {
  const network = new Network();
  const client = new RelevoClient({ url, fetch: network.fetch, token: process.env["RELEVO_APP_TOKEN"] as string });
  network.loseNext = 2;
  const event = { type: "t", key: fresh("k"), title: "x", audience: "everyone" } as const;
  assert.equal((await client.enqueue(event)).created, false); // the first one arrived, and its answer was lost
  assert.equal(network.calls.length, 3);
  network.loseNext = 1;
  await assert.rejects(client.http.send("POST", "/v1/events/preview", { body: event }), NoAnswerError);
  assert.equal(network.calls.length, 4);
});

test("a request ends when its time is over", async () => {
  const never: typeof fetch = (_, init) => new Promise((_resolve, reject) => init?.signal?.addEventListener("abort", () => reject(new Error("aborted"))));
  const client = new RelevoClient({ url, fetch: never, timeoutMs: 20, retries: 0 });
  await assert.rejects(client.inbox(), /no answer came in time/);
});

test("a phone registers once, and says later only what changed", async () => {
  const { device, network, storage, token } = made();
  const owner = fresh("ana");
  await device.register({ token, platform: "ios" }, owner);
  await device.register({ token, platform: "ios" }, owner);
  assert.deepEqual(network.calls, ["PUT /v1/installations/… 201"]);
  await device.register({ token: `ExponentPushToken[${fresh("u")}]`, platform: "ios" }, owner);
  assert.deepEqual(network.calls.slice(1), ["PUT /v1/installations/… 200"]);
  const again = made(storage).device; // the app was started again
  assert.equal(await again.installationId(), await device.installationId());
  assert.equal(await again.isRegistered(), true);
  assert.equal((await phonesOf(owner)).length, 1);
});

test("a month later a phone says that it is still there", async () => {
  let now = Date.now();
  const { device, network, token } = made(memory(), () => now);
  const owner = fresh("ana");
  await device.register({ token }, owner);
  now += 31 * 86_400_000;
  await device.register({ token }, owner);
  assert.equal(network.calls.length, 2);
});

test("a lost answer costs nothing but another signature", async () => {
  const { device, network, token } = made();
  const owner = fresh("ana");
  network.loseNext = 1;
  await device.register({ token }, owner);
  assert.deepEqual(network.calls, ["PUT /v1/installations/… 201", "PUT /v1/installations/… 200"]);
  assert.deepEqual((await device.list({})).items, []); // the secret it has is the one that holds
  assert.equal((await phonesOf(owner)).length, 1);
});

test("a phone that was logged out elsewhere registers anew", async () => {
  const { device, token } = made();
  const owner = fresh("ana");
  await device.register({ token }, owner);
  await app.logOut(await device.installationId());
  await assert.rejects(device.counts(), (error: RelevoError) => error.status === 401);
  await device.register({ token, locale: "es-CL" }, owner);
  assert.deepEqual(await device.counts(), { unread: 0, unseen: 0 });
});

test("the next owner of a phone sees nothing of the one before", async () => {
  const { device, token } = made();
  const [ana, ben] = [fresh("ana"), fresh("ben")];
  await device.register({ token }, ana);
  await push(ana, "for Ana");
  assert.deepEqual((await device.list({})).items.map((item) => item.title), ["for Ana"]);
  await device.register({ token }, ben);
  assert.deepEqual((await device.list({})).items, []);
  await push(ana, "again for Ana");
  assert.deepEqual((await device.list({})).items, []);
  assert.deepEqual((await phonesOf(ana)).length, 0);
});

test("a log-out without network is sent before anything else", async () => {
  const { device, network, storage, token } = made();
  const [ana, ben] = [fresh("ana"), fresh("ben")];
  await device.register({ token }, ana);
  network.online = false;
  assert.equal(await device.logOut(), "later");
  await assert.rejects(device.list({}), NotRegisteredError);
  await assert.rejects(device.register({ token }, ben), NoAnswerError);
  const later = made(storage); // the app was ended, and started the next day
  await later.device.register({ token }, ben);
  assert.deepEqual(later.network.calls, ["POST /v1/installations/…/log-out 200", "PUT /v1/installations/… 200"]);
  assert.deepEqual([(await phonesOf(ana)).length, (await phonesOf(ben)).length], [0, 1]);
});

test("what Relevo refuses of what waited keeps no log-out", async () => {
  const { device, network, token } = made();
  const owner = fresh("ana");
  await device.register({ token }, owner);
  network.online = false;
  await device.mark(2 ** 50, "read"); // there is no such event
  network.online = true;
  assert.equal(await device.logOut(), "done");
  assert.deepEqual((await phonesOf(owner)).map((each) => each.receives), [false]);
});

test("a log-out whose answer was lost is done", async () => {
  const { device, network, token } = made();
  await device.register({ token }, fresh("ana"));
  network.loseNext = 1;
  assert.equal(await device.logOut(), "done");
  assert.deepEqual(network.calls.slice(1), ["POST /v1/installations/…/log-out 200", "POST /v1/installations/…/log-out 401"]);
});

test("an inbox shows pages, counts, marks at once and what is new", async () => {
  const { device, network, token } = made();
  const owner = fresh("ana");
  await device.register({ token }, owner);
  for (const title of ["one", "two", "three"]) await push(owner, title);
  const inbox = new InboxStore(device, { pageSize: 2 });
  const titles = (): string[] => inbox.state().items.map((item) => item.title);
  await inbox.refresh();
  assert.deepEqual([titles(), inbox.state().unread, inbox.state().hasMore], [["three", "two"], 3, true]);
  await inbox.loadMore();
  assert.deepEqual(titles(), ["three", "two", "one"]);
  const first = inbox.state().items[0]!.event_id;
  const marking = inbox.markRead(first);
  assert.equal(inbox.state().unread, 2); // before Relevo has heard of it
  await marking;
  assert.deepEqual(await device.counts(), { unread: 2, unseen: 2 });
  const stop = inbox.watch();
  await eventually(() => network.calls.some((call) => call.startsWith("GET /v1/inbox/counts")), "it watches");
  await push(owner, "four");
  await eventually(() => titles()[0] === "four", "what is new is shown");
  stop();
  await inbox.archive(first);
  assert.ok(!titles().includes("three"));
  await inbox.markAllRead();
  assert.deepEqual(await device.counts(), { unread: 0, unseen: 0 });
});

test("marks made without network are sent when there is one", async () => {
  const { device, network, storage, token } = made();
  const owner = fresh("ana");
  await device.register({ token }, owner);
  const event = await push(owner, "one");
  network.online = false;
  await device.mark(event, "read");
  const later = made(storage, undefined, token).device;
  assert.equal((await later.counts()).unread, 1);
  await later.flush();
  assert.equal((await later.counts()).unread, 0);
});

test("a phone says of itself what begins with device., and no more", async () => {
  const { device, token } = made();
  await device.register({ token }, fresh("ana"));
  await device.setAttributes({ "device.theme": "dark", "device.old": null });
  assert.deepEqual(await device.attributes(), { "device.theme": "dark" });
  await assert.rejects(device.setAttributes({ plan: "pro" }), (error: RelevoError) => error.status === 403);
});

test("an app's server names an event and whose things are meant as it does with @relevo/pg", async () => {
  const owner = fresh("ana");
  const phone = (await app.register({ installation_id: randomUUID(), token: `ExponentPushToken[${fresh("t")}]`, owner })).installation_id;
  assert.equal(await app.setAttributes({ owner }, { plan: "pro" }), true);
  assert.equal(await app.setAttributes({ installation_id: phone }, { city: "Talca" }), true);
  assert.deepEqual(await app.getAttributes({ installation_id: phone }), { plan: "pro", city: "Talca" });
  await app.setPreference(phone, "news", { topics: ["news"] });
  assert.equal(await app.setPreference(phone, "news", null), null);
  const later = new Date(Date.now() + 3_600_000).toISOString();
  for (const end of [(named: { type: string; key: string }) => app.cancel(named, "no longer"), (named: { type: string; key: string }) => app.complete(named, { reason: "done" })]) {
    const named = { type: "order.shipped", key: fresh("k") };
    await app.enqueue({ ...named, title: "x", audience: "owners", owners: [owner], scheduled_at: later });
    await end(named);
    await end(named); // an event that ended is found, too
  }
  await assert.rejects(app.cancel({ type: "order.shipped", key: fresh("k") }), (error: RelevoError) => error.status === 404);
});

test("an event of which nothing was sent is found by its key", async () => {
  const calls: string[] = [];
  const answers = [new Response('{"event_id": 7}', { status: 422 }), new Response('{"cancelled": false}')];
  const told: typeof fetch = async (address) => {
    calls.push(new URL(String(address)).pathname);
    return answers.shift() as Response;
  };
  await new RelevoClient({ url, fetch: told }).cancel({ type: "order.shipped", key: "k" });
  assert.deepEqual(calls, ["/v1/events", "/v1/events/7/cancel"]);
});

test("former arguments work with a warning", async () => {
  const warnings: string[] = [];
  mock.method(console, "warn", (words: string) => warnings.push(words));
  const [owner, id] = [fresh("ana"), randomUUID()];
  await app.register(id, { token: `ExponentPushToken[${fresh("t")}]`, owner });
  assert.equal(await app.setAttributes(id, { city: "Talca" }), true);
  assert.equal(await app.setOwnerAttributes(owner, { plan: "pro" }, "default"), true);
  assert.deepEqual(await app.attributes(id), { plan: "pro", city: "Talca" });
  mock.restoreAll();
  assert.equal(warnings.length, 4);
  for (const words of warnings) assert.match(words, /leaves in 0\.6/);
});

test("preferences are set, told and removed", async () => {
  const { device, token } = made();
  await device.register({ token }, fresh("ana"));
  await device.setPreference("news", { topics: ["news"] });
  assert.deepEqual((await device.preferences()).map((each) => each.name).sort(), ["default", "news"]);
  await device.setPreference("news", null);
  assert.deepEqual((await device.preferences()).map((each) => each.name), ["default"]);
});

test("changing one field of a preference changes no other", async () => {
  const { device, token } = made();
  await device.register({ token }, fresh("ana"));
  await device.setPreference("bridges", { keywords: ["puente"], region: "Maule", monto_min: "10.50", enabled: false });
  const find = async (): Promise<object> => {
    const { updated_at: _, ...found } = (await device.preferences()).find((each) => each.name === "bridges")!;
    return found;
  };
  const before = await find();
  await device.changePreference("bridges", { delivery: "weekly mon 08:00" });
  assert.deepEqual(await find(), { ...before, delivery: "weekly mon 08:00" });
  const add = (topic: string) => device.changePreference("topics", (now) => ({ topics: [...(now?.topics ?? []), topic] }));
  await Promise.all([add("chess"), add("football"), add("tennis")]);
  assert.deepEqual((await device.preferences()).find((each) => each.name === "topics")?.topics, ["chess", "football", "tennis"]);
});

test("quiet hours are those of the phone, or of all phones of its owner", async () => {
  const owner = fresh("ana");
  const [one, two] = [made(), made()];
  for (const { device, token } of [one, two]) await device.register({ token, timezone: "America/Santiago" }, owner);
  assert.equal((await one.device.quiet()).windows, null);
  await one.device.setQuiet({ windows: ["22:00-07:00"], all_phones: true });
  const { windows, hours_of, zone } = await two.device.quiet();
  assert.deepEqual([windows, hours_of, zone], [["22:00-07:00"], "owner", "America/Santiago"]);
  await two.device.setQuiet({ windows: ["13:00-14:00"] });
  assert.deepEqual((await two.device.quiet()).windows, ["13:00-14:00"]);
  assert.deepEqual((await one.device.quiet()).windows, ["22:00-07:00"]);
  await two.device.setQuiet({ windows: null });
  assert.equal((await two.device.quiet()).hours_of, "owner");
});

test("a request is not tried again if the server asks to wait for long", async () => {
  let calls = 0;
  const busy: typeof fetch = async () => {
    calls += 1;
    return new Response("{}", { status: 429, headers: { "Retry-After": "3600" } });
  };
  await assert.rejects(new RelevoClient({ url, fetch: busy }).inbox(), (error: RelevoError) => error.retryAfterMs === 3_600_000);
  assert.equal(calls, 1);
});

test("older pages that were loaded stay when something new comes", async () => {
  const { device, token } = made();
  const owner = fresh("ana");
  await device.register({ token }, owner);
  for (const title of ["one", "two", "three", "four", "five"]) await push(owner, title);
  const inbox = new InboxStore(device, { pageSize: 2, locale: "es" });
  const titles = (): string[] => inbox.state().items.map((item) => item.title);
  const stop = inbox.watch();
  await eventually(() => titles().length === 2, "the first page");
  await inbox.loadMore();
  await push(owner, "six");
  await eventually(() => titles()[0] === "six", "what is new is shown");
  assert.deepEqual(titles(), ["six", "five", "four", "three", "two"]);
  await inbox.loadMore();
  assert.deepEqual([titles(), inbox.state().hasMore], [["six", "five", "four", "three", "two", "one"], false]);
  stop();
});
