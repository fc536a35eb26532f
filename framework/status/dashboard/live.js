// Puts what has changed into its places. A page that nobody sees asks for nothing.
"use strict";

let stream;
let begun = 0; // when the stream was
let heard = Date.now();
let seen = heard; // since when the page is

function listen() {
  if (stream || document.hidden) return;
  begun = Date.now();
  const mine = (stream = new EventSource(document.body.dataset.events));
  mine.onmessage = (event) => {
    heard = Date.now();
    for (const [id, html] of JSON.parse(event.data)) {
      const old = document.getElementById(id);
      const now = document.createElement("template");
      now.innerHTML = html;
      if (old) put(old, now.content.firstElementChild);
    }
    light(lit);
  };
  // A browser tries again by itself after a lost connection, but not after a refusal.
  mine.onerror = () => {
    if (mine.readyState !== EventSource.CLOSED || stream !== mine) return;
    stream = undefined;
    setTimeout(listen, 3000);
  };
}

function hush() {
  if (stream) stream.close();
  stream = undefined;
}

// Makes old what now is. Only what differs is touched: what somebody has scrolled to, selected or focused stays.
function put(old, now) {
  if (old.isEqualNode(now)) return;
  if (old.nodeType === Node.TEXT_NODE && now.nodeType === Node.TEXT_NODE) {
    let same = 0;
    while (same < old.length && old.data[same] === now.data[same]) same++;
    old.replaceData(same, old.length - same, now.data.slice(same));
    return;
  }
  if (old.nodeName !== now.nodeName) {
    old.replaceWith(now);
    return;
  }
  for (const { name } of [...old.attributes]) if (!now.hasAttribute(name)) old.removeAttribute(name);
  for (const { name, value } of now.attributes) if (old.getAttribute(name) !== value) old.setAttribute(name, value);
  const before = [...old.childNodes];
  const after = [...now.childNodes];
  after.forEach((child, i) => (before[i] ? put(before[i], child) : old.append(child)));
  for (const child of before.slice(after.length)) child.remove();
}

document.addEventListener("visibilitychange", () => {
  if (document.hidden) hush();
  seen = Date.now();
  listen();
});

setInterval(() => {
  const silent = Math.round((Date.now() - Math.max(heard, seen)) / 1000);
  const told = document.getElementById("silence");
  told.hidden = silent < 5 + 2 * document.body.dataset.pace; // which is in seconds
  document.body.classList.toggle("old", !told.hidden);
  // The same text for as long as it lasts: a screen reader says each that is another.
  const text = `no news since ${new Date(heard).toISOString().slice(0, 19).replace("T", " ")} UTC: what is shown is old`;
  if (!told.hidden && told.textContent !== text) told.textContent = text;
  // A connection that was cut without a word stays open, and silent, for hours. A list of names waits for a silent
  // store for up to three looks.
  if (!told.hidden && Date.now() - Math.max(begun, heard) > 1000 * (10 + 4 * document.body.dataset.timeout)) {
    hush();
    listen();
  }
}, 1000);

// The partitions of the peer that the pointer is at, and the peer of the partition.
let lit = "";

function light(peer) {
  lit = peer;
  for (const e of document.querySelectorAll(".lit")) e.classList.remove("lit");
  if (!peer) return;
  for (const e of document.querySelectorAll("[data-peer]")) {
    if (e.dataset.peer === peer) e.classList.add("lit");
  }
}

document.addEventListener("mouseover", (event) => {
  const at = event.target.closest("[data-peer]");
  const peer = at ? at.dataset.peer : "";
  if (peer !== lit) light(peer);
});

listen();
