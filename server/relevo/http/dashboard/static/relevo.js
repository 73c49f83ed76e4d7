// Pages work without this. With it, times are the viewer's own, and a live page renews itself while somebody looks.
"use strict";
const EVERY_MS = 5000;

function localTimes(place) {
  for (const each of place.querySelectorAll("time[data-local]")) {
    const at = new Date(each.dateTime);
    if (!isNaN(at)) each.textContent = at.toLocaleString(document.documentElement.lang, { dateStyle: "medium", timeStyle: "medium" });
  }
  const zone = Intl.DateTimeFormat().resolvedOptions().timeZone;
  for (const each of place.querySelectorAll("[data-zone]")) each.textContent = zone ? ` (${zone})` : "";
  for (const each of place.querySelectorAll("input[data-own-zone]")) each.value ||= zone || "";
}

function busy(main) {
  const at = document.activeElement;
  const selected = window.getSelection();
  return main.contains(at) && at.matches("input, textarea, select, button, a, summary") || (selected && !selected.isCollapsed);
}

async function renew() {
  const main = document.querySelector("main[data-live]");
  if (!main || document.hidden || busy(main)) return;
  try {
    const answer = await fetch(location.href, { credentials: "same-origin", headers: { accept: "text/html", "x-relevo-renewal": "1" } });
    if (answer.status === 401) return location.reload();
    if (!answer.ok) return;
    const fresh = new DOMParser().parseFromString(await answer.text(), "text/html").querySelector("main");
    if (!fresh || busy(main)) return;
    localTimes(fresh);
    main.replaceChildren(...fresh.childNodes);
    main.dataset.renewed = String(Number(main.dataset.renewed || 0) + 1);
  } catch { /* the next round tries again */ }
}

localTimes(document);
document.querySelector("header nav [aria-current]")?.scrollIntoView({ block: "nearest", inline: "center" });
setInterval(renew, EVERY_MS);
document.addEventListener("visibilitychange", renew);
