"use strict";

const EDGE = { left: 34, right: 46, top: 8, bottom: 20 }; // pixels around a chart
const WINDOW = 21; // sub-steps of a moving mean, an odd number

// Chart of a figure of all episodes over time: moving mean, another mean, and current sub-step.
class Curves {
  constructor(canvas, episodes, now, mean, window = WINDOW) {
    Object.assign(this, { canvas, episodes, mean });
    this.moving = episodes.map((episode) => movingMeans(episode[now], window));
    this.frames = episodes[0].frames;
    this.ends = ["0", `sub-step ${this.frames - 1}`]; // of the axis
    const lines = [...this.moving, ...episodes.map((episode) => episode[mean])];
    const highest = Math.max(...lines.map((values) => values.reduce((a, b) => Math.max(a, b || 0), 0)));
    this.top = [0.1, 0.25, 0.5, 1].find((top) => highest <= top) ?? 1;
  }

  resize() {
    [this.width, this.height] = [this.canvas.parentElement.clientWidth - 28, 130];
  }

  frameAt(x) {
    const share = (x - EDGE.left) / (this.width - EDGE.left - EDGE.right);
    return Math.max(0, Math.min(this.frames - 1, Math.round(share * (this.frames - 1))));
  }

  place(frame, value) {
    const [wide, high] = [this.width - EDGE.left - EDGE.right, this.height - EDGE.top - EDGE.bottom];
    return [EDGE.left + (wide * frame) / Math.max(1, this.frames - 1), EDGE.top + high * (1 - value / this.top)];
  }

  draw(shown) {
    const context = (this.context = fitted(this.canvas, this.width, this.height));
    this.colour = palette(this.canvas);
    this.axes();
    context.lineJoin = "round";
    this.episodes.forEach((episode, k) => {
      context.strokeStyle = this.colour(agentColour(k));
      this.line(this.moving[k], 1, this.frames - 1, 1, 0.35);
      this.line(episode[this.mean], shown.frame, this.frames - 1, 2, 0.3);
      this.line(episode[this.mean], 1, shown.frame, 2, 1);
    });
    const [x] = this.place(shown.frame, 0);
    context.strokeStyle = this.colour("ink");
    context.lineWidth = 1;
    context.beginPath();
    context.moveTo(x, EDGE.top);
    context.lineTo(x, this.height - EDGE.bottom);
    context.stroke();
    this.values(shown.frame);
  }

  axes() {
    const { context } = this;
    context.font = "11px system-ui, sans-serif";
    context.lineWidth = 1;
    context.textBaseline = "middle";
    context.textAlign = "right";
    for (const share of [0, 0.5, 1]) {
      const [x, y] = this.place(0, share * this.top);
      context.strokeStyle = this.colour("line");
      context.beginPath();
      context.moveTo(x, y);
      context.lineTo(this.width - EDGE.right, y);
      context.stroke();
      context.fillStyle = this.colour("muted");
      context.fillText(String(+(share * this.top).toFixed(3)), x - 6, y);
    }
    context.textBaseline = "alphabetic";
    context.textAlign = "left";
    context.fillText(this.ends[0], EDGE.left, this.height - 6);
    context.textAlign = "right";
    context.fillText(this.ends[1], this.width - EDGE.right, this.height - 6);
  }

  line(values, from, to, width, alpha) {
    const { context } = this;
    context.globalAlpha = alpha;
    context.lineWidth = width;
    context.beginPath();
    let pen = "moveTo"; // over times without a value, as without any target
    for (let frame = Math.max(1, from); frame <= to; frame++) {
      if (!isNaN(values[frame])) context[pen](...this.place(frame, values[frame]));
      pen = isNaN(values[frame]) ? "moveTo" : "lineTo";
    }
    context.stroke();
    context.globalAlpha = 1;
  }

  // The current means at the right end, without overlaps.
  values(frame) {
    if (!frame) return;
    const { context } = this;
    const rows = this.episodes.map((episode, k) => ({ k, value: episode[this.mean][frame] }));
    rows.sort((a, b) => b.value - a.value);
    let lowest = -Infinity;
    context.textAlign = "left";
    context.textBaseline = "middle";
    context.font = "600 11px system-ui, sans-serif";
    for (const { k, value } of rows) {
      lowest = Math.max(lowest + 13, this.place(frame, value)[1]);
      context.fillStyle = this.colour(agentColour(k));
      context.fillText(value.toFixed(3), this.width - EDGE.right + 6, lowest);
    }
  }
}

function agentColour(k) {
  return `agent-${k % 6}`;
}

// Means over a window of sub-steps around each one.
function movingMeans(values, window) {
  const [last, half] = [values.length - 1, (window - 1) / 2];
  return Float64Array.from(values, (_, t) => {
    const shown = values.subarray(Math.max(1, t - half), Math.min(last, t + half) + 1);
    const numbers = shown.filter((value) => !isNaN(value));
    return numbers.reduce((a, b) => a + b, 0) / numbers.length;
  });
}
