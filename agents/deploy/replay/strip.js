"use strict";

const LETTERS = 22; // pixels left of a strip
const SHARES = 40; // pixels right of it

// A row for each target over time: its share of a sensor's attention, and when the sensor sees it.
class Strip {
  constructor(canvas, episode) {
    Object.assign(this, { canvas, episode });
  }

  resize() {
    // Inside the padding of the card; hidden, it has no width yet.
    const card = this.canvas.closest(".card");
    this.width = card.clientWidth - 28;
    this.picture = null;
  }

  // The rows of a sensor: all targets, or those in its lists.
  arrange(shown) {
    this.targets = this.episode.targetsOf([`attention ${shown.level}`, "visible"], shown.sensor);
    this.row = Math.max(4, Math.min(16, Math.floor(320 / Math.max(1, this.targets.length))));
    this.height = this.row * this.targets.length + 16;
  }

  get inside() {
    return Math.max(1, this.width - LETTERS - SHARES);
  }

  frameAt(x) {
    const last = this.episode.frames - 1;
    return Math.max(0, Math.min(last, Math.round(((x - LETTERS) / this.inside) * last)));
  }

  draw(shown) {
    const { episode } = this;
    const key = `${shown.sensor} ${shown.level} ${this.inside}`;
    this.colour = palette(this.canvas);
    if (this.key !== key || !this.picture) {
      this.arrange(shown);
      [this.picture, this.key] = [this.paint(shown), key];
    }
    const context = fitted(this.canvas, this.width, this.height);
    const bottom = this.row * this.targets.length;
    context.drawImage(this.picture, LETTERS, 0, this.inside, bottom);
    context.strokeStyle = this.colour("line");
    context.lineWidth = 1;
    context.strokeRect(LETTERS + 0.5, 0.5, this.inside - 1, bottom - 1);
    context.font = `${Math.max(9, Math.min(12, this.row - 2))}px system-ui, sans-serif`;
    context.textBaseline = "middle";
    const every = Math.ceil(11 / this.row); // rows to a label
    for (let k = 0; k < this.targets.length; k += every) {
      const [j, middle] = [this.targets[k], (k + 0.5) * this.row];
      context.fillStyle = this.colour("muted");
      context.textAlign = "right";
      context.fillText(letter(j), LETTERS - 5, middle);
      if (!this.attends(shown) || every > 1) continue;
      context.fillStyle = this.colour("ink");
      context.textAlign = "left";
      const share = episode.pair(`attention ${shown.level}`, shown.frame, shown.sensor, j);
      if (shown.frame > 0) context.fillText(share.toFixed(2), LETTERS + this.inside + 6, middle);
    }
    const now = LETTERS + (this.inside * shown.frame) / Math.max(1, episode.frames - 1);
    context.strokeStyle = this.colour("ink");
    context.lineWidth = 1.5;
    context.beginPath();
    context.moveTo(now, 0);
    context.lineTo(now, bottom + 3);
    context.stroke();
    context.fillStyle = this.colour("muted");
    context.textBaseline = "alphabetic";
    context.font = "11px system-ui, sans-serif";
    context.textAlign = "left";
    context.fillText("0", LETTERS, bottom + 13);
    context.textAlign = "right";
    context.fillText(`sub-step ${episode.frames - 1}`, LETTERS + this.inside, bottom + 13);
  }

  attends(shown) {
    return Boolean(this.episode.series[`attention ${shown.level}`]);
  }

  // The largest share of the sensor's attention, drawn in full colour.
  largest(shown) {
    const name = `attention ${shown.level}`;
    let largest = 0;
    for (const j of this.episode.targetsOf([name], shown.sensor)) {
      for (let t = 1; t < this.episode.frames; t++) {
        largest = Math.max(largest, this.episode.pair(name, t, shown.sensor, j));
      }
    }
    return largest;
  }

  // All rows, with the mean over the sub-steps of each pixel.
  paint(shown) {
    const { episode, row } = this;
    const columns = Math.min(Math.round(this.inside * (window.devicePixelRatio || 1)), episode.frames - 1);
    const canvas = document.createElement("canvas");
    [canvas.width, canvas.height] = [Math.max(1, columns), Math.max(1, row * this.targets.length)];
    const context = canvas.getContext("2d");
    const attends = this.attends(shown);
    const [name, full] = [`attention ${shown.level}`, attends ? this.largest(shown) || 1 : 1];
    const seenHeight = attends ? (row >= 8 ? 3 : 1) : row - 1;
    for (let column = 0; column < columns; column++) {
      const from = 1 + Math.floor((column * (episode.frames - 1)) / columns);
      const to = Math.max(from + 1, 1 + Math.floor(((column + 1) * (episode.frames - 1)) / columns));
      for (const [k, j] of this.targets.entries()) {
        let [share, seen] = [0, 0];
        for (let t = from; t < to; t++) {
          share += episode.pair(name, t, shown.sensor, j);
          seen += episode.pair("visible", t, shown.sensor, j);
        }
        context.globalAlpha = Math.min(1, share / (to - from) / full);
        context.fillStyle = this.colour("attention");
        if (attends) context.fillRect(column, row * k, 1, row - 1 - seenHeight);
        context.globalAlpha = seen / (to - from);
        context.fillStyle = this.colour("seen");
        context.fillRect(column, row * (k + 1) - 1 - seenHeight, 1, seenHeight);
      }
    }
    return canvas;
  }
}
