"use strict";
// Asks what is new every second while somebody looks; buttons and switches speak to the control interface.
const live = document.getElementById("live");
const lost = document.getElementById("lost");
const said = document.getElementById("said");
const EVERY = 1000, PATIENCE = 10000;
let tag = "", looking = false, held = null;

function isBusy() {
  const active = document.activeElement;
  return active && live.contains(active) && (active.tagName === "INPUT" || active === held);
}

function put(text) {
  const key = document.activeElement && document.activeElement.dataset.key;
  live.innerHTML = text;  // made by the server, which escapes every value; the page's policy runs no script in it
  const same = key && [...live.querySelectorAll("[data-key]")].find((one) => one.dataset.key === key);
  if (same) same.focus({ preventScroll: true });
}

async function look() {
  if (document.hidden || looking || isBusy()) return;
  looking = true;
  try {
    const headers = tag ? { "If-None-Match": tag } : {};
    const answer = await fetch("live", { headers, cache: "no-store", signal: AbortSignal.timeout(PATIENCE) });
    if (answer.status !== 200 && answer.status !== 304) throw new Error(String(answer.status));
    const text = answer.status === 200 ? await answer.text() : null;
    lost.hidden = true;
    if (text !== null && !isBusy()) {
      tag = answer.headers.get("ETag") || "";
      put(text);
    }
  } catch {
    lost.hidden = false;
  } finally {
    looking = false;
  }
}

async function tell(path, body) {
  held = null;
  try {
    const answer = await fetch(path, { method: "POST", body, headers: { "Content-Type": "application/json" } });
    const words = await answer.json();
    said.textContent = words.error || "";
    said.hidden = !words.error;
    lost.hidden = true;
  } catch {
    lost.hidden = false;
  }
  tag = "";
  await look();
}

function rates() {
  const chosen = {};
  for (const one of live.querySelectorAll("[data-fault]")) if (Number(one.value)) chosen[one.dataset.fault] = Number(one.value);
  return chosen;
}

live.addEventListener("click", (event) => {
  const button = event.target.closest("button[data-path]");
  if (button) tell(button.dataset.path, button.dataset.body);
});
live.addEventListener("focusin", (event) => { held = event.target.tagName === "SELECT" ? event.target : null; });
live.addEventListener("focusout", () => { held = null; });
live.addEventListener("change", (event) => {
  const one = event.target;
  if (one.dataset.fault) tell("chaos", JSON.stringify({ rates: rates() }));
  if (!one.dataset.quirk) return;
  let value;
  if (one.tagName === "SELECT") value = JSON.parse(one.value);
  else if (one.dataset.words) value = one.value;
  else value = one.value.trim() === "" ? null : Number(one.value);
  one.blur();
  tell("quirks", JSON.stringify({ [one.dataset.quirk]: value }));
});
setInterval(look, EVERY);
document.addEventListener("visibilitychange", look);
