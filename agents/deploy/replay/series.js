"use strict";

// Values of one quantity over time: a table of frames x width, each value `low + step * whole number`.
class Series {
  constructor(numbers, packed) {
    this.numbers = numbers;
    this.low = packed.low;
    this.step = packed.step;
    this.frames = packed.frames;
    this.width = numbers.length / packed.frames;
  }

  // The whole number of column `index` at a frame. Constant values have one frame.
  whole(frame, index) {
    return this.numbers[(this.frames === 1 ? 0 : frame) * this.width + index];
  }

  at(frame, index) {
    return this.low + this.step * this.whole(frame, index);
  }
}

const NO_TARGET = 65535; // empty place in a list
const NO_COVERAGE = 65535; // no target is present
const NUMBERS = { uint8: Uint8Array, uint16: Uint16Array };

// Base64, gzip, differences from row to row: see packed() in page.py.
async function unpackSeries(packed) {
  const bytes = Uint8Array.from(atob(packed.data), (letter) => letter.charCodeAt(0));
  const stream = new Blob([bytes]).stream().pipeThrough(new DecompressionStream("gzip"));
  const numbers = new NUMBERS[packed.type](await new Response(stream).arrayBuffer());
  const width = numbers.length / packed.frames;
  for (let k = width; k < numbers.length; k++) numbers[k] += numbers[k - width]; // modulo the range of the type
  return new Series(numbers, packed);
}

// An episode of one agent, with its figures.
class Episode {
  constructor(recorded, series) {
    Object.assign(this, recorded, { series });
    this.coverage = this.eachFrame((t) => (series.coverage.whole(t, 0) === NO_COVERAGE ? NaN : series.coverage.at(t, 0)));
    this.empty = this.coverage.subarray(1).filter(isNaN).length / (this.frames - 1);
    this.rotation = this.eachFrame((t) => series.turned.whole(t, 0) / this.sensors);
    this.meanCoverage = meansSoFar(this.coverage);
    this.meanRotation = meansSoFar(this.rotation);
    this.transport = series.transport && this.eachFrame((t) => series.transport.at(t, 0));
  }

  eachFrame(value) {
    return Float64Array.from({ length: this.frames }, (_, t) => value(t));
  }

  // Pairs are tables of the targets of each sensor in turn, or lists of some of them with their numbers.
  pair(name, frame, i, j) {
    const [values, lists] = [this.series[name], this.series[`${name} targets`]];
    if (!lists) return values ? values.at(frame, i * this.targets + j) : 0;
    const length = lists.width / this.sensors;
    for (let k = i * length; k < (i + 1) * length; k++) {
      if (lists.whole(frame, k) === j) return values ? values.at(frame, k) : 1; // a list without values means true
    }
    return 0;
  }

  // Targets in any list of sensor i at any time, by number; all targets without lists.
  targetsOf(names, i) {
    const tables = names.map((name) => this.series[`${name} targets`] ?? this.series[name]).filter(Boolean);
    const lists = names.map((name) => this.series[`${name} targets`]).filter(Boolean);
    if (lists.length < tables.length) return Array.from({ length: this.targets }, (_, j) => j);
    const found = new Set();
    for (const list of lists) {
      const length = list.width / this.sensors;
      for (let t = 0; t < list.frames; t++) {
        for (let k = i * length; k < (i + 1) * length; k++) found.add(list.whole(t, k));
      }
    }
    found.delete(NO_TARGET);
    return [...found].sort((one, other) => one - other);
  }
}

async function unpackEpisode(recorded) {
  const names = Object.keys(recorded.series);
  const series = await Promise.all(names.map((name) => unpackSeries(recorded.series[name])));
  return new Episode(recorded, Object.fromEntries(names.map((name, k) => [name, series[k]])));
}

// Means over the sub-steps up to each one, without frame 0, the start.
function meansSoFar(values) {
  const means = new Float64Array(values.length).fill(NaN);
  let [total, number] = [0, 0];
  for (let t = 1; t < values.length; t++) {
    if (!isNaN(values[t])) [total, number] = [total + values[t], number + 1];
    means[t] = total / number;
  }
  return means;
}

const byId = (id) => document.getElementById(id);

// Make an element with properties and children.
function make(tag, properties = {}, ...children) {
  const element = Object.assign(document.createElement(tag), properties);
  element.append(...children);
  return element;
}

// A figure in words, "-" for none.
function inWords(value, digits) {
  return isNaN(value) ? "-" : value.toFixed(digits);
}

// A number with its noun: 1 sensor, 2 sensors.
function counted(number, noun) {
  return `${number} ${noun}${number === 1 ? "" : "s"}`;
}

// Names of targets: a, b, ..., z, aa, ab, ...
function letter(number) {
  return (number >= 26 ? letter(Math.floor(number / 26) - 1) : "") + String.fromCharCode(97 + (number % 26));
}

// Colours of the page's style, as seen at an element.
function palette(element) {
  const style = getComputedStyle(element);
  return (name) => style.getPropertyValue(`--${name}`).trim();
}

// Give a canvas the pixels of its place on the page; return its drawing context in the page's own units.
function fitted(canvas, width, height) {
  const scale = window.devicePixelRatio || 1;
  const size = [Math.round(width * scale), Math.round(height * scale)];
  if (canvas.width !== size[0] || canvas.height !== size[1]) [canvas.width, canvas.height] = size;
  canvas.style.height = `${height}px`;
  const context = canvas.getContext("2d");
  context.setTransform(scale, 0, 0, scale, 0, 0);
  context.clearRect(0, 0, width, height);
  return context;
}

// Heading above -180 and up to 180 degrees.
function wrapped(heading) {
  return heading - 360 * Math.ceil((heading - 180) / 360);
}

// Time of day of a time in seconds since 1970.
function clock(seconds) {
  return new Date(1000 * seconds).toLocaleTimeString();
}

// State of camera i in a frame of a run, in words.
function stateOf(i, frame, steered) {
  const words = [frame.heading[i] === null ? "does not answer" : `${wrapped(Math.round(frame.heading[i]))}°`];
  const hand = frame.by_hand.indexOf(i);
  const left = frame.left[hand];
  if (hand >= 0) words.push(steered + (left === null ? "" : `, ${left.toFixed(0)} s left`));
  if (frame.rests.includes(i)) words.push("rests");
  words.push(`moves in the last hour: ${frame.moves[i]}`);
  return words.join(", ");
}

// Line of a message with its time.
function messageLine(time, text) {
  return make("li", {}, make("time", { textContent: clock(time) }), make("span", { textContent: text, title: text }));
}
