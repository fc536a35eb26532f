// Puts what has changed into its places. A page that nobody sees asks for nothing.
"use strict";

let stream;
let heard = Date.now();

function listen() {
  if (stream || document.hidden) return;
  const mine = (stream = new EventSource(document.body.dataset.events));
  mine.onmessage = (event) => {
    heard = Date.now();
    for (const [id, html] of JSON.parse(event.data)) {
      const old = document.getElementById(id);
      if (old) old.outerHTML = html;
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

document.addEventListener("visibilitychange", () => {
  if (document.hidden && stream) {
    stream.close();
    stream = undefined;
  }
  heard = Date.now();
  listen();
});

setInterval(() => {
  const silent = Math.round((Date.now() - heard) / 1000);
  const told = document.getElementById("silence");
  told.hidden = silent < 5 + 2 * document.body.dataset.pace; // which is in seconds
  told.textContent = `no news for ${silent} s: what is shown is old`;
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
