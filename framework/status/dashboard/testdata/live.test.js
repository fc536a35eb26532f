// Runs live.js in a page that is none, by a clock that is none. It ends with an error that says what does not hold.
"use strict";

const assert = require("node:assert");
const fs = require("node:fs");
const path = require("node:path");
const vm = require("node:vm");

const script = fs.readFileSync(path.join(__dirname, "..", "live.js"), "utf8");
const start = Date.UTC(2030, 0, 31, 12, 0, 0);

// A page of which an event is due each second, and a look takes at most ten.
function open() {
  let now = start;
  const timers = [];
  const streams = [];
  const listeners = {};
  const silence = { hidden: true, textContent: "" };
  const classes = new Set();
  class Clock extends Date {
    static now() {
      return now;
    }
  }
  class EventSource {
    static CLOSED = 2;
    constructor(url) {
      this.url = url;
      this.readyState = 1;
      streams.push(this);
    }
    close() {
      this.readyState = EventSource.CLOSED;
    }
  }
  const document = {
    hidden: false,
    body: {
      dataset: { events: "events?name=n", pace: "1", timeout: "10" },
      classList: { toggle: (name, on) => (on ? classes.add(name) : classes.delete(name)) },
    },
    getElementById: () => silence,
    querySelectorAll: () => [],
    addEventListener: (what, does) => (listeners[what] = does),
  };
  vm.runInNewContext(script, {
    Date: Clock,
    EventSource,
    document,
    setTimeout: (does, after) => timers.push({ at: now + after, does }),
    setInterval: (does, every) => timers.push({ at: now + every, does, every }),
  });
  return {
    streams,
    last: () => streams.at(-1),
    news: () => streams.at(-1).onmessage({ data: "[]" }),
    refuse: () => {
      streams.at(-1).close();
      streams.at(-1).onerror();
    },
    show: (shown) => {
      document.hidden = !shown;
      listeners.visibilitychange();
    },
    pass: (seconds) => {
      for (const end = now + seconds * 1000; now < end; ) {
        now += 1000;
        for (const t of timers.filter((t) => t.at <= now)) {
          if (t.every) t.at += t.every;
          else timers.splice(timers.indexOf(t), 1);
          t.does();
        }
      }
    },
    told: () => (silence.hidden ? "" : silence.textContent),
    old: () => classes.has("old"),
  };
}

const since = (time) => `no news since ${time} UTC: what is shown is old`;
const cases = {
  "a server that is silent is told, with when it was heard last": () => {
    const page = open();
    page.pass(3);
    page.news();
    page.pass(6);
    assert.strictEqual(page.told(), "");
    page.pass(2);
    assert.strictEqual(page.told(), since("2030-01-31 12:00:03"));
    assert.ok(page.old());
    page.news();
    page.pass(1);
    assert.strictEqual(page.told(), "");
    assert.ok(!page.old());
  },
  "a refusal is not the end": () => {
    const page = open();
    page.refuse();
    page.pass(2);
    assert.strictEqual(page.streams.length, 1);
    page.pass(1);
    assert.strictEqual(page.streams.length, 2);
    page.last().readyState = 0; // the browser tries again by itself
    page.last().onerror();
    page.pass(5);
    assert.strictEqual(page.streams.length, 2);
  },
  "a connection that was cut without a word is opened anew": () => {
    const page = open();
    page.news();
    page.pass(50);
    assert.strictEqual(page.streams.length, 1);
    page.pass(2);
    assert.strictEqual(page.streams.length, 2);
    assert.strictEqual(page.streams[0].readyState, 2);
  },
  "a page that nobody sees asks for nothing, and one that is seen again has time to hear": () => {
    const page = open();
    page.show(false);
    assert.strictEqual(page.last().readyState, 2);
    page.pass(3600);
    assert.strictEqual(page.streams.length, 1);
    page.show(true);
    assert.strictEqual(page.streams.length, 2);
    page.pass(1);
    assert.strictEqual(page.told(), "");
    page.news();
    page.pass(6);
    assert.strictEqual(page.told(), "");
  },
  "a page that is seen again while the server is away says how old it is": () => {
    const page = open();
    page.pass(5);
    page.news();
    page.show(false);
    page.pass(3600);
    page.show(true);
    page.refuse();
    page.pass(8);
    assert.strictEqual(page.told(), since("2030-01-31 12:00:05"));
  },
};

for (const [name, holds] of Object.entries(cases)) {
  try {
    holds();
  } catch (error) {
    console.error(`${name}: ${error.message}`);
    process.exitCode = 1;
  }
}
