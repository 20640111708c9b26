"use strict";
// Asks what is new every two seconds while somebody looks, and puts it in place of what was there.
const live = document.getElementById("live");
const lost = document.getElementById("lost");
const EVERY = 2000, PATIENCE = 15000;
let tag = "", looking = false;

function isTyping() {
  return [...live.querySelectorAll("input:not([type=hidden])")].some((input) => input.value || input === document.activeElement);
}

function put(text) {
  const key = document.activeElement && document.activeElement.dataset.key;
  live.innerHTML = text;  // made by the server, which escapes every value; the page's policy runs no script in it
  if (key) {
    const same = [...live.querySelectorAll("[data-key]")].find((one) => one.dataset.key === key);
    if (same) same.focus({ preventScroll: true });
  }
}

async function look() {
  if (document.hidden || looking || isTyping()) return;
  looking = true;
  try {
    const headers = tag ? { "If-None-Match": tag } : {};
    const answer = await fetch("live" + location.search, { headers, cache: "no-store", signal: AbortSignal.timeout(PATIENCE) });
    if (answer.status !== 200 && answer.status !== 304) throw new Error(String(answer.status));
    const text = answer.status === 200 ? await answer.text() : null;
    lost.hidden = true;
    if (text !== null && !isTyping()) {
      tag = answer.headers.get("ETag") || "";
      put(text);
    }
  } catch {
    lost.hidden = false;
  } finally {
    looking = false;
  }
}

setInterval(look, EVERY);
document.addEventListener("visibilitychange", look);
