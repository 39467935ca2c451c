// How long the page takes for notes that never happened: into `data-` attributes of the document, and onto the page.

import { frames } from './synthetic.js';

const FRAMES = 60;

/** Draws and has the pixels made, which a call to the canvas alone does not. */
function drawn(timeline, draw) {
  const begun = performance.now();
  draw();
  timeline.context.getImageData(0, 0, 1, 1);
  return performance.now() - begun;
}

const nextFrame = () => new Promise((resolve) => requestAnimationFrame(resolve));

export async function measure(count, model, timeline, draw, changed) {
  const made = [...frames(count)]; // A server makes them elsewhere.
  const begun = performance.now();
  let first;
  for (const frame of made) {
    model.take(frame);
    if (first === undefined) {
      draw();
      first = performance.now() - begun;
    }
  }
  drawn(timeline, draw);
  const all = performance.now() - begun;
  const times = [];
  timeline.isFollowing = false;
  for (let frame = 0; frame < FRAMES; frame++) {
    await nextFrame();
    // The whole, then nearer, then on the way.
    if (frame < FRAMES / 3) timeline.fit();
    else if (frame < (2 * FRAMES) / 3) timeline.zoom(0.8);
    else timeline.pan(0.4);
    times.push(drawn(timeline, draw));
  }
  times.sort((a, b) => a - b);
  const data = document.documentElement.dataset;
  Object.assign(data, { first: first.toFixed(1), paint: all.toFixed(1), frame: times[FRAMES / 2].toFixed(2), frameMost: times.at(-1).toFixed(2) });
  timeline.isFollowing = true;
  changed('synthetic');
}
