"use strict";

const SPEEDS = [1, 2, 5, 10, 20, 50, 100, 200, 500]; // sub-steps a second
const SWITCHES = ["views", "trails", "names", "assignments", "knowledge", "goals"];
const MESSAGES = 50; // most that are shown at once, as on the live page

// Card of one episode: name, figures, scene, legend, and the strip of the chosen sensor.
class Card {
  constructor(player, episode, k) {
    this.player = player;
    this.episode = episode;
    const { world } = player;
    this.canvas = make("canvas", { className: `scene${world.picture ? " paper" : ""}` });
    this.figures = make("p", { className: "figures" });
    this.note = make("p", { className: "note" });
    this.stripCanvas = make("canvas", { className: "chart" });
    const dot = make("span", { className: "dot" });
    dot.style.background = `var(--${agentColour(k)})`;
    const title = make("h2", {}, dot, episode.agent);
    const card = make("article", { className: "card" }, title, this.figures, this.canvas, legend(world, episode));
    byId("scenes").append(card);
    // The strip of a single scene is beside it, among the curves.
    const alone = player.episodes.length === 1;
    this.attention = make(alone ? "article" : "div", { className: alone ? "card" : "" }, this.note, this.stripCanvas);
    (alone ? byId("curves") : card).append(this.attention);
    this.canvas.setAttribute("role", "img");
    this.scene = new Scene(this.canvas, world, episode);
    this.strip = new Strip(this.stripCanvas, episode);
    this.canvas.addEventListener("click", (event) => {
      const sensor = this.scene.sensorAt(event.offsetX, event.offsetY, player.shown.frame);
      player.choose(sensor === player.shown.sensor ? -1 : sensor);
    });
    scrub(this.stripCanvas, this.strip, player);
    this.written = this.writeFigures();
  }

  // An element for each figure, filled in by draw().
  writeFigures() {
    const written = {};
    for (const figure of ["coverage", "rotation"]) {
      written[figure] = make("b");
      written[`${figure} now`] = make("span");
      for (const name of [figure, `${figure} now`]) written[name].dataset.figure = name;
      this.figures.append(make("span", {}, `${figure} `, written[figure], " now ", written[`${figure} now`]));
    }
    if (this.episode.transport) {
      written.transport = make("b");
      written.transport.dataset.figure = "transport";
      this.figures.append(make("span", {}, "transport ", written.transport));
    }
    return written;
  }

  resize() {
    this.scene.resize();
    this.strip.resize();
  }

  draw(shown) {
    const { episode, written } = this;
    const t = shown.frame;
    written.coverage.textContent = inWords(episode.meanCoverage[t], 3);
    written.rotation.textContent = inWords(episode.meanRotation[t], 3);
    if (episode.transport) written.transport.textContent = inWords(episode.transport[t], 3);
    written["coverage now"].textContent = inWords(episode.coverage[t], 2);
    written["rotation now"].textContent = t ? inWords(episode.rotation[t], 2) : "-";
    this.canvas.ariaLabel = `${episode.agent} at sub-step ${t}, coverage now ${inWords(episode.coverage[t], 2)}`;
    // Episodes without the chosen level show one of their own.
    const level = episode.levels.includes(shown.level) ? shown.level : episode.levels[0];
    const own = { ...shown, level };
    this.scene.draw(own);
    this.attention.hidden = own.sensor < 0 || !episode.targets; // as in a logged run
    if (this.attention.hidden) return;
    const name = sensorName(this.player.world, own.sensor);
    this.note.textContent = this.strip.attends(own)
      ? `Sensor ${name}: shares of ${level === "policy" ? "its" : `the ${level}'s`} attention, at most ` +
        `${this.strip.largest(own).toFixed(2)}; green: the sensor sees the target.`
      : `Sensor ${name}: this agent has no attention; green: the sensor sees the target.`;
    this.strip.draw(own);
  }
}

// Cameras and messages of a logged run at a frame.
class Logged {
  constructor(player, episode) {
    Object.assign(this, { player, episode });
    this.cameras = make("ul", { id: "cameras" });
    this.lines = make("ul", { id: "messages" });
    for (const [title, list] of [["Cameras", this.cameras], ["Messages", this.lines]]) {
      byId("curves").append(make("article", { className: "card" }, make("h2", { textContent: title }), list));
    }
  }

  draw({ frame }) {
    const { series, sensors, messages } = this.episode;
    const every = Array.from({ length: sensors }, (_, i) => i);
    const chosen = (name) => every.filter((i) => series[name]?.whole(frame, i));
    const working = (i) => series.working.whole(frame, i);
    const shown = {
      heading: every.map((i) => (working(i) ? series.heading.at(frame, i) : null)),
      by_hand: chosen("by hand"),
      rests: chosen("rests"),
      moves: every.map((i) => series.moves.whole(frame, i)),
    };
    const unset = (i) => series.left.whole(frame, i) === NO_COVERAGE;
    shown.left = shown.by_hand.map((i) => (unset(i) ? null : series.left.at(frame, i)));
    const { world } = this.player;
    this.cameras.replaceChildren(
      ...every.map((i) => {
        const state = make("span", { className: "state", textContent: stateOf(i, shown, "by hand") });
        return make("li", {}, make("b", { textContent: sensorName(world, i) }), " ", state);
      }),
    );
    const told = messages.filter(([when]) => when <= frame).slice(-MESSAGES);
    this.lines.replaceChildren(...told.reverse().map(([, time, text]) => messageLine(time, text)));
  }
}

// Choose a sub-step with the pointer on a chart.
function scrub(canvas, chart, player) {
  const move = (event) => {
    if (event.buttons & 1) player.goTo(chart.frameAt(event.offsetX));
  };
  canvas.addEventListener("pointerdown", move);
  canvas.addEventListener("pointermove", move);
}

// All episodes of the page in step.
class Player {
  constructor(world, episodes) {
    Object.assign(this, { world, episodes });
    this.last = episodes[0].frames - 1;
    this.playing = false;
    this.shown = { frame: 0, sensor: -1, level: "" };
    byId("main").classList.toggle("single", episodes.length === 1);
    const logged = episodes[0].messages;
    const covered = logged ? "expected share of the tracks in view" : "share of the targets that are seen";
    this.curves = [
      this.chart("coverage", covered, "meanCoverage"),
      this.chart("rotation", "share of the sensors that turn", "meanRotation"),
    ];
    if (episodes[0].transport) {
      this.curves.push(this.chart("transport", "share of the bounties that targets have kept, of the delivered loads", "transport"));
    }
    this.cards = episodes.map((episode, k) => new Card(this, episode, k));
    this.logged = episodes.filter((episode) => episode.messages).map((episode) => new Logged(this, episode));
    this.controls();
    this.resize();
    window.addEventListener("resize", () => this.resize());
    window.matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => this.resize());
  }

  chart(figure, meaning, mean) {
    const canvas = make("canvas", { className: "chart" });
    const about = meaning + (mean === figure ? "" : `; bold: mean so far, thin: mean of ${WINDOW} sub-steps`);
    const title = make("h2", { textContent: figure[0].toUpperCase() + figure.slice(1) });
    byId("curves").append(make("article", { className: "card" }, title, make("p", { className: "note", textContent: about }), canvas));
    const curves = new Curves(canvas, this.episodes, figure, mean);
    if (this.episodes[0].start) curves.ends = [0, this.last].map((frame) => clock(this.timeOf(frame)));
    scrub(canvas, curves, this);
    return curves;
  }

  controls() {
    const { world, episodes } = this;
    const speeds = [...new Set([...SPEEDS, world.speed])].sort((a, b) => a - b);
    fill("speed", speeds.map((speed) => [speed, `${speed} sub-steps/s`]));
    byId("speed").value = world.speed;
    fill("sensor", [[-1, "none"], ...Array.from({ length: episodes[0].sensors }, (_, i) => [i, sensorName(world, i)])]);
    const levels = [...new Set(episodes.flatMap((episode) => episode.levels))];
    fill("level", levels.map((level) => [level, level]));
    byId("level-label").hidden = levels.length < 2;
    this.shown.level = levels[0] ?? "";
    const needs = { trails: ["present"], assignments: ["assigned"], knowledge: ["age", "detections"], goals: ["load"] };
    for (const name of SWITCHES) {
      if (needs[name] && !episodes.some(({ series }) => needs[name].some((one) => series[one]))) continue;
      const box = make("input", { type: "checkbox", checked: name !== "names" || episodes[0].targets <= 26 });
      box.id = name;
      box.addEventListener("change", () => this.set({ [name]: box.checked }));
      byId("switches").append(make("label", {}, box, ` ${name}`));
      this.shown[name] = box.checked;
    }
    byId("time").max = this.last;
    byId("time").addEventListener("input", (event) => this.goTo(event.target.valueAsNumber));
    byId("sensor").addEventListener("change", (event) => this.choose(Number(event.target.value)));
    byId("level").addEventListener("change", (event) => this.set({ level: event.target.value }));
    byId("play").addEventListener("click", () => this.toggle());
    document.addEventListener("keydown", (event) => this.key(event));
  }

  // Keys, unless the focused element uses them.
  key(event) {
    const taken = { SELECT: true, BUTTON: event.key === " ", INPUT: event.target.type === "range" || event.key === " " };
    if (taken[event.target.tagName] || event.ctrlKey || event.altKey || event.metaKey) return;
    const far = event.shiftKey ? 10 : 1;
    const actions = {
      " ": () => this.toggle(),
      ArrowLeft: () => this.goTo(this.shown.frame - far),
      ArrowRight: () => this.goTo(this.shown.frame + far),
      ArrowUp: () => this.faster(1),
      ArrowDown: () => this.faster(-1),
      Home: () => this.goTo(0),
      End: () => this.goTo(this.last),
    };
    if (!actions[event.key]) return;
    event.preventDefault();
    actions[event.key]();
  }

  faster(by) {
    const speed = byId("speed");
    speed.selectedIndex = Math.max(0, Math.min(speed.length - 1, speed.selectedIndex + by));
  }

  choose(sensor) {
    byId("sensor").value = sensor;
    this.set({ sensor });
  }

  // Show another sub-step, paused.
  goTo(frame) {
    this.pause();
    this.set({ frame: Math.max(0, Math.min(this.last, frame)) });
  }

  toggle() {
    if (this.playing) return this.pause();
    if (this.shown.frame >= this.last) this.set({ frame: 0 });
    this.playing = true;
    this.button("❚❚", "Pause");
    let [before, owed] = [performance.now(), 0]; // sub-steps due but not shown yet
    const go = (now) => {
      if (!this.playing) return;
      owed += (Math.max(0, now - before) / 1000) * Number(byId("speed").value);
      before = now;
      if (owed >= 1) this.set({ frame: Math.min(this.last, this.shown.frame + Math.floor(owed)) });
      owed %= 1;
      if (this.shown.frame >= this.last) this.pause();
      else requestAnimationFrame(go);
    };
    requestAnimationFrame(go);
  }

  pause() {
    this.playing = false;
    this.button("▶", "Play");
  }

  button(sign, label) {
    byId("play").textContent = sign;
    byId("play").ariaLabel = label;
  }

  resize() {
    for (const part of [...this.cards, ...this.curves]) part.resize();
    this.set({});
  }

  // Time of a frame of a logged run, Unix seconds.
  timeOf(frame) {
    const [{ start, series }] = this.episodes;
    return start + series.time.at(frame, 0);
  }

  set(changes) {
    Object.assign(this.shown, changes);
    byId("time").value = this.shown.frame;
    const { frame } = this.shown;
    const [{ start, series }] = this.episodes;
    const time = start && new Date(1000 * this.timeOf(frame)).toLocaleString();
    const paused = series.paused?.whole(frame, 0) ? ", paused" : "";
    byId("now").textContent = start ? time + paused : `${frame} / ${this.last}`;
    for (const part of [...this.cards, ...this.curves, ...this.logged]) part.draw(this.shown);
  }
}

function fill(id, options) {
  byId(id).append(...options.map(([value, text]) => make("option", { value, textContent: text })));
}

async function start() {
  const world = await loadWorld();
  const episodes = await Promise.all(world.episodes.map(unpackEpisode));
  const { sensors, targets, frames, empty, messages } = episodes[0];
  const without = empty ? `, ${(100 * empty).toFixed(1)} % of them without ${messages ? "tracks" : "targets"}` : "";
  byId("title").textContent = document.title;
  const numbers = [counted(sensors, "sensor"), counted(targets, "target"), counted(frames - 1, "sub-step")];
  byId("about").textContent = messages
    ? `${numbers[0]}, ${numbers[2]}${without}.`
    : `${numbers.join(", ")}${without}. Click a sensor to see what it attends to.`;
  return new Player(world, episodes);
}

const player = start();
