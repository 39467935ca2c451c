// Counts over the time that is shown, stacked by part.

import { after } from './columns.js';
import { GUTTER } from './timeline.js';

/** Draws a series into a strip. Each pixel shows the moment of its greatest sum, so that no peak is missed. */
export function drawChart(timeline, top, height, series, colours, label, format) {
  const { context, colours: theme } = timeline;
  context.fillStyle = theme.ground;
  context.fillRect(0, top, GUTTER, height);
  context.fillStyle = theme.line;
  context.fillRect(0, top, timeline.width, 1);
  context.font = `12px ${theme.font}`;
  context.textBaseline = 'middle';
  context.fillStyle = theme.text;
  context.fillText(label, 16, top + 18);
  context.font = `11px ${theme.font}`;
  context.fillStyle = theme.muted;
  context.fillText(series.columns.length > 0 ? `at most ${format(series.max)}` : 'not noted', 16, top + 36);
  const { columns } = series;
  if (columns.length === 0 || series.max === 0) return;
  const scale = (height - 12) / series.max;
  const bottom = top + height - 1;
  const step = timeline.span / timeline.plot;
  let at = after(columns.time, columns.length, timeline.from);
  const right = Math.min(timeline.width, timeline.x(timeline.model.now));
  for (let x = GUTTER; x < right; x++) {
    const next = after(columns.time, columns.length, timeline.from + (x + 1 - GUTTER) * step, at);
    // What was there at the beginning of the pixel counts too.
    const best = at > 0 ? series.greatestIn(at - 1, next) : next > at ? series.greatestIn(at, next) : -1;
    at = next;
    if (best < 0 || columns.sum[best] === 0) continue;
    let y = bottom;
    for (let part = 0; part < series.parts; part++) {
      const share = columns[`part${part}`][best] * scale;
      if (share === 0) continue;
      context.fillStyle = colours[part];
      y -= share;
      context.fillRect(x, y, 1, share);
    }
  }
}
