// The picture: an overview, an axis, lanes of threads, and counts below them, over one axis of time.

import { after } from './columns.js';
import { duration, moment, bytes, short } from './format.js';
import { drawChart } from './chart.js';

export const GUTTER = 148;
const OVERVIEW = 34;
const AXIS = 26;
const ROW = 17;
const LANE_GAP = 9;
const CHART = 58;
const SHADES = 5;

/** Rectangles of one colour and shade, drawn together. Those that touch become one. */
class Rectangles {
  constructor() {
    this.numbers = new Float32Array(1024);
    this.length = 0;
  }

  add(x, y, width, height) {
    const { numbers, length } = this;
    if (length >= 4 && numbers[length - 3] === y && numbers[length - 4] + numbers[length - 2] >= x - 0.01) {
      numbers[length - 2] = x + width - numbers[length - 4];
      return;
    }
    if (length === numbers.length) {
      this.numbers = new Float32Array(length * 2);
      this.numbers.set(numbers);
    }
    this.numbers.set([x, y, width, height], length);
    this.length += 4;
  }
}

export class Timeline {
  constructor(canvas, model) {
    this.canvas = canvas;
    this.model = model;
    this.context = canvas.getContext('2d', { alpha: false });
    this.from = 0;
    this.to = 1e6;
    this.scroll = 0;
    this.isFollowing = true;
    this.selected = undefined;
    this.path = [];
    this.showsPath = true;
    this.cursor = undefined;
    this.batches = [];
  }

  resize() {
    const ratio = globalThis.devicePixelRatio || 1;
    const { clientWidth, clientHeight } = this.canvas.parentElement;
    this.width = clientWidth;
    this.height = clientHeight;
    this.canvas.width = Math.round(clientWidth * ratio);
    this.canvas.height = Math.round(clientHeight * ratio);
    this.context.setTransform(ratio, 0, 0, ratio, 0, 0);
  }

  get span() {
    return this.to - this.from;
  }
  get plot() {
    return Math.max(50, this.width - GUTTER);
  }
  get lanesTop() {
    return OVERVIEW + AXIS;
  }
  get lanesBottom() {
    return this.height - 2 * CHART;
  }
  x(time) {
    return GUTTER + ((time - this.from) / this.span) * this.plot;
  }
  time(x) {
    return this.from + ((x - GUTTER) / this.plot) * this.span;
  }
  get begin() {
    return Number.isFinite(this.model.first) ? this.model.first : 0;
  }
  get end() {
    return Math.max(this.model.last, this.begin + 1000);
  }

  /** Shows a stretch, no shorter than a few nanoseconds and not far beyond what there is. */
  show(from, to) {
    const whole = this.end - this.begin;
    const span = Math.min(Math.max(to - from, 100), whole * 1.2);
    const middle = Math.min(Math.max((from + to) / 2, this.begin), this.end);
    this.from = middle - span / 2;
    this.to = middle + span / 2;
  }

  fit() {
    const margin = (this.end - this.begin) * 0.02;
    this.from = this.begin - margin;
    this.to = this.end + margin;
  }

  zoom(factor, at = this.from + this.span / 2) {
    this.isFollowing = false;
    this.show(at - (at - this.from) * factor, at + (this.to - at) * factor);
  }

  pan(share) {
    this.isFollowing = false;
    this.show(this.from + share * this.span, this.to + share * this.span);
  }

  /** Where each lane lies: `{ lane, top, height }`, in the order of threads. */
  layout() {
    const lanes = [];
    let top = this.lanesTop + LANE_GAP - this.scroll;
    for (const lane of this.model.lanes) {
      if (lane === undefined) continue;
      const height = lane.depths * ROW;
      lanes.push({ lane, top, height });
      top += height + LANE_GAP;
    }
    this.contentHeight = top + this.scroll - this.lanesTop;
    return lanes;
  }

  /** The thread, depth and time below a point, if a lane is there. */
  hit(x, y) {
    if (x < GUTTER || y < this.lanesTop || y > this.lanesBottom) return undefined;
    const place = this.layout().find(({ top, height }) => y >= top && y < top + height);
    return place && { thread: place.lane.thread, depth: Math.floor((y - place.top) / ROW), time: this.time(x) };
  }

  draw(colours) {
    const { context } = this;
    this.colours = colours;
    if (this.isFollowing) this.fit();
    context.fillStyle = colours.ground;
    context.fillRect(0, 0, this.width, this.height);
    const lanes = this.layout();
    this.drawGrid();
    context.save();
    context.beginPath();
    context.rect(0, this.lanesTop, this.width, this.lanesBottom - this.lanesTop);
    context.clip();
    this.drawLanes(lanes);
    if (this.showsPath) this.drawPath(lanes);
    this.drawSelection(lanes);
    this.drawLabels(lanes);
    context.restore();
    const { model } = this;
    drawChart(this, this.lanesBottom, CHART, model.queued, colours.priorities, 'queued', (sum) => sum.toFixed(0));
    drawChart(this, this.lanesBottom + CHART, CHART, model.resident, [colours.accent], 'resident', bytes);
    this.drawOverview();
    this.drawCursor();
  }

  drawGrid() {
    const { context, colours } = this;
    const wanted = (this.span / this.plot) * 110;
    const power = 10 ** Math.floor(Math.log10(wanted));
    const step = [1, 2, 5, 10].map((each) => each * power).find((each) => each >= wanted) ?? wanted;
    context.font = `11px ${colours.font}`;
    context.textBaseline = 'middle';
    context.textAlign = 'left';
    context.lineWidth = 1;
    for (let time = Math.ceil(Math.max(this.from, 0) / step) * step; time <= this.to; time += step) {
      const x = Math.round(this.x(time)) + 0.5;
      if (x < GUTTER) continue;
      context.fillStyle = colours.line;
      context.fillRect(x - 0.5, OVERVIEW + 6, 1, this.height - OVERVIEW - 6);
      context.fillStyle = colours.muted;
      context.fillText(moment(time, step), x + 5, OVERVIEW + AXIS / 2 + 2);
    }
  }

  batch(category, shade) {
    return (this.batches[category * (SHADES + 1) + shade] ??= new Rectangles());
  }

  drawLanes(lanes) {
    const { context, colours } = this;
    const texts = [];
    for (const { lane, top, height } of lanes) {
      if (top > this.lanesBottom || top + height < this.lanesTop) continue;
      for (let depth = 0; depth < lane.depths; depth++) {
        const y = top + depth * ROW;
        const track = lane.tracks[depth];
        if (track !== undefined) this.gather(track, y, texts);
        const open = lane.open[depth];
        if (open !== undefined && open.start < this.to) {
          const x = Math.max(this.x(open.start), GUTTER);
          const width = Math.min(this.x(this.model.now), this.width) - x;
          if (width > 0) this.batch(open.category, SHADES).add(x, y, width, ROW - 1);
          if (width > 40) texts.push([open.name, open.category, x, y, width]);
        }
      }
    }
    this.batches.forEach((batch, index) => {
      if (batch === undefined) return;
      const { numbers, length } = batch;
      context.fillStyle = colours.categories[Math.floor(index / (SHADES + 1))];
      context.globalAlpha = Math.max(0.18, (index % (SHADES + 1)) / SHADES);
      for (let at = 0; at < length; at += 4) context.fillRect(numbers[at], numbers[at + 1], numbers[at + 2], numbers[at + 3]);
      batch.length = 0;
    });
    context.globalAlpha = 1;
    this.drawTexts(texts);
  }

  /** Slices wider than a pixel are drawn as they are. Of the others, a pixel shows how much of its time is in slices. */
  gather(track, y, texts) {
    const { start, end, busy, length } = track;
    const scale = this.plot / this.span;
    const pixel = 1 / scale;
    for (let at = after(end, length, this.from); at < length && start[at] < this.to; ) {
      const x = Math.max(GUTTER, GUTTER + (start[at] - this.from) * scale);
      const right = Math.min(this.width, GUTTER + (end[at] - this.from) * scale);
      const width = right - x;
      if (width >= 1) {
        const gap = width > 3 ? 1 : 0;
        this.batch(track.category[at], SHADES).add(x, y, width - gap, ROW - 1);
        if (width > 40) texts.push([track.name[at], track.category[at], x, y, width]);
        at += 1;
        continue;
      }
      const left = Math.floor(x);
      const until = this.from + (left + 1 - GUTTER) * pixel;
      const next = Math.max(at + 1, after(end, length, until, at));
      const time = busy[next - 1] - busy[at] + (end[at] - start[at]);
      const shade = Math.min(SHADES, Math.max(1, Math.ceil((time / pixel) * SHADES)));
      this.batch(track.category[at], shade).add(left, y, 1, ROW - 1);
      at = next;
    }
  }

  drawTexts(texts) {
    const { context, colours, model } = this;
    context.font = `11px ${colours.font}`;
    context.textBaseline = 'middle';
    const letter = context.measureText('abcdefghij').width / 10;
    for (const [name, category, x, y, width] of texts) {
      const letters = Math.floor((width - 10) / letter);
      if (letters < 3) continue;
      context.fillStyle = colours.inks[category];
      context.fillText(short(model.name(name), letters), x + 5, y + ROW / 2);
    }
  }

  drawLabels(lanes) {
    const { context, colours } = this;
    context.fillStyle = colours.ground;
    context.fillRect(0, this.lanesTop, GUTTER - 1, this.lanesBottom - this.lanesTop);
    context.fillStyle = colours.line;
    context.fillRect(GUTTER - 1, this.lanesTop, 1, this.lanesBottom - this.lanesTop);
    context.font = `12px ${colours.font}`;
    context.textBaseline = 'middle';
    for (const { lane, top } of lanes) {
      const isBusy = lane.open.length > 0;
      context.fillStyle = isBusy ? colours.gold : colours.line;
      context.beginPath();
      context.arc(16, top + ROW / 2, 3.5, 0, 7);
      context.fill();
      context.fillStyle = colours.text;
      context.fillText(short(lane.name, 18), 28, top + ROW / 2);
    }
  }

  /** The steps of the path as gold lines above the lanes of their threads, joined where it moves to another. */
  drawPath(lanes) {
    const { context, colours } = this;
    const tops = new Map(lanes.map(({ lane, top }) => [lane.thread, top]));
    let last;
    context.strokeStyle = colours.gold;
    context.fillStyle = colours.gold;
    for (const step of this.path) {
      const from = this.x(step.from);
      const to = this.x(step.to);
      const y = tops.get(step.thread) ?? last?.y;
      if (y === undefined || to < GUTTER || from > this.width) {
        last = y === undefined ? last : { x: to, y };
        continue;
      }
      if (last !== undefined && last.y !== y) {
        context.lineWidth = 1.5;
        context.beginPath();
        context.moveTo(last.x, last.y - 3);
        context.bezierCurveTo(last.x + 12, last.y - 3, from - 12, y - 3, from, y - 3);
        context.stroke();
      }
      context.globalAlpha = step.kind === 'work' ? 1 : 0.5;
      context.fillRect(from, y - 4.5, Math.max(1, to - from), step.kind === 'work' ? 3 : 1.5);
      context.globalAlpha = 1;
      last = { x: to, y };
    }
  }

  drawSelection(lanes) {
    const { selected, context, colours } = this;
    const place = selected && lanes.find(({ lane }) => lane.thread === selected.thread);
    if (place === undefined) return;
    const y = place.top + selected.depth * ROW;
    const x = Math.max(this.x(selected.start), GUTTER);
    const right = Math.min(this.x(selected.end), this.width);
    context.strokeStyle = colours.text;
    context.lineWidth = 2;
    context.strokeRect(x - 1, y - 1, Math.max(3, right - x + 1), ROW + 1);
  }

  drawCursor() {
    if (this.cursor === undefined) return;
    const x = Math.round(this.x(this.cursor));
    if (x < GUTTER || x > this.width) return;
    const { context, colours } = this;
    context.fillStyle = colours.accent;
    context.fillRect(x, OVERVIEW + 4, 1, this.height - OVERVIEW);
    context.font = `600 11px ${colours.font}`;
    const text = duration(this.cursor - this.begin);
    const width = context.measureText(text).width + 10;
    const left = Math.min(x, this.width - width);
    context.fillRect(left, OVERVIEW + 4, width, 17);
    context.fillStyle = colours.ground;
    context.fillText(text, left + 5, OVERVIEW + 13);
  }

  /** How busy the threads are over all the time that there is, and which part of it is shown. */
  drawOverview() {
    const { context, colours, model } = this;
    const scale = (this.end - this.begin) / this.plot;
    const tracks = model.lanes.map((lane) => lane?.tracks[0]).filter((track) => track !== undefined);
    const step = 2;
    context.fillStyle = colours.panel;
    context.fillRect(0, 0, this.width, OVERVIEW);
    context.fillStyle = colours.accent;
    context.globalAlpha = 0.65;
    const [starts, sums] = [tracks.map(() => 0), tracks.map(() => 0)];
    for (let x = 0; x < this.plot; x += step) {
      const until = this.begin + (x + step) * scale;
      let busy = 0;
      tracks.forEach((track, index) => {
        const next = after(track.start, track.length, until, starts[index]);
        starts[index] = next;
        // The last one may go on.
        const sum = next > 0 ? track.busy[next - 1] - Math.max(0, track.end[next - 1] - until) : 0;
        busy += sum - sums[index];
        sums[index] = sum;
      });
      const height = Math.min(1, busy / (step * scale * Math.max(1, tracks.length))) * (OVERVIEW - 8);
      if (height > 0) context.fillRect(GUTTER + x, OVERVIEW - 2 - height, step, height);
    }
    context.globalAlpha = 1;
    const at = (time) => Math.min(this.width, Math.max(GUTTER, GUTTER + (time - this.begin) / scale));
    const [from, to] = [at(this.from), at(this.to)];
    context.globalAlpha = 0.6;
    context.fillStyle = colours.ground;
    context.fillRect(GUTTER, 0, from - GUTTER, OVERVIEW);
    context.fillRect(to, 0, this.width - to, OVERVIEW);
    context.globalAlpha = 1;
    context.strokeStyle = colours.gold;
    context.lineWidth = 1;
    context.strokeRect(from + 0.5, 0.5, Math.max(2, to - from - 1), OVERVIEW - 1);
    context.fillStyle = colours.muted;
    context.font = `12px ${colours.font}`;
    context.textBaseline = 'middle';
    context.fillText(duration(this.end - this.begin), 16, OVERVIEW / 2);
  }
}
