"use strict";

const TRAIL = 40; // sub-steps, fewer with many targets
const STROKES = 12000; // of all trails
const FADED = 100; // sub-steps until the mark of a last known place fades to a third
const DELIVERED = 10; // sub-steps in which a delivery shows
const MARGIN = 26; // pixels around the arena, for names of sensors on its border

// Picture of one episode's scene at a frame, on a canvas.
class Scene {
  constructor(canvas, world, episode) {
    Object.assign(this, { canvas, world, episode });
    this.obstructed = world.walls.length > 0 || episode.discs.length > 0;
    this.resize();
  }

  // Fit the canvas into its card and into the window.
  resize() {
    const { halfWidth, halfHeight } = this.world;
    const room = this.canvas.parentElement.clientWidth - 28;
    const high = Math.max(300, window.innerHeight * (this.world.episodes.length > 1 ? 0.48 : 0.66));
    this.scale = Math.max(0.001, Math.min((room - 2 * MARGIN) / halfWidth, (high - 2 * MARGIN) / halfHeight) / 2);
    this.width = 2 * halfWidth * this.scale + 2 * MARGIN;
    this.height = 2 * halfHeight * this.scale + 2 * MARGIN;
    this.canvas.style.width = `${this.width}px`;
    const crowd = Math.max(this.episode.sensors, this.episode.targets);
    // Half the size of a sensor or target, smaller in crowded scenes.
    this.unit = Math.max(2.5, 0.0125 * Math.max(this.width, this.height) * Math.min(1, Math.sqrt(16 / crowd)));
  }

  // Place on the canvas of a point of the arena, whose y axis points up.
  place(x, y) {
    return [this.width / 2 + x * this.scale, this.height / 2 - y * this.scale];
  }

  placeOf(kind, frame, index) {
    return this.place(this.episode.series[`${kind} x`].at(frame, index), this.episode.series[`${kind} y`].at(frame, index));
  }

  // The sensor at a place of the canvas, or -1.
  sensorAt(x, y, frame) {
    let [best, nearest] = [-1, Math.max(22, 2 * this.unit)];
    for (let i = 0; i < this.episode.sensors; i++) {
      const [atX, atY] = this.placeOf("sensor", frame, i);
      const distance = Math.hypot(atX - x, atY - y);
      if (distance < nearest) [best, nearest] = [i, distance];
    }
    return best;
  }

  // `shown`: frame, sensor (-1: none), level of attention, and the switches.
  draw(shown) {
    const context = (this.context = fitted(this.canvas, this.width, this.height));
    this.colour = palette(this.canvas);
    this.shown = shown;
    context.lineJoin = context.lineCap = "round";
    this.ground();
    if (shown.views) this.each("sensors", (i) => this.view(i));
    this.obstacles();
    if (shown.trails) this.each("targets", (j) => this.trail(j));
    if (this.episode.series.load) this.transport();
    if (shown.assignments && this.episode.series.assigned) this.assignments();
    if (shown.knowledge && this.episode.series["belief x"]) this.beliefs();
    if (shown.sensor >= 0) this.attention();
    this.each("sensors", (i) => this.sensor(i));
    if (shown.knowledge && this.episode.series.age) this.each("targets", (j) => this.known(j));
    this.each("targets", (j) => this.target(j));
    if (shown.knowledge) this.tracked();
  }

  each(kind, draw) {
    for (let k = 0; k < this.episode[kind]; k++) draw(k);
  }

  ground() {
    const { context, world } = this;
    const inside = [MARGIN, MARGIN, this.width - 2 * MARGIN, this.height - 2 * MARGIN];
    context.fillStyle = this.colour("arena");
    context.fillRect(0, 0, this.width, this.height);
    if (world.picture) context.drawImage(world.picture, ...inside);
    context.lineWidth = 1.5;
    const coloured = (zones, colour) => zones.map((zone) => [zone, colour]);
    for (const [zone, colour] of [...coloured(world.zones, "zone"), ...coloured(world.private, "private")]) {
      context.fillStyle = context.strokeStyle = this.colour(colour);
      this.path(zone.map(([x, y]) => this.place(x, y)), true);
      context.globalAlpha = 0.1;
      context.fill();
      context.globalAlpha = 0.7;
      context.stroke();
      context.globalAlpha = 1;
    }
    context.strokeStyle = this.colour("frame");
    context.lineWidth = 1;
    context.strokeRect(...inside);
    context.strokeStyle = this.colour("rail");
    context.lineWidth = 4;
    for (const rail of world.rails) this.path(rail.map(([x, y]) => this.place(x, y)));
  }

  // Warehouses with the cargo that they await, bold after a delivery; a line from each load to its warehouse.
  transport() {
    const { context, shown, world } = this;
    const { awaiting, load, goal } = this.episode.series;
    const half = world.warehouseSize * this.scale;
    context.strokeStyle = this.colour("cargo");
    world.warehouses.forEach((centre, v) => {
      const [x, y] = this.place(...centre);
      const waiting = awaiting.whole(shown.frame, v);
      const delivered = awaiting.whole(Math.max(0, shown.frame - DELIVERED), v) > waiting;
      context.lineWidth = delivered ? 5 : 1.5;
      context.strokeRect(x - half, y - half, 2 * half, 2 * half);
      this.name(String(waiting), x, y + 4, "cargo");
      context.strokeStyle = this.colour("cargo");
    });
    if (!shown.goals) return;
    context.lineWidth = 1;
    context.globalAlpha = 0.5;
    this.each("targets", (j) => {
      if (!load.whole(shown.frame, j)) return;
      this.path([this.placeOf("target", shown.frame, j), this.place(...world.warehouses[goal.whole(shown.frame, j)])]);
    });
    context.globalAlpha = 1;
  }

  path(points, closed = false) {
    this.context.beginPath();
    for (const point of points) this.context.lineTo(...point);
    this.context[closed ? "closePath" : "stroke"]();
  }

  disc([x, y], radius) {
    this.context.beginPath();
    this.context.arc(x, y, radius, 0, 2 * Math.PI);
  }

  // The field of view of a sensor: a sector, without the parts behind obstacles.
  view(i) {
    const { context, episode, shown } = this;
    const { series } = episode;
    if (!series.working.whole(shown.frame, i)) return;
    const [x, y] = [series["sensor x"].at(shown.frame, i), series["sensor y"].at(shown.frame, i)];
    const [reach, view] = [series.reach.at(shown.frame, i), series.view.at(shown.frame, i)];
    const arc = (reach * this.scale * view * Math.PI) / 180; // pixels
    const rays = this.obstructed ? Math.max(13, Math.min(121, Math.ceil(arc / 2))) : 1 + Math.ceil(view / 4);
    const walls = this.obstructed ? this.wallsWithin(x, y, reach) : [];
    const near = series.near?.at(shown.frame, i) ?? 0; // of a tilted camera
    const [rim, inner] = [[], []];
    for (let k = 0; k < rays; k++) {
      const angle = ((series.heading.at(shown.frame, i) + view * (k / (rays - 1) - 0.5)) * Math.PI) / 180;
      const [dx, dy] = [Math.cos(angle), Math.sin(angle)];
      const free = this.obstructed ? Math.min(reach, this.free(x, y, dx, dy, walls)) : reach;
      rim.push(this.place(x + free * dx, y + free * dy));
      if (near) inner.unshift(this.place(x + Math.min(near, free) * dx, y + Math.min(near, free) * dy));
    }
    const strength = shown.sensor < 0 ? 1 : shown.sensor === i ? 1.5 : 0.45;
    context.save();
    context.beginPath();
    context.rect(MARGIN, MARGIN, this.width - 2 * MARGIN, this.height - 2 * MARGIN);
    context.clip();
    this.path(near ? [...inner, ...rim] : view >= 360 ? rim : [this.place(x, y), ...rim], true);
    context.fillStyle = `rgba(${this.colour("view")}, ${0.16 * strength})`;
    context.fill();
    context.strokeStyle = `rgba(${this.colour("view")}, ${Math.min(1, 0.55 * strength)})`;
    context.lineWidth = 1;
    context.stroke();
    context.restore();
  }

  // The walls whose bounding boxes are not beyond a square around (x, y).
  wallsWithin(x, y, reach) {
    const meets = (one, other, at) => Math.min(one, other) <= at + reach && Math.max(one, other) >= at - reach;
    return this.world.walls.filter(([x1, y1, x2, y2]) => meets(x1, x2, x) && meets(y1, y2, y));
  }

  // Length of the ray from (x, y) along the unit vector (dx, dy) to a disc or one of the walls.
  free(x, y, dx, dy, walls) {
    let free = Infinity;
    for (const [discX, discY, radius] of this.episode.discs) {
      const along = (discX - x) * dx + (discY - y) * dy;
      const depth = radius ** 2 - ((discX - x) ** 2 + (discY - y) ** 2 - along ** 2);
      if (depth > 0 && along - Math.sqrt(depth) > 0) free = Math.min(free, along - Math.sqrt(depth));
    }
    for (const [x1, y1, x2, y2] of walls) {
      const cross = dx * (y2 - y1) - dy * (x2 - x1);
      const meets = ((x1 - x) * (y2 - y1) - (y1 - y) * (x2 - x1)) / cross;
      const part = ((x1 - x) * dy - (y1 - y) * dx) / cross;
      if (meets > 0 && part >= 0 && part <= 1) free = Math.min(free, meets); // NaN if parallel
    }
    return free;
  }

  obstacles() {
    const { context } = this;
    context.fillStyle = context.strokeStyle = this.colour("obstacle");
    for (const [x, y, radius] of this.episode.discs) {
      this.disc(this.place(x, y), radius * this.scale);
      context.fill();
    }
    context.lineWidth = 3;
    for (const [x1, y1, x2, y2] of this.world.walls) this.path([this.place(x1, y1), this.place(x2, y2)]);
  }

  // The last places of a target; the line breaks while the target is absent.
  trail(j) {
    const { context, shown } = this;
    const present = this.episode.series.present;
    context.strokeStyle = this.colour("muted");
    context.lineWidth = Math.max(1, 0.28 * this.unit);
    context.lineCap = "butt"; // round ends would overlap, as dots
    const length = Math.max(5, Math.min(TRAIL, Math.floor(STROKES / this.episode.targets)));
    for (let frame = Math.max(1, shown.frame - length + 1); frame <= shown.frame; frame++) {
      if (!present.whole(frame, j) || !present.whole(frame - 1, j)) continue;
      context.globalAlpha = 0.55 * (1 - (shown.frame - frame) / length);
      this.path([this.placeOf("target", frame - 1, j), this.placeOf("target", frame, j)]);
    }
    context.globalAlpha = 1;
    context.lineCap = "round";
  }

  assignments() {
    const { context, shown, episode } = this;
    context.strokeStyle = this.colour("assigned");
    context.lineWidth = 1.2;
    this.each("sensors", (i) => {
      context.globalAlpha = shown.sensor < 0 || shown.sensor === i ? 0.6 : 0.15;
      this.each("targets", (j) => {
        if (!episode.pair("assigned", shown.frame, i, j) || !episode.series.present.whole(shown.frame, j)) return;
        this.path([this.placeOf("sensor", shown.frame, i), this.placeOf("target", shown.frame, j)]);
      });
    });
    context.globalAlpha = 1;
  }

  // The attention of the chosen sensor: the wider a line, the larger the share of its target.
  attention() {
    const { context, shown, episode } = this;
    const name = `attention ${shown.level}`;
    context.strokeStyle = this.colour("attention");
    this.each("targets", (j) => {
      const share = episode.pair(name, shown.frame, shown.sensor, j);
      const kind = this.attendedAs(j);
      if (share < 0.01 || !kind) return;
      context.globalAlpha = 0.3 + 0.6 * share;
      context.lineWidth = 0.5 + 9 * share;
      this.path([this.placeOf("sensor", shown.frame, shown.sensor), this.placeOf(kind, shown.frame, j)]);
    });
    context.globalAlpha = 1;
  }

  // Kind of the place of a target to which attention is drawn; "": it has none.
  attendedAs(j) {
    const age = this.ageOf(j);
    if (age > 0) return "known";
    return age === 0 && this.episode.series.present.whole(this.shown.frame, j) ? "target" : "";
  }

  // Sub-steps since any sensor saw a target; 0: seen now, or full knowledge; -1: never.
  ageOf(j) {
    const age = this.episode.series.age?.whole(this.shown.frame, j) ?? 0;
    return age === 65535 ? -1 : age;
  }

  sensor(i) {
    const { context, shown, unit } = this;
    const [x, y] = this.placeOf("sensor", shown.frame, i);
    const working = this.episode.series.working.whole(shown.frame, i);
    const limits = this.world.panLimits[i];
    context.fillStyle = this.colour(working ? "sensor" : "failed");
    if (limits) {
      context.strokeStyle = this.colour("sensor");
      context.lineWidth = 1;
      context.beginPath();
      context.arc(x, y, 2.2 * unit, (-limits[1] * Math.PI) / 180, (-limits[0] * Math.PI) / 180);
      context.stroke();
    }
    if (working) {
      context.fillRect(x - unit, y - unit, 2 * unit, 2 * unit);
    } else {
      context.strokeStyle = context.fillStyle;
      context.lineWidth = 2;
      context.strokeRect(x - unit + 1, y - unit + 1, 2 * unit - 2, 2 * unit - 2);
    }
    if (this.episode.series["by hand"]?.whole(shown.frame, i)) {
      context.strokeStyle = this.colour("hand");
      context.lineWidth = 2.5;
      this.disc([x, y], 1.9 * unit);
      context.stroke();
    }
    if (shown.sensor === i) {
      context.strokeStyle = this.colour("attention");
      context.lineWidth = 2.5;
      context.strokeRect(x - unit - 4, y - unit - 4, 2 * unit + 8, 2 * unit + 8);
    }
    if (shown.names) this.name(sensorName(this.world, i), x, y - unit - (shown.sensor === i ? 8 : 4), "sensor");
  }

  name(text, x, y, colour) {
    const { context } = this;
    context.font = `600 ${Math.max(10, Math.min(13, 1.9 * this.unit))}px system-ui, sans-serif`;
    context.textAlign = "center";
    const half = context.measureText(text).width / 2;
    x = Math.max(half + 2, Math.min(this.width - half - 2, x)); // inside the picture
    context.lineWidth = 3;
    context.strokeStyle = this.colour("arena");
    context.strokeText(text, x, y);
    context.fillStyle = this.colour(colour);
    context.fillText(text, x, y);
  }

  // The last known place of an unseen target, faded by its age.
  known(j) {
    const age = this.ageOf(j);
    if (age <= 0) return;
    const place = this.placeOf("known", this.shown.frame, j);
    this.context.globalAlpha = 1 / (1 + (2 * age) / FADED);
    this.context.fillStyle = this.colour("known");
    this.disc(place, this.unit);
    this.context.fill();
    if (this.shown.names) this.name(letter(j), place[0] + this.unit + 6, place[1] + 4, "known");
    this.context.globalAlpha = 1;
  }

  // Points that represent the belief about an unseen target.
  beliefs() {
    const { context, shown, episode } = this;
    const [atX, atY] = [episode.series["belief x"], episode.series["belief y"]];
    context.fillStyle = this.colour("known");
    context.globalAlpha = 0.4;
    for (let k = 0; k < atX.width; k++) {
      if (atX.whole(shown.frame, k) === 255) continue;
      this.disc(this.place(atX.at(shown.frame, k), atY.at(shown.frame, k)), Math.max(1.2, 0.26 * this.unit));
      context.fill();
    }
    context.globalAlpha = 1;
  }

  // Detections as crosses, and tracks as ellipses of two standard deviations, faint if they hardly exist.
  tracked() {
    const { context, shown, unit, episode } = this;
    const number = (kind) => episode.series[kind]?.whole(shown.frame, 0) ?? 0;
    const arm = Math.max(3, 0.7 * unit);
    context.lineWidth = 1.5;
    context.strokeStyle = this.colour("detection");
    for (let k = 0; k < number("detections"); k++) {
      const [x, y] = this.placeOf("detection", shown.frame, k);
      this.path([[x - arm, y], [x + arm, y]]);
      this.path([[x, y - arm], [x, y + arm]]);
    }
    context.strokeStyle = this.colour("track");
    context.lineWidth = 2;
    for (let k = 0; k < number("tracks"); k++) {
      const value = (name) => episode.series[`track ${name}`].at(shown.frame, k);
      const [mean, half] = [(value("xx") + value("yy")) / 2, (value("xx") - value("yy")) / 2];
      const root = Math.hypot(half, value("xy")); // the variances along the axes are mean + root and mean - root
      const radius = (variance) => Math.max(arm, 2 * Math.sqrt(Math.max(0, variance)) * this.scale);
      context.globalAlpha = 0.2 + 0.8 * (episode.series["track existence"]?.at(shown.frame, k) ?? 1);
      context.beginPath();
      const turn = -Math.atan2(value("xy"), half) / 2; // the y axis of the canvas points down
      context.ellipse(...this.placeOf("track", shown.frame, k), radius(mean + root), radius(mean - root), turn, 0, 2 * Math.PI);
      context.stroke();
    }
    context.globalAlpha = 1;
  }

  target(j) {
    const { context, shown, unit, episode } = this;
    if (!episode.series.present.whole(shown.frame, j)) return;
    const place = this.placeOf("target", shown.frame, j);
    const seen = episode.series.covered.whole(shown.frame, j);
    this.disc(place, seen ? unit : 0.8 * unit);
    context.fillStyle = this.colour(seen ? "seen" : "arena");
    context.fill();
    if (!seen) {
      context.strokeStyle = this.colour("unseen");
      context.lineWidth = 0.42 * unit;
      context.stroke();
    }
    const load = episode.series.load?.whole(shown.frame, j) ?? 0;
    const side = 0.75 * Math.sqrt(load) * unit;
    context.fillStyle = this.colour("cargo");
    context.fillRect(place[0] - side / 2, place[1] - side / 2, side, side);
    if (shown.names) this.name(letter(j), place[0] + unit + 6, place[1] + 4, seen ? "seen" : "unseen");
  }
}

// The data of the page, with its picture.
async function loadWorld() {
  const world = JSON.parse(byId("data").textContent);
  if (world.background) {
    world.picture = new Image();
    world.picture.src = world.background;
    await world.picture.decode();
  }
  return world;
}

function sensorName(world, i) {
  return world.names[i] ?? String(i + 1);
}

// Legend of the marks in a scene.
function legend(world, episode) {
  const fails = episode.series.working.numbers.includes(0);
  const marks = [
    ["square", "sensor", "sensor", true],
    ["square ring", "failed", "sensor that does not answer", episode.live || episode.messages || fails],
    ["", "seen", "target, covered", episode.targets],
    ["ring", "unseen", "target, not covered", episode.targets],
    ["", "known", "last known place", episode.series.age],
    ["small", "known", "belief about an unseen target", episode.series["belief x"]],
    ["stroke", "detection", "detection", episode.series.detections],
    ["ring", "track", "track, two standard deviations", episode.series.tracks],
    ["stroke", "assigned", "assigned", episode.series.assigned],
    ["stroke", "attention", "attention of the chosen sensor", episode.levels.length],
    ["", "obstacle", "obstacle", episode.discs.length || world.walls.length],
    ["stroke", "rail", "rail", world.rails.length],
    ["stroke", "zone", "zone", world.zones.length],
    ["stroke", "private", "private zone", world.private.length],
    ["ring", "hand", "steered by hand", episode.series["by hand"]],
    ["square", "cargo", "cargo, larger if it is heavier", episode.series.load],
    ["stroke", "cargo", "warehouse with the cargo that it awaits, bold after a delivery", episode.series.load],
  ];
  const items = marks.filter((mark) => mark[3]).map(([shape, colour, text]) => {
    const mark = make("i", { className: shape });
    const filled = !/ring|stroke/.test(shape);
    mark.style[filled ? "background" : "borderColor"] = `var(--${colour})`;
    return make("li", {}, mark, text);
  });
  return make("ul", { className: "legend" }, ...items);
}
