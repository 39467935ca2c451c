// Mouse, wheel and keys on the picture.

import { duration } from './format.js';
import { CATEGORIES, sliceOf } from './model.js';
import { GUTTER } from './timeline.js';

const DRAG_PIXELS = 4;

/** Connects the canvas with the timeline. `select` takes a slice, `act` a key that means something to the page. */
export function listen(timeline, tip, redraw, select, act) {
  const { canvas, model } = timeline;
  let drag;

  canvas.addEventListener('wheel', (event) => {
    event.preventDefault();
    if (event.shiftKey || Math.abs(event.deltaX) > Math.abs(event.deltaY)) {
      timeline.pan(((event.deltaX || event.deltaY) / timeline.plot) * 0.8);
    } else {
      timeline.zoom(1.0018 ** event.deltaY, timeline.time(Math.max(GUTTER, event.offsetX)));
    }
    redraw();
  }, { passive: false });

  canvas.addEventListener('pointerdown', (event) => {
    canvas.setPointerCapture(event.pointerId);
    drag = { x: event.offsetX, y: event.offsetY, from: timeline.from, to: timeline.to, scroll: timeline.scroll, isMoved: false, isOverview: event.offsetY < 34 };
    if (drag.isOverview) toOverview(event);
  });

  const toOverview = (event) => {
    const time = timeline.begin + ((event.offsetX - GUTTER) / timeline.plot) * (timeline.end - timeline.begin);
    timeline.isFollowing = false;
    const half = Math.min(timeline.span, (timeline.end - timeline.begin) * 0.25) / 2;
    timeline.show(time - half, time + half);
    redraw();
  };

  canvas.addEventListener('pointermove', (event) => {
    if (drag === undefined) return hover(event);
    tip.hidden = true;
    drag.isMoved ||= Math.hypot(event.offsetX - drag.x, event.offsetY - drag.y) > DRAG_PIXELS;
    if (drag.isOverview) return toOverview(event);
    if (!drag.isMoved) return undefined;
    timeline.isFollowing = false;
    const moved = ((event.offsetX - drag.x) / timeline.plot) * (drag.to - drag.from);
    timeline.show(drag.from - moved, drag.to - moved);
    const room = Math.max(0, timeline.contentHeight - (timeline.lanesBottom - timeline.lanesTop));
    timeline.scroll = Math.min(room, Math.max(0, drag.scroll + drag.y - event.offsetY));
    return redraw();
  });

  canvas.addEventListener('pointerup', (event) => {
    const was = drag;
    drag = undefined;
    if (was === undefined || was.isMoved || was.isOverview) return;
    const place = timeline.hit(event.offsetX, event.offsetY);
    if (event.offsetX > GUTTER) timeline.cursor = timeline.time(event.offsetX);
    select(place && nearest(timeline, place));
    redraw();
  });

  canvas.addEventListener('dblclick', () => act('zoom'));
  canvas.addEventListener('pointerleave', () => (tip.hidden = true));

  function hover(event) {
    const place = timeline.hit(event.offsetX, event.offsetY);
    const slice = place && nearest(timeline, place);
    tip.hidden = slice === undefined;
    if (slice === undefined) return;
    const name = model.name(slice.name);
    tip.textContent = `${name}${slice.category === 6 ? ' (blocked)' : ''} · ${duration(slice.end - slice.start)}`;
    const left = Math.min(event.offsetX + 14, timeline.width - tip.offsetWidth - 8);
    tip.style.transform = `translate(${left}px, ${event.offsetY + 16}px)`;
  }

  canvas.addEventListener('keydown', (event) => {
    if (event.ctrlKey || event.metaKey || event.altKey) return;
    const page = event.shiftKey ? 0.9 : 0.12;
    const moves = {
      ArrowLeft: () => timeline.pan(-page), ArrowRight: () => timeline.pan(page),
      ArrowUp: () => select(above(timeline, -1)), ArrowDown: () => select(above(timeline, 1)),
      '+': () => timeline.zoom(0.7), '=': () => timeline.zoom(0.7), '-': () => timeline.zoom(1 / 0.7), _: () => timeline.zoom(1 / 0.7),
      '[': () => select(beside(timeline, -1)), ']': () => select(beside(timeline, 1)),
      Enter: () => act('zoom'), Home: () => timeline.show(timeline.begin, timeline.begin + timeline.span), End: () => timeline.show(timeline.end - timeline.span, timeline.end),
    };
    const move = moves[event.key];
    if (move === undefined) return;
    event.preventDefault();
    move();
    redraw();
  });
}

/** The slice at a place, or one within three pixels of it. */
function nearest(timeline, { thread, depth, time }) {
  const exact = timeline.model.sliceAt(thread, depth, time);
  if (exact !== undefined) return exact;
  const near = (3 * timeline.span) / timeline.plot;
  return timeline.model.sliceAt(thread, depth, time + near) ?? timeline.model.sliceAt(thread, depth, time - near);
}

/** The slice before or after the selected one, of the same thread and depth. */
function beside(timeline, by) {
  const { selected, model } = timeline;
  if (selected === undefined) return firstInView(timeline);
  const track = model.lanes[selected.thread].tracks[selected.depth];
  const at = selected.at + by;
  if (track === undefined || at < 0 || at >= track.length) return selected;
  return reveal(timeline, { ...selected, isOpen: false, at, ...sliceOf(track, at) });
}

/** The slice above or below the selected one: another depth, then another thread. */
function above(timeline, by) {
  const { selected, model } = timeline;
  if (selected === undefined) return firstInView(timeline);
  const time = (Math.max(selected.start, timeline.from) + Math.min(selected.end, timeline.to)) / 2;
  const rows = timeline.layout().flatMap(({ lane }) => Array.from({ length: lane.depths }, (_, depth) => [lane.thread, depth]));
  let row = rows.findIndex(([thread, depth]) => thread === selected.thread && depth === selected.depth);
  for (row += by; row >= 0 && row < rows.length; row += by) {
    const [thread, depth] = rows[row];
    const found = model.sliceAt(thread, depth, time) ?? nearest(timeline, { thread, depth, time });
    if (found !== undefined) return found;
  }
  return selected;
}

function firstInView(timeline) {
  for (const { lane } of timeline.layout()) {
    const track = lane.tracks[0];
    for (let at = 0; track !== undefined && at < track.length; at++) {
      if (track.end[at] > timeline.from) return { thread: lane.thread, depth: 0, at, ...sliceOf(track, at) };
    }
  }
  return undefined;
}

function reveal(timeline, slice) {
  if (slice.end < timeline.from || slice.start > timeline.to) {
    timeline.isFollowing = false;
    const half = timeline.span / 2;
    timeline.show((slice.start + slice.end) / 2 - half, (slice.start + slice.end) / 2 + half);
  }
  return slice;
}

/** A slice in words. */
export function described(model, slice) {
  const lane = model.lanes[slice.thread];
  return `${CATEGORIES[slice.category]} ${model.name(slice.name)} on ${lane.name}, ${duration(slice.end - slice.start)}${slice.isOpen ? ' so far' : ''}`;
}
