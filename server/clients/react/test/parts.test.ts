import assert from "node:assert/strict";
import { test } from "node:test";
import { linkOf, textsFor } from "@relevo/react";
import { areTimes, dayNames, namesOf, readDigest, readWindows, writeDigest, writeWindows } from "../src/hours.js";
import { phaseOf } from "../src/screens.js";
import { fill } from "../src/texts.js";

test("a link is one of http, https, the app, or relative", () => {
  const link = (url: unknown): string | null => linkOf({ data: { url } }, ["MyShop"]);
  for (const good of ["https://shop.example/a?b=c:d", "http://shop.example", "/orders/53", "#order", "?page=2", "orders/a:b", "//shop.example", "myshop://order", "MYSHOP:x"]) {
    assert.equal(link(good), good);
  }
  assert.equal(link("  https://shop.example "), "https://shop.example");
  for (const bad of ["javascript:alert(1)", "JavaScript:x", " javascript:x", "java\nscript:x", "java\tscript:x", "\u0001javascript:x", "javascript\n:x", "data:text/html,x", "vbscript:x", "blob:x", "file:///etc", "other://x", "", "  ", 7, null, undefined, {}]) {
    assert.equal(link(bad), null, String(bad));
  }
  assert.equal(linkOf({ data: {} }), null);
});

test("windows are read and written without loss, midnight as a form shows it", () => {
  const windows = ["22:00-07:00", "sat,sun 07:00-10:00", "mon 20:00-24:00"];
  assert.deepEqual(writeWindows(readWindows(windows)), ["22:00-07:00", "sat,sun 07:00-10:00", "mon 20:00-00:00"]);
  assert.equal(areTimes(readWindows(windows)), true);
  assert.equal(areTimes([{ days: "", from: "", to: "07:00" }]), false);
  assert.equal(areTimes([{ days: "", from: "7:00", to: "24:00" }]), false);
});

test("a digest is read and written without loss; several differ or do not", () => {
  for (const delivery of ["now", "hourly", "daily 08:00", "weekly fri 18:30"]) assert.equal(writeDigest(readDigest([delivery, delivery])), delivery);
  assert.equal(readDigest([null, undefined, "now"]).often, "now");
  assert.equal(readDigest([]).often, "now");
  assert.equal(readDigest(["now", "hourly"]).often, "mixed");
  assert.equal(readDigest(["daily 08:00", "daily 09:00"]).often, "mixed");
});

test("days have the names of a language", () => {
  assert.deepEqual(dayNames("en").map(([, name]) => name)[0], "Monday");
  assert.equal(namesOf("sat,sun", "es"), "sábado, domingo");
});

test("each text is there in both languages, with the same values to fill in", () => {
  const [english, spanish] = [textsFor("en-GB"), textsFor("es-CL")];
  assert.deepEqual(Object.keys(spanish), Object.keys(english));
  for (const [name, text] of Object.entries(english)) {
    const other = (spanish as unknown as Record<string, string>)[name] ?? "";
    assert.notEqual(other, text, name);
    assert.deepEqual(other.match(/\{\w+\}/g), text.match(/\{\w+\}/g), name);
  }
  assert.equal(textsFor("fr").save, "Save");
  assert.equal(textsFor("est").save, "Save"); // Estonian is not Spanish
  assert.equal(textsFor("es", { save: "Listo" }).save, "Listo");
  assert.equal(fill("{count} of {all}", { count: "99+" }), "99+ of {all}");
});

test("a screen says that it waits until it knows", () => {
  const idle = { loading: false, error: null };
  assert.equal(phaseOf("idle", idle, false), "loading");
  assert.equal(phaseOf("registered", { loading: true, error: null }, false), "loading");
  assert.equal(phaseOf("registered", idle, false), "ready");
  assert.equal(phaseOf("registered", { loading: false, error: new Error() }, false), "failed");
  assert.equal(phaseOf("offline", idle, false), "failed");
  assert.equal(phaseOf("offline", idle, true), "ready");
  assert.equal(phaseOf("logged-out", idle, true), "logged-out");
});
