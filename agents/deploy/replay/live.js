"use strict";

const STILL = 1000; // milliseconds between pictures of a camera
const PERIOD = 200; // milliseconds between orders, whose answers are the frames
const LOST = 4000; // milliseconds without an answer until the page counts its cameras as given back
const LATE = 3; // seconds without a frame
const SHOWN = 300; // seconds of the chart
const AVERAGED = 30; // seconds of the mean
const RATES = [2, 5, 10, 20, 45]; // degrees per second
const [LEFT, STOP, RIGHT] = [1, 0, -1]; // headings grow counter-clockwise

// A frame of the loop as an episode of one frame.
function episodeOf(frame, world) {
  const column = (values) => new Series(Float64Array.from(values), { low: 0, step: 1, frames: 1 });
  const series = {
    heading: column(frame.heading.map((heading) => heading ?? 0)),
    working: column(frame.heading.map((heading) => heading !== null)),
    "by hand": column(frame.heading.map((_, i) => frame.by_hand.includes(i))),
  };
  const table = (kind, names, rows) => {
    names.forEach((name, k) => (series[`${kind} ${name}`] = column(rows.map((row) => row[k]))));
  };
  for (const name of ["view", "reach", "near"]) if (frame[name]) series[name] = column(frame[name]);
  for (const name of ["tracks", "detections"]) series[name] = column([frame[name].length]);
  table("sensor", ["x", "y"], frame.position);
  table("track", ["x", "y", "xx", "xy", "yy", "existence"], frame.tracks);
  table("detection", ["sensor", "x", "y"], frame.detections);
  return { live: true, sensors: frame.heading.length, targets: 0, discs: world.discs, levels: [], series };
}

// Coverage of the last seconds, one value a second, in place of an episode of a chart.
class Recent {
  constructor() {
    this.frames = SHOWN + 1;
    this.values = new Map();
  }

  add(time, value) {
    const second = Math.floor(time);
    if (value !== null) this.values.set(second, value);
    for (const old of this.values.keys()) if (Math.abs(old - second) >= SHOWN) this.values.delete(old);
    this.coverage = Float64Array.from({ length: this.frames }, (_, t) => this.values.get(second - SHOWN + t) ?? NaN);
    this.mean = this.coverage.map((_, t) => {
      const among = this.coverage.subarray(Math.max(1, t - AVERAGED + 1), t + 1).filter((one) => !isNaN(one));
      return among.reduce((a, b) => a + b, 0) / among.length;
    });
  }
}

// Row of a camera: name, state, and the buttons that steer it.
class Row {
  constructor(live, i) {
    this.state = make("span", { className: "state" });
    this.take = make("button", { type: "button", textContent: "Take by hand" });
    this.take.addEventListener("click", () => live.take(i));
    const name = sensorName(live.world, i);
    this.take.ariaLabel = `Take camera ${name} by hand`;
    const turns = [["◀", "left", LEFT], ["■", "stop", STOP], ["▶", "right", RIGHT]].map(([sign, word, way]) => {
      const button = make("button", { type: "button", className: "turn", textContent: sign });
      button.ariaLabel = word === "stop" ? `Stop camera ${name}` : `Turn camera ${name} ${word} while pressed`;
      // The focus leaves a button after the next is pressed, whose order must stand.
      const release = () => live.hands.get(i) === way && live.steer(i, STOP);
      button.addEventListener("pointerdown", (event) => {
        button.setPointerCapture(event.pointerId);
        live.steer(i, way);
      });
      button.addEventListener("lostpointercapture", release);
      button.addEventListener("contextmenu", (event) => event.preventDefault()); // of a long touch
      button.addEventListener("keydown", ({ key }) => (key === " " || key === "Enter") && live.steer(i, way));
      button.addEventListener("keyup", release);
      button.addEventListener("blur", release);
      return button;
    });
    const back = make("button", { type: "button", textContent: "Give back", ariaLabel: `Give camera ${name} back` });
    back.addEventListener("click", () => live.giveBack(i));
    this.steering = make("span", { hidden: true }, ...turns, " ", back);
    this.element = make("li", {}, make("b", { textContent: name }), this.state, this.take, this.steering);
    byId("cameras").append(this.element);
  }

  draw(i, frame, mine, chosen) {
    const heading = frame.heading[i];
    const other = !mine && frame.by_hand.includes(i);
    this.state.textContent = stateOf(i, frame, mine ? "by hand" : "by hand elsewhere");
    this.element.className = `${heading === null ? "failed" : ""} ${chosen ? "chosen" : ""}`;
    const focused = this.element.contains(document.activeElement) && document.activeElement;
    const changes = this.steering.hidden === mine;
    [this.take.hidden, this.steering.hidden, this.take.disabled] = [mine, !mine, other];
    if (focused && changes) (mine ? this.steering.firstChild : this.take).focus(); // the focused button is hidden now
  }
}

// Picture of a camera, with the boxes of its last detections.
class Picture {
  constructor(world, i) {
    this.camera = i;
    this.canvas = make("canvas", { width: 320, height: 180 });
    this.canvas.setAttribute("role", "img");
    this.caption = make("figcaption");
    this.name = sensorName(world, i);
    byId("pictures").append(make("figure", {}, this.canvas, this.caption));
    this.boxes = [];
    setInterval(() => this.load(), STILL);
  }

  async load() {
    if (document.hidden || this.loading) return;
    this.loading = true;
    try {
      const answer = await fetch(`picture/${this.camera}`, { signal: AbortSignal.timeout(LOST) });
      this.bitmap = answer.status === 200 ? await createImageBitmap(await answer.blob()) : null;
    } catch {
      this.bitmap = null; // no picture, or none that a browser can show
    }
    this.loading = false;
    this.draw(this.boxes);
  }

  draw(boxes) {
    this.boxes = boxes.filter((row) => row[0] === this.camera);
    this.caption.textContent = this.bitmap ? this.name : `${this.name}: no picture`;
    this.canvas.ariaLabel = `Camera ${this.name}, ${this.bitmap ? `${this.boxes.length} boxes` : "no picture"}`;
    const { width, height } = this.bitmap ?? { width: 320, height: 180 };
    Object.assign(this.canvas, { width, height }); // which clears it
    if (!this.bitmap) return;
    const context = this.canvas.getContext("2d");
    context.drawImage(this.bitmap, 0, 0);
    context.strokeStyle = palette(this.canvas)("detection");
    context.lineWidth = Math.max(2, width / 200);
    for (const [, left, top, right, bottom] of this.boxes) {
      context.strokeRect(left * width, top * height, (right - left) * width, (bottom - top) * height);
    }
  }
}

// The page of a running loop.
class Live {
  constructor(world) {
    this.world = world;
    this.page = crypto.getRandomValues(new Uint32Array(3)).join("-");
    this.hands = new Map(); // LEFT, STOP or RIGHT of each camera taken by hand on this page
    this.chosen = -1;
    this.answered = -Infinity; // time of the last answer to an order
    this.recent = new Recent();
    this.pictures = world.pictures.map((i) => new Picture(world, i));
    this.canvas = make("canvas", { className: `scene${world.picture ? " paper" : ""}` });
    this.canvas.setAttribute("role", "img");
    byId("rate").append(...RATES.map((rate) => make("option", { value: rate, textContent: `${rate}°/s` })));
    byId("rate").value = 10;
    byId("pause").addEventListener("click", () => this.pause());
    this.canvas.addEventListener("click", (event) => this.choose(this.scene.sensorAt(event.offsetX, event.offsetY, 0)));
    document.addEventListener("keydown", (event) => this.key(event));
    document.addEventListener("keyup", (event) => event.key.startsWith("Arrow") && this.stop());
    window.addEventListener("blur", () => this.stop());
    document.addEventListener("visibilitychange", () => this.stop());
    window.addEventListener("resize", () => this.resize());
    window.matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => this.resize());
    setInterval(() => this.renew(), PERIOD);
    setInterval(() => this.late(), 1000);
  }

  receive(frame) {
    const first = !this.frame;
    if (frame.time !== this.frame?.time) this.received = performance.now();
    this.frame = frame;
    this.recent.add(frame.time, frame.covered);
    if (first) this.begin();
    this.draw();
  }

  begin() {
    const episode = episodeOf(this.frame, this.world);
    byId("scenes").append(make("article", { className: "card" }, this.canvas, legend(this.world, episode)));
    this.scene = new Scene(this.canvas, this.world, episode);
    this.rows = this.frame.heading.map((_, i) => new Row(this, i));
    byId("with-pictures").hidden = !this.pictures.length;
    for (const picture of this.pictures) picture.load();
  }

  resize() {
    if (!this.frame) return;
    this.scene.resize();
    this.draw();
  }

  draw() {
    const { frame, hands } = this;
    const chosen = hands.has(this.chosen) ? this.chosen : -1;
    this.scene.episode = episodeOf(frame, this.world);
    this.scene.draw({ frame: 0, sensor: chosen, views: true, names: frame.heading.length <= 26, knowledge: true });
    const chart = new Curves(byId("chart"), [this.recent], "coverage", "mean", 1);
    chart.ends = [`${SHOWN / 60} min ago`, "now"];
    chart.resize();
    chart.draw({ frame: SHOWN });
    const silent = frame.heading.flatMap((heading, i) => (heading === null ? [sensorName(this.world, i)] : []));
    write("silent", silent.length ? `No answer: ${silent.join(", ")}` : "");
    this.rows.forEach((row, i) => row.draw(i, frame, hands.has(i), i === chosen));
    this.pictures.forEach((picture) => picture.draw(frame.boxes));
    byId("pause").textContent = frame.paused ? "Resume" : "Pause";
    byId("pause").ariaPressed = frame.paused;
    this.tell(frame.messages);
    this.canvas.ariaLabel = `${frame.heading.length} cameras, ${frame.tracks.length} tracks`;
    this.late();
  }

  // Add the messages after the last one told, the latest first; screen readers read only these.
  tell(messages) {
    const told = messages.findLastIndex((message) => JSON.stringify(message) === this.told);
    for (const [time, text] of messages.slice(told + 1)) {
      byId("messages").prepend(messageLine(time, text));
    }
    while (byId("messages").children.length > messages.length) byId("messages").lastChild.remove();
    this.told = JSON.stringify(messages.at(-1));
  }

  late() {
    if (!this.frame) return;
    const { time, covered, tracks, paused } = this.frame;
    const since = (performance.now() - this.received) / 1000;
    const about = `${clock(time)}, ${tracks.length} tracks, coverage ${inWords(covered ?? NaN, 2)}`;
    byId("main").classList.toggle("stale", since > LATE);
    const lost = this.ended ? "This run has ended; the next has another address" : `No frame for ${since.toFixed(0)} s`;
    write("now", since > LATE ? lost : about + (paused ? ", paused" : ""));
  }

  pause() {
    if (this.frame) this.send({ paused: !this.frame.paused });
  }

  choose(i) {
    this.chosen = i;
    if (i >= 0) this.rows[i].element.scrollIntoView({ block: "nearest" });
    this.draw();
  }

  take(i) {
    this.hands.set(i, STOP);
    this.choose(i);
    this.send();
  }

  giveBack(i) {
    this.hands.delete(i);
    this.draw();
    this.send();
  }

  steer(i, way) {
    if (!this.hands.has(i) || this.hands.get(i) === way) return;
    this.hands.set(i, way);
    if (way !== STOP && this.chosen !== i) this.choose(i);
    this.send();
  }

  stop() {
    for (const i of this.hands.keys()) this.steer(i, STOP);
  }

  // Keys, unless the focused element uses them.
  key(event) {
    const { key, target } = event;
    if (target.tagName === "SELECT" || event.ctrlKey || event.altKey || event.metaKey) return;
    if (key === " " && target.tagName !== "BUTTON") this.pause();
    else if (key === "ArrowLeft" || key === "ArrowRight") this.steer(this.chosen, key === "ArrowLeft" ? LEFT : RIGHT);
    else return;
    event.preventDefault();
  }

  // The server stops a camera that is not renewed, and later gives it back.
  renew() {
    if (this.hands.size && performance.now() - this.answered > LOST) {
      this.hands.clear();
      this.draw();
    }
    this.send();
  }

  // Send one order at a time, so that none overtakes another; the next has all changes since.
  async send(changes = {}) {
    this.changes = { ...this.changes, ...changes };
    this.again = Boolean(this.sending);
    if (this.sending) return;
    this.sending = true;
    do {
      [this.again, changes, this.changes] = [false, this.changes, {}];
      const rate = Number(byId("rate").value);
      const ordered = [...this.hands.keys()];
      const hands = Object.fromEntries(ordered.map((i) => [i, rate * this.hands.get(i)]));
      const body = JSON.stringify({ page: this.page, hands, ...changes });
      try {
        const answer = await fetch("order", { method: "POST", body, signal: AbortSignal.timeout(LOST) });
        this.ended = answer.status === 404; // another run has the port
        const { held, frame } = await answer.json();
        this.answered = performance.now();
        for (const i of ordered) if (!held.includes(i)) this.hands.delete(i); // by hand on another page
        if (frame) this.receive(frame);
      } catch {
        // renew() gives up after a while
      }
    } while (this.again);
    this.sending = false;
  }
}

// Write only changes, which screen readers read out.
function write(id, text) {
  if (byId(id).textContent !== text) byId(id).textContent = text;
}

const live = loadWorld().then((world) => {
  byId("title").textContent = world.scenario;
  return new Live(world);
});
