// Puts the page together: notes go into the model, the model into the picture and the tables.

import { duration, element, number } from './format.js';
import { described, listen } from './input.js';
import { Model } from './model.js';
import { Panels } from './panels.js';
import { follow } from './stream.js';
import { theme } from './theme.js';
import { tiles } from './tiles.js';
import { Timeline } from './timeline.js';

const TABLE_PERIOD = 400;

const at = (id) => document.getElementById(id);
const model = new Model();
const timeline = new Timeline(at('canvas'), model);
let colours = theme();
let isDrawn = true;
let tablesAt = 0;
let status = 'connecting';

const page = {
  redraw() {
    if (!isDrawn) return;
    isDrawn = false;
    requestAnimationFrame(draw);
  },
  select(slice, reveals = false) {
    timeline.selected = slice;
    panels.answer = undefined;
    panels.unit = {}; // The engine may say more about it by now.
    if (slice !== undefined && reveals && (slice.end < timeline.from || slice.start > timeline.to || slice.end - slice.start < timeline.span / 200)) zoomTo(slice);
    at('summary').textContent = slice === undefined ? '' : described(model, slice);
    panels.show('selection');
    panels.refill();
    page.redraw();
  },
  async ask(symbol) {
    at('symbol').value = symbol;
    const answer = await fetch(`/why?symbol=${encodeURIComponent(symbol)}`).catch(() => undefined);
    const said = answer === undefined ? 'The program is gone.' : answer.ok ? (await answer.json()).why : await answer.text();
    panels.answer = { symbol, said };
    panels.show('selection');
  },
};
const panels = new Panels(model, timeline, page);

function zoomTo(slice) {
  timeline.isFollowing = false;
  const margin = (slice.end - slice.start) * 0.15 + 50;
  timeline.show(slice.start - margin, slice.end + margin);
}

function draw() {
  isDrawn = true;
  timeline.draw(colours);
  at('follow').setAttribute('aria-pressed', timeline.isFollowing);
  const now = performance.now();
  if (now - tablesAt < TABLE_PERIOD) return;
  tablesAt = now;
  tiles(model);
  panels.fill();
  at('empty').hidden = model.notes > 0;
  const lost = model.lost > 0 ? element('strong', {}, `${number(model.lost)} lost`) : '';
  at('figures').replaceChildren(`${number(model.notes)} notes`, lost);
  at('canvas').setAttribute('aria-label', `Timeline of ${model.lanes.filter(Boolean).length} threads, ${number(model.slices)} slices, ${duration(timeline.end - timeline.begin)}`);
}

/** The tables follow the last change, too, a moment later. */
function changed(state) {
  if (state !== status) {
    status = state;
    document.documentElement.dataset.status = state;
    at('status-text').textContent = { live: 'live', file: 'recorded', ended: 'the program has ended', denied: 'a token is needed', connecting: 'connecting', synthetic: 'synthetic' }[state];
  }
  page.redraw();
}
setInterval(() => {
  document.documentElement.dataset.notes = model.notes;
  if (status === 'live' || tablesAt < performance.now() - TABLE_PERIOD) page.redraw();
}, TABLE_PERIOD);

function act(what) {
  const actions = {
    zoom: () => timeline.selected && zoomTo(timeline.selected),
    in: () => timeline.zoom(0.6),
    out: () => timeline.zoom(1 / 0.6),
    fit: () => {
      timeline.fit();
      timeline.cursor = undefined;
    },
    follow: () => (timeline.isFollowing = !timeline.isFollowing),
    path: () => {
      timeline.showsPath = !timeline.showsPath;
      at('trace-path').setAttribute('aria-pressed', timeline.showsPath);
      if (timeline.showsPath) panels.show('path');
    },
    help: () => at('keys').showModal(),
    ask: () => at('symbol').focus(),
  };
  actions[what]?.();
  page.redraw();
}

for (const [id, what] of [['in', 'in'], ['out', 'out'], ['fit', 'fit'], ['follow', 'follow'], ['trace-path', 'path'], ['help', 'help']]) {
  at(id).addEventListener('click', () => act(what));
}
at('ask').addEventListener('submit', (event) => {
  event.preventDefault();
  const symbol = at('symbol').value.trim();
  if (symbol !== '') page.ask(symbol);
});
document.addEventListener('keydown', (event) => {
  if (event.target.matches('input, select, textarea') || event.ctrlKey || event.metaKey || event.altKey) return;
  const what = { 0: 'fit', f: 'follow', p: 'path', '?': 'help', '/': 'ask' }[event.key];
  if (what === undefined) return;
  event.preventDefault();
  act(what);
});
listen(timeline, at('tip'), page.redraw, page.select, act);
new ResizeObserver(() => {
  timeline.resize();
  timeline.draw(colours);
}).observe(timeline.canvas.parentElement);
matchMedia('(prefers-color-scheme: light)').addEventListener('change', () => {
  colours = theme();
  page.redraw();
});

const synthetic = Number(new URLSearchParams(location.search).get('synthetic'));
if (synthetic > 0) {
  const { measure } = await import('./measure.js');
  await measure(synthetic, model, timeline, () => timeline.draw(colours), changed);
} else {
  follow(model, changed);
}
